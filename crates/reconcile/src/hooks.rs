//! What a caller of the loop does around each apply.

use std::convert::Infallible;

use kubeon_apply::{RunEvent, RunObserver};
use kubeon_plan::{Outcome, Plan};

use crate::planned::{Planned, ReconcileError};

/// What a caller of [`crate::Reconciler::until_settled`] does around each apply: persist, announce, display.
pub trait ReconcileHooks {
    /// Why an apply must not begin.
    type Error;

    /// Is called with each plan before it is applied, and returns when the first effect may happen. It must
    /// persist the plan's generation: hosts refuse a lower one from then on. `attempt` counts from 1.
    ///
    /// # Errors
    /// When the plan must not be applied; the loop then ends with this error.
    fn before_apply(
        &mut self,
        planned: &Planned,
        attempt: u8,
    ) -> impl Future<Output = Result<(), Self::Error>>;

    /// The observer of the apply that begins now. It is dropped when the apply ends.
    fn observer(&mut self, plan: &Plan) -> Box<dyn RunObserver>;

    /// The apply was incomplete, and the loop observes and plans again.
    fn before_retry(&mut self, outcome: &Outcome) {
        let _ = outcome;
    }

    /// The loop was about to try again, and no plan could be made. The outcome of the last apply stays.
    fn retry_refused(&mut self, error: &ReconcileError) {
        let _ = error;
    }
}

/// Persists, announces and displays nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl ReconcileHooks for Silent {
    type Error = Infallible;

    async fn before_apply(&mut self, _: &Planned, _: u8) -> Result<(), Infallible> {
        Ok(())
    }

    fn observer(&mut self, _: &Plan) -> Box<dyn RunObserver> {
        Box::new(|_: RunEvent| {})
    }
}
