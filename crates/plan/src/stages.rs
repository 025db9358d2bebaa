//! The desired steps of all stages, computed on several threads if there are many hosts.

use std::panic::resume_unwind;
use std::thread;

use crate::context::PlanContext;
use crate::desired::step::DesiredStep;
pub use crate::desired::{STAGES, stage::Stage};
use crate::sort;

/// Starting a thread takes longer than the work for fewer hosts.
pub(crate) const HOSTS_WORTH_THREADS: usize = 32;

/// The steps that a stage usually has at most on one host: room for them is reserved, as to copy them takes long.
const MOST_STEPS_PER_HOST: usize = 14;

/// The steps of all stages, each after those that it needs, whether the hosts need them or not.
pub(crate) fn desired_steps(context: &PlanContext<'_>) -> Vec<DesiredStep> {
    let steps_of = |stage: &Stage| {
        let mut steps = Vec::with_capacity(context.hosts.len() * MOST_STEPS_PER_HOST);
        (stage.steps)(context, &mut steps);
        steps
    };
    let steps: Vec<DesiredStep> = if context.hosts.len() < HOSTS_WORTH_THREADS {
        concat(STAGES.iter().map(steps_of).collect())
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
        let joined = threads.into_iter().map(|thread| thread.join());
        concat(joined.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect())
    })
}

/// All items in one allocation: a vector that grows would copy those of a large cluster several times.
fn concat<T>(parts: Vec<Vec<T>>) -> Vec<T> {
    let mut all = Vec::with_capacity(parts.iter().map(Vec::len).sum());
    parts.into_iter().for_each(|mut part| all.append(&mut part));
    all
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
