//! Stage `leave`: removes hosts that are no longer in the specification. Each node is drained and deleted,
//! then its host is reset. A worker that is in the specification again, but whose node was deleted already,
//! is reset here too.
//!
//! A master leaves when every other host reaches the API servers that stay. Its control plane stops in an orderly way, so
//! that the cluster forgets its API server at once, and its etcd member is removed. Masters and hosts of etcd leave one after
//! another.

use kubeon_api::HostName;
use kubeon_api::kubernetes_cluster::LoadBalancer;
use kubeon_wire::{Check, Op};

use super::control::{apiserver_id, rights_id};
use super::control_plane::ControlPlaneProgram;
use super::etcd::{remove_dead_id, remove_member, serving_id};
use super::haproxy;
use super::hosts_file::hosts_id;
use super::join::{kubelet_id, ready_id, taint_id};
use super::pods;
use super::step::DesiredStep;
use crate::context::{Leaving, PlanContext};
use crate::membership::MembershipChange;
use crate::stage_name::StageName;
use crate::step_id::StepId;

pub(crate) const STAGE: StageName = StageName::new("leave");

/// Seconds until a node that does not answer is lost: its Lease is not renewed for 25 s while an API server answers.
const LOST_SECONDS: u32 = 120;
/// Seconds for the control plane to stop: an API server waits for open requests.
const STOP_SECONDS: u32 = 120;

/// The step that drains a leaving node, or waits until a lost one does not answer. Any master may execute it.
fn drain_id(leaving: &Leaving<'_>) -> StepId {
    StepId::of_cluster(STAGE, format!("drain-{}", leaving.name))
}

/// The step that deletes a leaving node. Any master may execute it.
fn remove_id(leaving: &Leaving<'_>) -> StepId {
    StepId::of_cluster(STAGE, format!("remove-{}", leaving.name))
}

/// The step that ends the leadership of the controllers of a lost master. Any master may execute it.
fn leadership_id(leaving: &Leaving<'_>) -> StepId {
    StepId::of_cluster(STAGE, format!("leadership-{}", leaving.name))
}

/// The step that resets the host of a leaving node.
fn reset_id(leaving: &Leaving<'_>) -> StepId {
    StepId::new(STAGE, "reset", &leaving.name)
}

/// The step that stops the control plane of a leaving master.
fn stop_id(leaving: &Leaving<'_>) -> StepId {
    StepId::new(STAGE, "stop", &leaving.name)
}

/// The step that removes a leaving member that serves. Any master may execute it.
fn member_id(leaving: &Leaving<'_>) -> StepId {
    StepId::of_cluster(STAGE, format!("member-{}", leaving.name))
}

/// Drains, removes and resets each leaving host. Workers leave in parallel, masters one after another.
pub(crate) fn hosts(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    lost_nodes(context, steps);
    if context.leaving.is_empty() {
        return;
    }
    let before = before_drains(context);
    let change = MembershipChange::of(context);
    let mut last_member: Option<StepId> = None;
    for leaving in &context.leaving {
        let drain = drain(context, leaving, &before);
        let mut gone: Vec<StepId> = drain.iter().map(|drain| drain.id.clone()).collect();
        if change.dead.iter().any(|dead| dead.name == leaving.name) {
            gone.push(remove_dead_id(&leaving.name));
            steps.extend(end_leadership(context, leaving));
        }
        let living = change.living.iter().any(|living| living.name == leaving.name);
        let members = change.dead.iter().map(|dead| remove_dead_id(&dead.name)).chain(last_member.clone());
        let before_stop: Vec<StepId> = members.chain(gone.iter().cloned()).collect();
        let master = if living || context.has_external_etcd() {
            leave_control_plane(context, leaving, living, &before_stop)
        } else {
            Vec::new()
        };
        last_member = master.last().map(|step| step.id.clone()).or(last_member);
        gone.extend(master.last().map(|step| step.id.clone()));
        let remove = remove(context, leaving, &gone);
        let before_reset = remove.as_ref().map_or(gone, |remove| vec![remove.id.clone()]);
        let reset = reset(context, leaving, before_reset);
        steps.extend(drain.into_iter().chain(master).chain(remove).chain(reset));
    }
}

/// Ends the leadership of the controllers of a master that cannot be reached. Its own API server, the only one that they use, writes
/// nothing any more without its member of etcd.
fn end_leadership(context: &PlanContext<'_>, leaving: &Leaving<'_>) -> Option<DesiredStep> {
    let is_silent = leaving.role.is_master() && leaving.facts.is_err() && !context.has_external_etcd();
    let op = Op::EndLeadership { node: leaving.name.clone() };
    is_silent.then(|| {
        DesiredStep::of_node(context, &leaving.name, leadership_id(leaving), op)
            .title(format!("let controllers of other masters lead in place of those of {}", leaving.name))
            .needs([remove_dead_id(&leaving.name), apiserver_id(context.executor()), rights_id()])
            .once(why(context, leaving))
    })
}

/// Stops the control plane of a leaving master, then removes the member on its host, if there is one. On a host of etcd alone
/// there is only the member, which no API server uses any more. `before` are the steps that come before.
fn leave_control_plane(
    context: &PlanContext<'_>,
    leaving: &Leaving<'_>,
    has_member: bool,
    before: &[StepId],
) -> Vec<DesiredStep> {
    let serving = context.member_hosts().map(|host| serving_id(context, host));
    let ready = serving.chain(context.masters().map(apiserver_id));
    let hosts = context.hosts.iter().map(hosts_id);
    let before: Vec<StepId> =
        ready.chain(hosts).chain(haproxy_ids(context)).chain(before.iter().cloned()).collect();
    let stops = leaving.role.is_master() && leaving.facts.is_ok();
    let stop = stops.then(|| stop(context, leaving).needs(before.clone()));
    let stopped = stop.as_ref().map(|stop| stop.id.clone());
    let member =
        || remove_member(context, leaving, member_id(leaving)).needs(before.clone()).needs(stopped.clone());
    let member = has_member.then(member);
    stop.into_iter().chain(member).collect()
}

fn stop(context: &PlanContext<'_>, leaving: &Leaving<'_>) -> DesiredStep {
    use ControlPlaneProgram::{ApiServer, ControllerManager, Scheduler};
    let units =
        [Scheduler, ControllerManager, ApiServer].map(|program| pods::unit_name(context, program.part()));
    // The step that removes the member asks the others.
    let op = Op::StopServices { units: units.into(), before_member: false };
    DesiredStep::on(leaving.spec.address, stop_id(leaving), op)
        .title(format!("stop the control plane of {}", leaving.name))
        .within(STOP_SECONDS)
        .once(why(context, leaving))
        .destroys(2)
}

/// The steps after which the workers reach the API servers of the masters, and no other.
fn haproxy_ids<'c>(context: &'c PlanContext<'c>) -> impl Iterator<Item = StepId> + 'c {
    let uses_haproxy = context.spec().settings.load_balancer == LoadBalancer::Haproxy;
    context.workers().filter(move |_| uses_haproxy).map(haproxy::loaded_id)
}

fn why(context: &PlanContext<'_>, leaving: &Leaving<'_>) -> String {
    if context.intent.returns(leaving.spec.address) {
        return format!("{} was partly removed from the cluster and must join it again", leaving.name);
    }
    let cause = match &leaving.facts {
        Ok(_) => return format!("{} leaves the cluster", leaving.name),
        Err(cause) => cause,
    };
    let unknown = context.node(&leaving.name).is_none();
    let unknown = if unknown { "; the cluster did not report whether its pods still run" } else { "" };
    format!("{} leaves the cluster and cannot be reached: {cause}{unknown}", leaving.name)
}

/// The steps before any drain: evicted pods need a node, so hosts join and masters accept pods first.
fn before_drains(context: &PlanContext<'_>) -> Vec<StepId> {
    let joining = context.hosts.iter().filter(|host| !host.has_executed(&kubelet_id(host)));
    let joined = joining.map(|host| ready_id(&host.name));
    joined.chain(context.masters().map(|host| taint_id(&host.name))).collect()
}

fn drain(context: &PlanContext<'_>, leaving: &Leaving<'_>, before: &[StepId]) -> Option<DesiredStep> {
    if !leaving.role.runs_node() {
        return None;
    }
    let node = context.node(&leaving.name);
    // Only a kubelet can end its pods. If the node is known not to be ready, a drain would wait in vain. If
    // its status is unknown, the pods may still run, so the drain waits for their end.
    let kubelet_runs = leaving.facts.is_ok() || node.is_none_or(|node| node.is_some_and(|node| node.ready));
    if matches!(node, Some(None)) || !kubelet_runs {
        return None;
    }
    if context.intent.lost_hosts.contains(&leaving.spec.address) {
        return Some(lost(context, leaving));
    }
    let op = Op::Drain { node: leaving.name.clone() };
    Some(
        DesiredStep::of_node(context, &leaving.name, drain_id(leaving), op)
            .title(format!("drain node {}, as disruption budgets allow", leaving.name))
            .within(context.intent.drain_seconds)
            .needs([apiserver_id(context.executor()), rights_id()])
            .needs(before.to_vec())
            .once(why(context, leaving))
            .destroys(1),
    )
}

/// Waits until the cluster reports that a lost node does not answer. A drain would wait for pods that never end.
fn lost(context: &PlanContext<'_>, leaving: &Leaving<'_>) -> DesiredStep {
    let checks = vec![Check::NodeNotReady { node: leaving.name.clone() }];
    DesiredStep::of_node(context, &leaving.name, drain_id(leaving), Op::Await { checks })
        .title(format!("the cluster reports that node {} does not answer", leaving.name))
        .within(LOST_SECONDS)
        .needs([apiserver_id(context.executor()), rights_id()])
        .once(why(context, leaving))
}

fn remove(context: &PlanContext<'_>, leaving: &Leaving<'_>, before: &[StepId]) -> Option<DesiredStep> {
    if !leaving.role.runs_node() || matches!(context.node(&leaving.name), Some(None)) {
        return None;
    }
    let op = Op::RemoveNode { node: leaving.name.clone() };
    Some(
        DesiredStep::of_node(context, &leaving.name, remove_id(leaving), op)
            .title(format!("remove node {} from the cluster", leaving.name))
            .needs([apiserver_id(context.executor()), rights_id()])
            .needs(before.to_vec())
            .once(why(context, leaving))
            .destroys(3),
    )
}

fn reset(context: &PlanContext<'_>, leaving: &Leaving<'_>, before: Vec<StepId>) -> Option<DesiredStep> {
    let facts = leaving.facts.as_ref().ok()?;
    let claimed = facts.claim.as_ref().is_some_and(|claim| claim.uid == context.intent.uid);
    let op = Op::Reset { cluster: context.spec().name.clone() };
    claimed.then(|| {
        DesiredStep::on(leaving.spec.address, reset_id(leaving), op)
            .title(format!("reset {}: remove everything of cluster {}", leaving.name, context.spec().name))
            .within(180)
            .needs(before)
            .once(why(context, leaving))
            .destroys(2)
    })
}

/// Removes nodes of the cluster before that have no host any more. Their kubelets do not run.
fn lost_nodes(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    if context.intent.restore.is_none() {
        return;
    }
    let mut reports = context.masters().filter_map(|master| master.facts.cluster.as_ref());
    let nodes = reports.find_map(|report| report.nodes.as_ref().filter(|_| report.api_ready));
    let observed = context.hosts.iter().map(|host| host.name.as_str());
    let known: Vec<&str> =
        observed.chain(context.unreachable.iter().map(|host| host.name.as_str())).collect();
    let lost =
        nodes.into_iter().flatten().map(|(name, _)| name).filter(|name| !known.contains(&name.as_str()));
    for name in lost.filter_map(|name| name.parse::<HostName>().ok()) {
        let why = || format!("{name} is a node of the cluster before, and no host has this name");
        let before = [apiserver_id(context.executor()), rights_id()];
        let checks = vec![Check::NodeNotReady { node: name.clone() }];
        let gone_id = StepId::of_cluster(STAGE, format!("lost-{name}"));
        let gone = DesiredStep::of_node(context, &name, gone_id.clone(), Op::Await { checks })
            .title(format!("the cluster reports that node {name} does not answer"))
            .within(LOST_SECONDS)
            .needs(before.clone())
            .once(why());
        let id = StepId::of_cluster(STAGE, format!("remove-{name}"));
        let remove = DesiredStep::of_node(context, &name, id, Op::RemoveNode { node: name.clone() })
            .title(format!("remove node {name} from the cluster"))
            .needs(before)
            .needs([gone_id])
            .once(why())
            .destroys(3);
        steps.extend([gone, remove]);
    }
}
