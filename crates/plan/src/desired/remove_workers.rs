//! Stage `leave`: removes workers that are no longer in the specification. Each node is drained and deleted, then its host
//! is reset. A worker that is in the specification again, but whose node was deleted already, is reset here too.

use kubeon_wire::Op;

use super::control::{apiserver_id, rights_id};
use super::join::{about_node, ready_id, taint_id};
use super::step::DesiredStep;
use crate::context::{Leaving, PlanContext};
use crate::stage_name::StageName;
use crate::step_id::StepId;

/// The name of this stage.
pub(crate) const STAGE: StageName = StageName::Leave;

/// The identity of a step about a leaving node; the first master executes it.
fn about(site: &PlanContext<'_>, what: &str, leaving: &Leaving<'_>) -> StepId {
    site.first().id(STAGE, &format!("{what}-{}", leaving.name))
}

/// Drains, removes and resets each leaving worker. Workers leave in parallel.
pub(crate) fn workers(site: &PlanContext<'_>, wishes: &mut Vec<DesiredStep>) {
    if site.leaving.is_empty() {
        return;
    }
    let before = before_drains(site);
    for leaving in &site.leaving {
        let drain = drain(site, leaving, &before);
        let remove = remove(site, leaving, drain.as_ref());
        let reset = reset(site, leaving, remove.as_ref());
        wishes.extend(drain.into_iter().chain(remove).chain(reset));
    }
}

fn why(site: &PlanContext<'_>, leaving: &Leaving<'_>) -> String {
    if site.intent.returns(leaving.spec.address) {
        return format!("{} was partly removed from the cluster and must join it again", leaving.name);
    }
    let silence = match &leaving.facts {
        Ok(_) => return format!("{} is to leave the cluster", leaving.name),
        Err(silence) => silence,
    };
    let unknown = site.node(&leaving.name).is_none();
    let unknown = if unknown { "; the cluster did not report whether its pods still run" } else { "" };
    format!("{} is to leave the cluster, and cannot be reached: {silence}{unknown}", leaving.name)
}

/// The steps before any drain: evicted pods need a node, so hosts join and masters accept pods first.
fn before_drains(site: &PlanContext<'_>) -> Vec<StepId> {
    let first = site.first();
    let joining = site.hosts.iter().filter(|host| !first.did(&ready_id(site, host)));
    let joined = joining.map(|host| ready_id(site, host));
    joined.chain(site.masters().map(|host| taint_id(site, host))).collect()
}

fn drain(site: &PlanContext<'_>, leaving: &Leaving<'_>, before: &[StepId]) -> Option<DesiredStep> {
    let node = site.node(&leaving.name);
    // Only a kubelet can end its pods. If the node is known not to be ready, a drain would wait in vain. If its status is
    // unknown, the pods may still run, so the drain waits for their end.
    let ends = leaving.facts.is_ok() || node.is_none_or(|node| node.is_some_and(|node| node.ready));
    if matches!(node, Some(None)) || !ends {
        return None;
    }
    let first = site.first();
    let op = Op::Drain { node: leaving.name.clone() };
    Some(
        DesiredStep::new(first, about(site, "drain", leaving), op)
            .title(format!("empty node {}, as disruption budgets allow", leaving.name))
            .within(site.intent.drain_seconds)
            .needs([apiserver_id(first), rights_id(site)])
            .needs(before.to_vec())
            .once(why(site, leaving))
            .destroys(1),
    )
}

fn remove(site: &PlanContext<'_>, leaving: &Leaving<'_>, drain: Option<&DesiredStep>) -> Option<DesiredStep> {
    let first = site.first();
    let forget = about_node(site, &leaving.name);
    let remembered = forget.iter().any(|id| first.did(id));
    if matches!(site.node(&leaving.name), Some(None)) && !remembered {
        return None;
    }
    let forget = forget.into_iter().map(String::from).collect();
    let op = Op::RemoveNode { node: leaving.name.clone(), forget };
    Some(
        DesiredStep::new(first, about(site, "remove", leaving), op)
            .title(format!("take node {} out of the cluster", leaving.name))
            .needs([apiserver_id(first), rights_id(site)])
            .needs(drain.map(|drain| drain.id.clone()))
            .once(why(site, leaving))
            .destroys(3),
    )
}

fn reset(site: &PlanContext<'_>, leaving: &Leaving<'_>, remove: Option<&DesiredStep>) -> Option<DesiredStep> {
    let facts = leaving.facts.as_ref().ok()?;
    let ours = facts.claim.as_ref().is_some_and(|claim| claim.uid == site.intent.uid);
    let op = Op::Reset { cluster: site.spec().name.clone() };
    ours.then(|| {
        DesiredStep::on(leaving.spec.address, StepId::new(STAGE, "reset", &leaving.name), op)
            .title(format!("take everything of {} off {}", site.spec().name, leaving.name))
            .within(180)
            .needs(remove.map(|remove| remove.id.clone()))
            .once(why(site, leaving))
            .destroys(2)
    })
}
