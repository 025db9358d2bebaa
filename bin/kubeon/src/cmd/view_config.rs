//! `kubeon view config`: the files, units and objects of a program.

use std::fmt::Write as _;

use kubeon_api::HostAddress;
use kubeon_engine::cluster_target::{ClusterTarget, TargetOptions};
use kubeon_engine::error::EngineError;
use kubeon_engine::login_request::LoginRequests;
use kubeon_engine::preview::preview;
use kubeon_plan::{StepId, desired_content};
use kubeon_wire::{ApiObject, Content, Op, StaticPod, program_of_unit};

use crate::args::day::ViewConfig;
use crate::cli_error::CliError;
use crate::context::Context;

/// Prints what a program is configured with.
pub(super) async fn run(context: &Context<'_>, args: &ViewConfig) -> Result<(), CliError> {
    let engine = context.engine()?;
    let state = engine.find(Some(&args.name))?;
    let options = TargetOptions { logins: LoginRequests::from(&args.login), ..TargetOptions::default() };
    let target = ClusterTarget::stored(&engine, state, options)?;
    let made = preview(&engine, &target, &args.contact.options()).await?;
    let all = desired_content(&made.intent, &made.snapshot)
        .map_err(|error| EngineError::failed(error.to_string()))?;
    let text = of_program(&all, &args.program)?;
    if text.is_empty() {
        context.output.warn(&format!("not found or not need this module {}", args.program));
    }
    context.output.result(&text)
}

/// The content of the first host that has content of the program, and the objects of the cluster.
fn of_program(all: &[(StepId, HostAddress, Op)], program: &str) -> Result<String, CliError> {
    let mut first = None;
    let mut text = String::new();
    for (id, host, op) in all {
        let found = content(id, op, program)?;
        let of_host = id.host().map(|_| *host);
        if found.is_empty() || (of_host.is_some() && first.is_some() && of_host != first) {
            continue;
        }
        first = first.or(of_host);
        text.push_str(&found);
    }
    Ok(text)
}

/// The text of a unit as people read it: of a static pod, the configuration of kubeadm or the manifest.
fn unit_text(unit: &str) -> String {
    match serde_json::from_str(unit) {
        Ok(StaticPod::Kubeadm { phase, configuration, .. }) => {
            format!("# kubeadm init phase {}\n{configuration}", phase.join(" "))
        }
        Ok(StaticPod::Text { text, .. }) => text,
        Err(_) => unit.to_owned(),
    }
}

fn content(id: &StepId, op: &Op, program: &str) -> Result<String, CliError> {
    let mut text = String::new();
    let mut add = |name: &str, content: &str| {
        // Writing to a string never fails.
        let _ = write!(text, "# {name}\n{}\n", content.trim_end());
    };
    match op {
        Op::Files { files } => {
            for file in files.iter().filter(|file| is_about(id, &file.path, program)) {
                if let Content::Text(content) = &file.content {
                    add(&file.path, content);
                }
            }
        }
        Op::Service { name, unit, .. } if is_named(program_of_unit(name), program) => {
            add(name, &unit_text(unit));
        }
        Op::Objects { objects } => {
            let objects: Vec<&ApiObject> = match program {
                UPDATER => objects.iter().filter(|_| id.what() == "apiserver-service").collect(),
                _ => of_objects(objects, program).collect(),
            };
            for object in objects {
                let yaml = serde_saphyr::to_string(&object.body)
                    .map_err(|error| CliError::failed(format!("cannot write {}: {error}", object.path)))?;
                add(&object.path, &format!("---\n{yaml}"));
            }
        }
        _ => {}
    }
    Ok(text)
}

/// The short name of the program that keeps the endpoints of the Service of the API servers.
const UPDATER: &str = "updater";

/// Whether a unit is the program's. The units of the load balancer `updater` have short names, as in the seed.
fn is_named(unit: &str, program: &str) -> bool {
    unit == program || unit.strip_prefix("apiserver-") == Some(program)
}

/// The objects of a program among those of a step. All objects beside one of its name belong to it, such as the Service of
/// CoreDNS.
pub(super) fn of_objects<'a>(objects: &'a [ApiObject], program: &str) -> impl Iterator<Item = &'a ApiObject> {
    let name = |object: &ApiObject| object.path.rsplit('/').next().unwrap_or_default().to_owned();
    let whole = objects.iter().any(|object| name(object) == program);
    objects.iter().filter(move |object| whole || name(object).contains(program))
}

/// Whether the file is one of the program: its step or a part of its path has that name.
fn is_about(id: &StepId, path: &str, program: &str) -> bool {
    let part = |part: &str| part == program || part.split('.').next() == Some(program);
    id.what() == program
        || path
            .split('/')
            .any(|name| part(name) || is_named(name.split('.').next().unwrap_or_default(), program))
}

#[cfg(test)]
mod tests {
    use kubeon_api::kubernetes_cluster::LoadBalancer;
    use kubeon_plan::sim::{artifacts, bare, cluster};
    use kubeon_plan::{Intent, Observation, Snapshot, validate};

    use super::*;

    fn all(load_balancer: LoadBalancer) -> Vec<(StepId, HostAddress, Op)> {
        let mut spec = cluster(&["10.0.0.1"], &["10.0.0.2"]);
        spec.settings.load_balancer = load_balancer;
        let known = [spec.version];
        let content = artifacts(&spec.version.to_string());
        let intent = Intent::new(validate(spec, &known).unwrap().0, "u", 0, content);
        let host = |at: &str, name: &str| (at.parse().unwrap(), Observation::Fresh(bare(name)));
        let hosts = [host("10.0.0.1", "h1"), host("10.0.0.2", "h2")].into();
        let taken_at = bare("h1").clock_seconds;
        desired_content(&intent, &Snapshot { taken_at, hosts }).unwrap()
    }

    #[test]
    fn each_program_has_its_files_its_unit_or_its_objects() {
        let all = all(LoadBalancer::Haproxy);
        let text = |program: &str| of_program(&all, program).unwrap();
        assert!(text("kubelet").contains("# /var/lib/kubelet/config.yaml\n"), "{}", text("kubelet"));
        assert!(text("kubelet").contains("# kubelet.service\n"));
        assert!(text("haproxy").contains("server h1 10.0.0.1:6443"), "{}", text("haproxy"));
        assert!(text("coredns").contains("kind: Deployment"));
        assert_eq!(text("kubelet").matches("# kubelet.service").count(), 1, "of one host");
        for program in ["kubelet", "kube-apiserver", "etcd"] {
            assert!(!text(program).contains("PRIVATE KEY"));
        }
        assert_eq!(text("updater"), "");
    }

    #[test]
    fn the_load_balancer_updater_has_its_units_and_objects() {
        let all = all(LoadBalancer::Updater);
        let text = |program: &str| of_program(&all, program).unwrap();
        let updater = text("updater");
        assert!(updater.contains("# apiserver-updater.service\n"), "{updater}");
        assert!(updater.contains("clusterIP: \"10.64.0.15\""), "{updater}");
        let startup = text("startup");
        assert!(startup.contains("# apiserver-startup.service\n"), "{startup}");
        assert!(startup.contains("# /etc/kubernetes/apiserver-startup.json\n"), "{startup}");
        assert_eq!(text("haproxy"), "");
    }
}
