//! The check that programs know the arguments that a declaration adds. It comes before anything on the host restarts: a program
//! with an unknown argument does not start.

use std::collections::BTreeMap;

use kubeon_render::paths::PARTS;
use kubeon_wire::{Check, Op};

use super::control_plane::ControlPlaneProgram;
use super::step::{ARTIFACTS, DesiredStep, part_id};
use crate::context::{ObservedHost, PlanContext};
use crate::step_id::StepId;

/// A program with its further arguments. The part of the bundle has the name of the program.
type ProgramArguments<'a> = (&'static str, &'a BTreeMap<String, String>);

fn check_id(host: &ObservedHost<'_>) -> StepId {
    host.id(ARTIFACTS, "arguments")
}

/// The check that comes before the programs of a host; `None` if no declaration adds arguments to them.
pub(crate) fn checked(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<StepId> {
    programs(context, host).next().map(|_| check_id(host))
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

/// Asks the programs that will run on the host, those of the bundle of the plan.
pub(crate) fn check(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<DesiredStep> {
    let programs: Vec<ProgramArguments<'_>> = programs(context, host).collect();
    let id = checked(context, host)?;
    let asked = programs.iter().copied().map(|(program, arguments)| Check::AcceptsArguments {
        program: format!("{PARTS}/{}/bin/{program}", context.part(host, program).digest),
        arguments: arguments.iter().map(|(name, value)| format!("--{name}={value}")).collect(),
    });
    let names: Vec<&str> = programs.iter().copied().map(|(program, _)| program).collect();
    let step = DesiredStep::new(host, id, Op::Await { checks: asked.collect() })
        .title(format!("{} on {} knows its further arguments", names.join(", "), host.name))
        .because("they are declared")
        .needs(programs.iter().copied().map(|(program, _)| part_id(program, host)));
    Some(step.check(None))
}
