//! The desired steps of all stages, computed on several threads.

use std::panic::resume_unwind;
use std::thread;

use crate::context::PlanContext;
use crate::desired::step::DesiredStep;
pub use crate::desired::{STAGES, stage::Stage};

/// The steps of all stages, in order, whether the hosts need them or not.
pub(crate) fn desired_steps(context: &PlanContext<'_>) -> Vec<DesiredStep> {
    in_parallel(STAGES.iter().map(|stage| {
        move || {
            let mut steps = Vec::new();
            (stage.steps)(context, &mut steps);
            steps
        }
    }))
}

/// Runs every task on its own thread and concatenates the results in the order of the tasks.
#[allow(
    clippy::disallowed_methods,
    reason = "the threads end here and share nothing: the result does not depend on them"
)]
pub(crate) fn in_parallel<T: Send>(tasks: impl Iterator<Item = impl FnOnce() -> Vec<T> + Send>) -> Vec<T> {
    thread::scope(|scope| {
        let threads: Vec<_> = tasks.map(|task| scope.spawn(task)).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn stage_names_are_distinct() {
        let names: BTreeSet<_> = STAGES.iter().map(|stage| stage.name.as_str()).collect();
        assert_eq!(names.len(), STAGES.len());
        let mut names = names.into_iter().peekable();
        while let (Some(name), Some(next)) = (names.next(), names.peek()) {
            assert!(!next.starts_with(name), "the order of step ids needs it: {name}, {next}");
        }
    }
}
