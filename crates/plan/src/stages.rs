//! The steps of all stages, made on several threads.

use std::panic::resume_unwind;
use std::thread;

use crate::context::PlanContext;
use crate::desired::step::DesiredStep;
pub use crate::desired::{STAGES, stage::Stage};

/// The steps of all stages, in order, whether the hosts need them or not.
pub(crate) fn desired_steps(context: &PlanContext<'_>) -> Vec<DesiredStep> {
    side_by_side(STAGES.iter().map(|stage| {
        move || {
            let mut steps = Vec::new();
            (stage.steps)(context, &mut steps);
            steps
        }
    }))
}

/// Runs every piece of work on a thread of its own and joins the results in the order of the pieces.
#[allow(
    clippy::disallowed_methods,
    reason = "the threads end here and share nothing: the result does not depend on them"
)]
pub(crate) fn side_by_side<T: Send>(work: impl Iterator<Item = impl FnOnce() -> Vec<T> + Send>) -> Vec<T> {
    thread::scope(|scope| {
        let pieces: Vec<_> = work.map(|piece| scope.spawn(piece)).collect();
        pieces
            .into_iter()
            .flat_map(|piece| piece.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stage_names_are_distinct() {
        let mut names: Vec<_> = STAGES.iter().map(|stage| stage.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STAGES.len());
    }
}
