//! The hooks that a caller of the loop runs around each apply.

use kubeon_apply::{RunEvent, RunObserver};
use kubeon_plan::{Outcome, Plan};

use crate::planned::{Planned, ReconcileError};

/// The hooks of a caller of [`crate::Reconciler::until_settled`]: they persist and display each apply.
pub trait ReconcileHooks {
    /// The reason why an apply must not begin, or why the plan that must follow is refused.
    type Error: From<ReconcileError>;

    /// Called with each plan before it is applied. The apply begins when it returns. It must persist the
    /// generation of the plan, because hosts then refuse lower generations. `attempt` counts the
    /// applies from 1.
    ///
    /// # Errors
    /// When the plan must not be applied; the loop then ends with this error.
    fn before_apply(
        &mut self,
        planned: &Planned,
        attempt: u8,
    ) -> impl Future<Output = Result<(), Self::Error>>;

    /// Returns the observer of the next apply. The observer is dropped when the apply ends.
    fn observer(&mut self, plan: &Plan) -> Box<dyn RunObserver>;

    /// Called when an apply was incomplete, before the loop observes and plans again.
    fn before_retry(&mut self, outcome: &Outcome) {
        let _ = outcome;
    }

    /// Called when the plan of a retry is refused. The loop then returns the outcome of the last apply.
    fn retry_refused(&mut self, error: &ReconcileError) {
        let _ = error;
    }
}

/// Hooks that do nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl ReconcileHooks for Silent {
    type Error = ReconcileError;

    async fn before_apply(&mut self, _: &Planned, _: u8) -> Result<(), ReconcileError> {
        Ok(())
    }

    fn observer(&mut self, _: &Plan) -> Box<dyn RunObserver> {
        Box::new(|_: RunEvent| {})
    }
}
