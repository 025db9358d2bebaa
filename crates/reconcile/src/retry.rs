//! Decides whether to retry an apply, and whether the new plan may replace the last outcome.

use kubeon_plan::{Outcome, Plan, StepOutcome};

/// Whether another attempt may succeed: a step changed something, and all failures are temporary.
pub(crate) fn retry_may_help(outcome: &Outcome) -> bool {
    let progress = outcome.steps.values().any(|step| matches!(step, StepOutcome::Done { changed: true, .. }));
    let permanent = outcome
        .steps
        .values()
        .any(|step| matches!(step, StepOutcome::Failed { failure } if !failure.category.retryable()));
    progress && !permanent
}

/// Whether the plan repeats every failed step. If a failed check is not repeated, nothing proves that it
/// succeeds now; applying such a plan would report a success.
pub(crate) fn repeats_failures(plan: &Plan, outcome: &Outcome) -> bool {
    let mut failed = outcome.steps.iter().filter(|(_, result)| matches!(result, StepOutcome::Failed { .. }));
    failed.all(|(id, _)| plan.steps.iter().any(|step| step.id == *id))
}
