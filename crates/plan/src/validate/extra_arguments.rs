//! Further arguments of programs: kubeon's own arguments and texts that a unit cannot hold are refused.

use std::collections::BTreeMap;

use kubeon_api::Refusal;
use kubeon_api::kubernetes_cluster::ExtraArgs;
use kubeon_render::extra_arguments::DaemonProgram;

/// The refusals of further arguments, each with the name of the argument.
pub(super) fn refusals(extra: &ExtraArgs) -> impl Iterator<Item = Refusal> {
    let ExtraArgs { etcd, kube_apiserver, kube_controller_manager, kube_scheduler, kubelet } = extra;
    let programs = [
        ("etcd", DaemonProgram::Etcd, etcd),
        ("kubeApiserver", DaemonProgram::ApiServer, kube_apiserver),
        ("kubeControllerManager", DaemonProgram::ControllerManager, kube_controller_manager),
        ("kubeScheduler", DaemonProgram::Scheduler, kube_scheduler),
        ("kubelet", DaemonProgram::Kubelet, kubelet),
    ];
    programs.into_iter().flat_map(|(field, program, arguments)| of_program(field, program, arguments))
}

fn of_program(
    field: &'static str,
    program: DaemonProgram,
    arguments: &BTreeMap<String, String>,
) -> impl Iterator<Item = Refusal> {
    arguments.iter().filter_map(move |(name, value)| {
        let reason = mistake(program, name, value)?;
        Some(Refusal::setting(format!("spec.cluster.extraArgs.{field}.{name}"), reason))
    })
}

fn mistake(program: DaemonProgram, name: &str, value: &str) -> Option<String> {
    let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if !is_name {
        return Some("is not the name of an argument: write it without --, such as v".to_owned());
    }
    if program.owns(name) {
        return Some(format!("is set by kubeon: remove {name} from extraArgs"));
    }
    value.chars().any(char::is_control).then(|| "has a control character in its value".to_owned())
}
