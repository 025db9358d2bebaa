//! Stage `leave`: removes workers that are no longer in the specification. Each node is drained and deleted,
//! then its host is reset. A worker that is in the specification again, but whose node was deleted already,
//! is reset here too.

use kubeon_wire::Op;

use super::control::{apiserver_id, rights_id};
use super::join::{kubelet_id, ready_id, taint_id};
use super::step::DesiredStep;
use crate::context::{Leaving, PlanContext};
use crate::stage_name::StageName;
use crate::step_id::StepId;

pub(crate) const STAGE: StageName = StageName::new("leave");

/// The step that drains a leaving node. Any master may execute it.
fn drain_id(leaving: &Leaving<'_>) -> StepId {
    StepId::of_cluster(STAGE, format!("drain-{}", leaving.name))
}

/// The step that deletes a leaving node. Any master may execute it.
fn remove_id(leaving: &Leaving<'_>) -> StepId {
    StepId::of_cluster(STAGE, format!("remove-{}", leaving.name))
}

/// The step that resets the host of a leaving node.
fn reset_id(leaving: &Leaving<'_>) -> StepId {
    StepId::new(STAGE, "reset", &leaving.name)
}

/// Drains, removes and resets each leaving worker. Workers leave in parallel.
pub(crate) fn workers(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    if context.leaving.is_empty() {
        return;
    }
    let before = before_drains(context);
    for leaving in &context.leaving {
        let drain = drain(context, leaving, &before);
        let remove = remove(context, leaving, drain.as_ref());
        let reset = reset(context, leaving, remove.as_ref());
        steps.extend(drain.into_iter().chain(remove).chain(reset));
    }
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
    let node = context.node(&leaving.name);
    // Only a kubelet can end its pods. If the node is known not to be ready, a drain would wait in vain. If
    // its status is unknown, the pods may still run, so the drain waits for their end.
    let kubelet_runs = leaving.facts.is_ok() || node.is_none_or(|node| node.is_some_and(|node| node.ready));
    if matches!(node, Some(None)) || !kubelet_runs {
        return None;
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

fn remove(
    context: &PlanContext<'_>,
    leaving: &Leaving<'_>,
    drain: Option<&DesiredStep>,
) -> Option<DesiredStep> {
    if matches!(context.node(&leaving.name), Some(None)) {
        return None;
    }
    let op = Op::RemoveNode { node: leaving.name.clone() };
    Some(
        DesiredStep::of_node(context, &leaving.name, remove_id(leaving), op)
            .title(format!("remove node {} from the cluster", leaving.name))
            .needs([apiserver_id(context.executor()), rights_id()])
            .needs(drain.map(|drain| drain.id.clone()))
            .once(why(context, leaving))
            .destroys(3),
    )
}

fn reset(
    context: &PlanContext<'_>,
    leaving: &Leaving<'_>,
    remove: Option<&DesiredStep>,
) -> Option<DesiredStep> {
    let facts = leaving.facts.as_ref().ok()?;
    let claimed = facts.claim.as_ref().is_some_and(|claim| claim.uid == context.intent.uid);
    let op = Op::Reset { cluster: context.spec().name.clone() };
    claimed.then(|| {
        DesiredStep::on(leaving.spec.address, reset_id(leaving), op)
            .title(format!("reset {}: remove everything of cluster {}", leaving.name, context.spec().name))
            .within(180)
            .needs(remove.map(|remove| remove.id.clone()))
            .once(why(context, leaving))
            .destroys(2)
    })
}
