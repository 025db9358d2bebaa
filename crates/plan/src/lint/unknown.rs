//! What was not seen is not known to be absent: no destructive step goes to a host that was not seen, and no node is
//! taken out as it is while nobody told that it is dead.

use kubeon_wire::Op;

use super::Finding;
use crate::input::{Seen, Snapshot};
use crate::output::{Plan, Step};

pub(super) fn check(plan: &Plan, snapshot: &Snapshot) -> Vec<Finding> {
    let destructive = plan.steps.iter().filter(|step| step.destructive);
    destructive.filter_map(|step| unseen(step, snapshot).or_else(|| untold(step, plan, snapshot))).collect()
}

fn unseen(step: &Step, snapshot: &Snapshot) -> Option<Finding> {
    let seen = snapshot.hosts.get(&step.host).and_then(Seen::fresh).is_some();
    (!seen).then(|| {
        Finding::fatal("unknown", format!("{} destroys on {}, which was not seen", step.id, step.host))
    })
}

/// A node may go without being emptied only where the cluster told that it is not there, or not Ready.
fn untold(step: &Step, plan: &Plan, snapshot: &Snapshot) -> Option<Finding> {
    let Op::RemoveNode { node, .. } = &step.op else { return None };
    let drains = |step: &Step| matches!(&step.op, Op::Drain { node: drained } if drained == node);
    if plan.steps.iter().any(drains) {
        return None;
    }
    let facts = snapshot.hosts.values().filter_map(Seen::fresh);
    let told: Vec<bool> = facts
        .filter_map(|facts| facts.cluster.as_ref().filter(|seen| seen.api_ready)?.nodes.as_ref())
        .map(|nodes| nodes.get(node.as_str()).is_some_and(|node| node.ready))
        .collect();
    let text = match told.as_slice() {
        [] => format!("{} takes {node} out with its pods, and nobody told whether it works", step.id),
        told if told.iter().all(|ready| *ready) => {
            format!("{} takes {node} out with its pods, although it is Ready", step.id)
        }
        _ => return None,
    };
    Some(Finding::fatal("unknown", text))
}
