//! The order between steps.

use std::collections::HashSet;

use crate::output::{Plan, Step};
use crate::step_id::StepId;

/// Whether `from` needs `target`, directly or through other steps.
pub(super) fn reaches(plan: &Plan, from: &Step, target: &StepId) -> bool {
    let (mut open, mut done) = (vec![from], HashSet::new());
    while let Some(step) = open.pop() {
        for need in &step.needs {
            if need == target {
                return true;
            }
            if done.insert(need) {
                open.extend(plan.steps.iter().find(|other| &other.id == need));
            }
        }
    }
    false
}
