//! No step runs on a host that was not observed. No node is removed without a drain unless the
//! cluster reported that it is not Ready or does not exist, or a step before waits for that report.

use kubeon_wire::{Check, Op};

use super::finding::LintFinding;
use super::needs::reaches;
use crate::input::{Observation, Snapshot};
use crate::output::{Plan, Step};

pub(super) fn check(plan: &Plan, snapshot: &Snapshot) -> Vec<LintFinding> {
    let steps = plan.steps.iter();
    steps
        .filter_map(|step| unobserved(step, snapshot).or_else(|| removed_without_drain(step, plan, snapshot)))
        .collect()
}

fn unobserved(step: &Step, snapshot: &Snapshot) -> Option<LintFinding> {
    let observed = snapshot.hosts.get(&step.host).and_then(Observation::fresh).is_some();
    (!observed).then(|| {
        LintFinding::fatal("unknown", format!("{} runs on {}, which was not observed", step.id, step.host))
    })
}

/// A node may be removed without a drain only if the cluster reported that it is not Ready or does not exist.
fn removed_without_drain(removal: &Step, plan: &Plan, snapshot: &Snapshot) -> Option<LintFinding> {
    let Op::RemoveNode { node } = &removal.op else { return None };
    let drains = |step: &Step| match &step.op {
        Op::Drain { node: drained } => drained == node,
        Op::Await { checks } => {
            let lost = Check::NodeNotReady { node: node.clone() };
            checks.contains(&lost) && reaches(plan, removal, &step.id)
        }
        _ => false,
    };
    if plan.steps.iter().any(drains) {
        return None;
    }
    let facts = snapshot.hosts.values().filter_map(Observation::fresh);
    let ready: Vec<bool> = facts
        .filter_map(|facts| facts.cluster.as_ref().filter(|cluster| cluster.api_ready)?.nodes.as_ref())
        .map(|nodes| nodes.get(node.as_str()).is_some_and(|node| node.ready))
        .collect();
    let text = match ready.as_slice() {
        [] => format!(
            "{} removes {node} without a drain, and no API server reported whether the node is Ready",
            removal.id
        ),
        all if all.iter().all(|ready| *ready) => {
            format!("{} removes {node} without a drain, although it is Ready", removal.id)
        }
        _ => return None,
    };
    Some(LintFinding::fatal("unknown", text))
}
