//! Additions to the Job of contract A for a runner image that runs playbooks or the programs behind them: the
//! bundle of the requested version, and the state that an earlier Job of the cluster saved.

use kubeon_api::kubeonkube::{ActionType, ClusterOperationSpec};
use kubeon_api::{Cluster, ClusterOperation, DataRef};
use kubeon_render::job::{Mount, MountSource};

use super::inputs::{Inputs, Obstacle, References, actions, copy_key};
use super::name;
use crate::cluster_object::owner;
use crate::names;
use crate::persisted::{self, PersistedObject};
use crate::view::View;
use crate::write::{ObjectKind, Write};

/// Playbooks that need no bundle, because they install nothing on hosts.
const WITHOUT_BUNDLE: [&str; 2] = ["ping.yml", "reset.yml"];
/// The programs of the runner image that use the state, and the variables that contain their paths.
const STATEFUL_PROGRAMS: [&str; 4] = ["ansible-playbook", "kubeon", "KUBEON_PROGRAM", "KUBEON_HOME"];

/// The additions to the Job.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct JobExtras {
    /// Secrets that are created for, or assigned to, the Job before it is created.
    pub secrets: Vec<Write>,
    pub mounts: Vec<Mount>,
    /// Arguments of the runner.
    pub arguments: Vec<String>,
}

/// The additions to the Job. Empty for an image that is not a runner image, and when no playbook or command
/// needs them, because they cost two writes and the pull of an image.
pub(crate) fn job_extras(
    s: &View<'_>,
    operation: &ClusterOperation,
    cluster: &Cluster,
    inputs: &Inputs,
    references: &References,
    job: &DataRef,
) -> Result<JobExtras, Obstacle> {
    let spec = &operation.spec;
    let (playbooks, calls_program) =
        (playbooks(spec), scripts(spec, inputs, references).any(calls_stateful_program));
    if (playbooks.is_empty() && !calls_program) || !s.settings.is_runner(&spec.image) {
        return Ok(JobExtras::default());
    }
    let version = match version(inputs, references) {
        // The command itself reports an invalid inventory.
        Err(_) if playbooks.is_empty() => None,
        version => version?,
    };
    let cluster_name = spec.cluster.as_str();
    let label = persisted::cluster(&job.namespace, cluster_name);
    let (state, kubeconfig) = (names::cluster_state(cluster_name), names::cluster_kubeconfig(cluster_name));
    let mut job_extras = JobExtras::default();
    let cluster_uid = cluster.metadata.uid.as_deref();
    // The state holds the keys of hosts, which may carry the cluster when its object is deleted: it has no owner.
    for (secret, owner) in [(&state, None), (&kubeconfig, Some(owner(cluster)))] {
        let kind = ObjectKind::Secret;
        let object = PersistedObject { kind, name: secret, cluster: &label, cluster_uid, owner };
        job_extras.secrets.extend(persisted::assign(s, object, job, name(operation))?);
    }
    let source = MountSource::Secret { name: state.clone(), optional: true };
    job_extras.mounts.push(Mount { volume: "state", source, path: "/state".to_owned(), key: None });
    let needs_bundle = calls_program || playbooks.iter().any(|playbook| !WITHOUT_BUNDLE.contains(playbook));
    if let Some(image) = s.settings.bundle_image.as_ref().filter(|_| needs_bundle) {
        let version = version.unwrap_or_else(|| s.settings.default_version.clone());
        job_extras.mounts.push(Mount::bundle(image, &version));
    }
    let flags =
        [("secret-namespace", &job.namespace), ("state-secret", &state), ("kubeconfig-secret", &kubeconfig)];
    job_extras.arguments = flags.iter().map(|(flag, value)| format!("--{flag}={value}")).collect();
    Ok(job_extras)
}

fn playbooks(spec: &ClusterOperationSpec) -> Vec<&str> {
    let playbooks = actions(spec).filter(|action| action.action_type == ActionType::Playbook);
    playbooks.map(|action| action.action.trim()).collect()
}

/// The shell scripts of the user: commands, files of actions, and a custom entry point.
fn scripts<'s>(
    spec: &'s ClusterOperationSpec,
    inputs: &'s Inputs,
    references: &References,
) -> impl Iterator<Item = &'s str> {
    let commands = actions(spec).filter(|action| action.action_type == ActionType::Shell);
    let action_files = inputs.files.iter().filter(|(key, _)| key.starts_with(&copy_key("/bin/")));
    let own = references.script.as_ref().and_then(|_| inputs.files.get("entrypoint.sh"));
    let files = action_files.map(|(_, text)| text).chain(own).map(String::as_str);
    commands.map(|action| action.action.as_str()).chain(files)
}

/// Whether a word of the script is a stateful program. A word in a comment counts as well.
fn calls_stateful_program(script: &str) -> bool {
    let is_part_of_word = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    script.split(|c: char| !is_part_of_word(c)).any(|word| STATEFUL_PROGRAMS.contains(&word))
}

/// The version in inventory and variables. Both are validated before a Job is created.
fn version(inputs: &Inputs, references: &References) -> Result<Option<String>, Obstacle> {
    let file = |key: &str| inputs.files.get(key).map(String::as_str).unwrap_or_default();
    match kubeon_inventory::outline(file("hosts.yml"), file("group_vars.yml")) {
        Ok(outline) => Ok(outline.version.map(|version| version.to_string())),
        Err(mistakes) => {
            let messages: Vec<String> = mistakes.0.iter().map(ToString::to_string).collect();
            let text = format!(
                "hostsConfRef {} or varsConfRef {}: {}",
                references.hosts,
                references.vars,
                messages.join("; ")
            );
            Err(Obstacle::Refuse("InvalidInventory", text))
        }
    }
}
