//! The order between steps.

use std::collections::HashSet;

use crate::output::{Plan, Step};
use crate::step_id::StepId;

/// Neighbours in a list of steps of which the second does not need the first.
pub(super) fn unordered<'a>(
    plan: &'a Plan,
    steps: &'a [&'a Step],
) -> impl Iterator<Item = (&'a Step, &'a Step)> {
    let pairs = steps.windows(2).map(|pair| (pair[0], pair[1]));
    pairs.filter(|(first, second)| !reaches(plan, second, &first.id))
}

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
