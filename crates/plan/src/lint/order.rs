//! A step comes after every step that it needs, and no two steps have the same identity.

use std::collections::HashSet;

use super::finding::LintFinding;
use crate::input::Snapshot;
use crate::output::Plan;
use crate::step_id::StepId;

pub(super) fn check(plan: &Plan, _: &Snapshot) -> Vec<LintFinding> {
    let mut before: HashSet<&StepId> = HashSet::with_capacity(plan.steps.len());
    let mut findings = Vec::new();
    for step in &plan.steps {
        for need in step.needs.iter().filter(|need| !before.contains(need)) {
            findings.push(LintFinding::fatal(
                "order",
                format!("{} needs {need}, which does not come before it", step.id),
            ));
        }
        if !before.insert(&step.id) {
            findings.push(LintFinding::fatal("order", format!("{} is in the plan twice", step.id)));
        }
        if !plan.hosts.contains_key(&step.host) {
            findings.push(LintFinding::fatal(
                "order",
                format!("{} is on {}, which is not in the plan", step.id, step.host),
            ));
        }
    }
    findings
}
