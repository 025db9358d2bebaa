//! The failures of a reset.

use kubeon_wire::StepFailure;

/// The causes of the failed removals.
#[derive(Debug, Default)]
pub(super) struct ResetFailures(Vec<String>);

impl ResetFailures {
    /// Returns the value of a success; records the cause of a failure, so that the reset can continue.
    pub(super) fn record<T>(&mut self, outcome: Result<T, StepFailure>) -> Option<T> {
        outcome.map_err(|failure| self.0.push(failure.cause)).ok()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The causes, in the order of the reset.
    pub(super) fn into_causes(self) -> Vec<String> {
        self.0
    }
}
