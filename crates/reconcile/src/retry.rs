//! When another attempt is worth making, and when its plan may replace the last outcome.

use kubeon_plan::{Outcome, Plan, StepOutcome};

/// Whether another attempt may complete what this one did not: a step changed something, and every failure
/// is of a kind that may go away by itself.
pub(crate) fn another_may_help(outcome: &Outcome) -> bool {
    let moved = outcome.steps.values().any(|step| matches!(step, StepOutcome::Done { changed: true, .. }));
    let lasting = outcome
        .steps
        .values()
        .any(|step| matches!(step, StepOutcome::Failed { failure } if !failure.category.retryable()));
    moved && !lasting
}

/// Whether the plan repeats every step that failed. A check that failed and is not repeated was not shown to
/// hold since; applying such a plan would report it as a success.
pub(crate) fn covers(plan: &Plan, outcome: &Outcome) -> bool {
    let mut failed = outcome.steps.iter().filter(|(_, result)| matches!(result, StepOutcome::Failed { .. }));
    failed.all(|(id, _)| plan.steps.iter().any(|step| step.id == *id))
}
