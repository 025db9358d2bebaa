//! Recognizes progress while a step waits for a condition.

use std::collections::BTreeSet;

use crate::job::Job;

/// The states of a condition while a step waits for it. A state that was not seen before is progress; a return
/// to an earlier one is not, so that a condition that alternates between two states times out.
#[derive(Default)]
pub(super) struct SeenStates {
    seen: BTreeSet<String>,
}

impl SeenStates {
    /// Starts the time limit of the step again if the state is new.
    pub(super) fn observe(&mut self, job: &Job<'_>, state: &str) {
        if self.is_new(state) {
            job.progressed();
        }
    }

    fn is_new(&mut self, state: &str) -> bool {
        let first = self.seen.is_empty();
        self.seen.insert(state.to_owned()) && !first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_to_an_earlier_state_is_not_progress() {
        let mut progress = SeenStates::default();
        let states = ["absent", "absent", "starting", "absent", "starting", "ready"];
        let new = states.map(|state| progress.is_new(state));
        assert_eq!(new, [false, false, true, false, false, true]);
    }
}
