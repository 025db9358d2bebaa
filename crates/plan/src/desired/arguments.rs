//! The check that programs know the arguments and the feature gates that a declaration adds. It comes before anything on the host
//! restarts: a program with an unknown one does not start.

use std::collections::BTreeMap;

use kubeon_render::paths::PARTS;
use kubeon_wire::{Check, Op};

use super::control_plane::{ControlPlaneProgram, emulation, is_program};
use super::step::{ARTIFACTS, DesiredStep, part_id};
use crate::context::{ObservedHost, PlanContext};
use crate::step_id::StepId;

/// A program with its further arguments. The part of the bundle has the name of the program.
type ProgramArguments<'a> = (&'static str, &'a BTreeMap<String, String>);

fn check_id(host: &ObservedHost<'_>) -> StepId {
    host.id(ARTIFACTS, "arguments")
}

/// The check that comes before the programs of a host; `None` if no declaration adds arguments or feature gates to them.
pub(crate) fn checked(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<StepId> {
    let asks = programs(context, host).next().is_some() || !gated(context, host).is_empty();
    asks.then(|| check_id(host))
}

/// The programs of a host that have further arguments. Those of static pods are in images, where they cannot be asked.
fn programs<'a>(
    context: &PlanContext<'a>,
    host: &ObservedHost<'_>,
) -> impl Iterator<Item = ProgramArguments<'a>> + use<'a> {
    let extra = &context.spec().settings.extra_args;
    let are_services = !context.runs_static_pods();
    let holds_member = are_services && host.role == context.spec().member_role();
    let is_master = are_services && host.is_master();
    let all = [
        (holds_member, "etcd", &extra.etcd),
        (is_master, ControlPlaneProgram::ApiServer.part(), &extra.kube_apiserver),
        (is_master, ControlPlaneProgram::ControllerManager.part(), &extra.kube_controller_manager),
        (is_master, ControlPlaneProgram::Scheduler.part(), &extra.kube_scheduler),
        (host.role.runs_node(), "kubelet", &extra.kubelet),
    ];
    let used = all.into_iter().filter(|(runs, _, arguments)| *runs && !arguments.is_empty());
    used.map(|(_, program, arguments)| (program, arguments))
}

/// The programs of a host that get the declared feature gates. Those of static pods have the same gates as the kubelet.
fn gated(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Vec<&'static str> {
    if context.spec().settings.feature_gates.is_empty() {
        return Vec::new();
    }
    let is_master = host.is_master() && !context.runs_static_pods();
    let control_plane =
        ControlPlaneProgram::ALL.into_iter().filter(|_| is_master).map(ControlPlaneProgram::part);
    control_plane.chain(host.role.runs_node().then_some("kubelet")).collect()
}

/// Asks a program for its feature gates: for those of its version, and, while that is tried, for those of the version that the
/// control plane emulates.
fn gates(context: &PlanContext<'_>, host: &ObservedHost<'_>, program: &str) -> Vec<Check> {
    let gates = format!("--feature-gates={}", context.spec().settings.feature_gates);
    let emulation = emulation(context).filter(|_| is_program(program));
    let emulating = emulation.map(|(name, version)| vec![format!("--{name}={version}"), gates.clone()]);
    let asked = [vec![gates]].into_iter().chain(emulating);
    asked
        .map(|arguments| Check::KnowsFeatureGates { program: path(context, host, program), arguments })
        .collect()
}

/// The path of a program of the bundle of the plan on a host.
fn path(context: &PlanContext<'_>, host: &ObservedHost<'_>, program: &str) -> String {
    format!("{PARTS}/{}/bin/{program}", context.part(host, program).digest)
}

/// Asks the programs that will run on the host, those of the bundle of the plan.
pub(crate) fn check(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<DesiredStep> {
    let id = checked(context, host)?;
    let (extended, gated): (Vec<_>, Vec<_>) = (programs(context, host).collect(), gated(context, host));
    let takes = extended.iter().map(|(program, arguments)| Check::AcceptsArguments {
        program: path(context, host, program),
        arguments: arguments.iter().map(|(name, value)| format!("--{name}={value}")).collect(),
    });
    let knows = gated.iter().copied().flat_map(|program| gates(context, host, program));
    let what = match (extended.is_empty(), gated.is_empty()) {
        (false, false) => "its further arguments and feature gates",
        (false, true) => "its further arguments",
        (true, _) => "its feature gates",
    };
    let mut names: Vec<&'static str> = extended.iter().map(|(program, _)| *program).collect();
    names.extend(gated.iter().filter(|program| !extended.iter().any(|(other, _)| other == *program)));
    let step = DesiredStep::new(host, id, Op::Await { checks: takes.chain(knows).collect() })
        .title(format!("{} on {} knows {what}", names.join(", "), host.name))
        .because("they are declared")
        .needs(names.iter().copied().map(|program| part_id(program, host)));
    Some(step.check(None))
}
