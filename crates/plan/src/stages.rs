//! The desired steps of all stages, computed on several threads if there are many hosts.

use std::panic::resume_unwind;
use std::thread;

use crate::context::PlanContext;
use crate::desired::step::DesiredStep;
pub use crate::desired::{STAGES, stage::Stage};
use crate::sort;

/// Starting a thread takes longer than the work for fewer hosts.
pub(crate) const HOSTS_WORTH_THREADS: usize = 32;

/// The steps of all stages, each after those that it needs, whether the hosts need them or not.
pub(crate) fn desired_steps(context: &PlanContext<'_>) -> Vec<DesiredStep> {
    let steps_of = |stage: &Stage| {
        let mut steps = Vec::new();
        (stage.steps)(context, &mut steps);
        steps
    };
    let steps: Vec<DesiredStep> = if context.hosts.len() < HOSTS_WORTH_THREADS {
        STAGES.iter().flat_map(steps_of).collect()
    } else {
        in_parallel(STAGES.iter().map(|stage| move || steps_of(stage)))
    };
    // The kubelet that runs a static pod is of a later stage than the pod.
    if context.runs_static_pods() { sort::by_needs(steps) } else { steps }
}

/// Runs every task on its own thread and concatenates the results in the order of the tasks. A single task needs no thread.
#[allow(
    clippy::disallowed_methods,
    reason = "the threads end here and share nothing: the result does not depend on them"
)]
pub(crate) fn in_parallel<T: Send>(tasks: impl Iterator<Item = impl FnOnce() -> Vec<T> + Send>) -> Vec<T> {
    let mut tasks = tasks.peekable();
    let Some(first) = tasks.next() else { return Vec::new() };
    if tasks.peek().is_none() {
        return first();
    }
    thread::scope(|scope| {
        let threads: Vec<_> = std::iter::once(first).chain(tasks).map(|task| scope.spawn(task)).collect();
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
