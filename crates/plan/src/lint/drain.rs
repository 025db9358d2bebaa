//! A leaving node is drained, then removed, and then its host is reset.

use kubeon_wire::Op;

use super::finding::LintFinding;
use super::needs::reaches;
use crate::input::Snapshot;
use crate::output::{Plan, Step};

pub(super) fn check(plan: &Plan, _: &Snapshot) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    for removal in &plan.steps {
        let Op::RemoveNode { node } = &removal.op else { continue };
        let drains = |step: &&Step| matches!(&step.op, Op::Drain { node: drained } if drained == node);
        if let Some(drain) = plan.steps.iter().find(drains)
            && !reaches(plan, removal, &drain.id)
        {
            findings
                .push(LintFinding::fatal("drain", format!("{} does not wait for {}", removal.id, drain.id)));
        }
        let host = plan.hosts.iter().find(|(_, host)| host.name == *node).map(|(address, _)| *address);
        let resets = |step: &&Step| matches!(step.op, Op::Reset { .. }) && Some(step.host) == host;
        if let Some(reset) = plan.steps.iter().find(resets)
            && !reaches(plan, reset, &removal.id)
        {
            findings
                .push(LintFinding::fatal("drain", format!("{} does not wait for {}", reset.id, removal.id)));
        }
    }
    findings
}
