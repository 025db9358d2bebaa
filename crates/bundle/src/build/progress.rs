//! Progress events of a build.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A progress event of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildProgress {
    /// The component's name; `bundle` for the last step, which assembles the layout.
    pub component: String,
    /// Its state.
    pub state: BuildState,
    /// Time since its first event after `Queued`.
    pub elapsed: Duration,
    /// Seconds of a cold build on two cores; 0 when unknown.
    pub expected_seconds: u32,
}

/// The state of a component. `Cached`, `Done` and `Failed` are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildState {
    /// It has not started.
    Queued,
    /// Another process builds the same component.
    Waiting,
    /// Sources or packages are fetched.
    Fetching,
    /// A published file is downloaded.
    Downloading {
        /// Number of bytes so far.
        done: u64,
        /// Total number of bytes; 0 when unknown.
        total: u64,
    },
    /// It is compiled or unpacked.
    Building {
        /// Number of finished packages.
        done: usize,
        /// Total number of packages.
        total: usize,
    },
    /// All packages are compiled and the programs are linked. The linker reports no progress.
    Linking,
    /// Blobs are written.
    Packing,
    /// It was in the cache.
    Cached,
    /// It was built.
    Done,
    /// It could not be built. [`build`](crate::build) returns the reason when the other thread has finished its component.
    Failed,
}

impl BuildProgress {
    /// Estimated seconds left: from the speed so far when a tenth is done, before that from `expected_seconds`. `None`
    /// when there is no estimate.
    #[must_use]
    pub fn seconds_left(&self) -> Option<u64> {
        let elapsed = self.elapsed.as_secs();
        match self.state {
            BuildState::Cached | BuildState::Done | BuildState::Failed => Some(0),
            BuildState::Building { done, total } if done * 10 >= total && done > 0 => {
                let rest = self.elapsed.as_secs_f64() / done as f64 * total.saturating_sub(done) as f64;
                Some(rest.ceil() as u64)
            }
            BuildState::Downloading { done, total } if done > 0 && total >= done => {
                let rest = self.elapsed.as_secs_f64() / done as f64 * (total - done) as f64;
                Some(rest.ceil() as u64)
            }
            BuildState::Linking | BuildState::Downloading { .. } => None,
            _ if self.expected_seconds == 0 => None,
            _ => Some(u64::from(self.expected_seconds).saturating_sub(elapsed)),
        }
    }
}

/// Adds the elapsed time to progress events.
pub(crate) struct Reporter<'a> {
    report: &'a (dyn Fn(BuildProgress) + Sync),
    started: Mutex<BTreeMap<String, Instant>>,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(report: &'a (dyn Fn(BuildProgress) + Sync)) -> Self {
        Self { report, started: Mutex::default() }
    }

    pub(crate) fn report(&self, component: &str, expected_seconds: u32, state: BuildState) {
        let elapsed = if state == BuildState::Queued {
            Duration::ZERO
        } else {
            let mut started = self.started.lock();
            started.entry(component.to_owned()).or_insert_with(Instant::now).elapsed()
        };
        (self.report)(BuildProgress { component: component.to_owned(), state, elapsed, expected_seconds });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64, state: BuildState) -> Option<u64> {
        let elapsed = Duration::from_secs(seconds);
        BuildProgress { component: "etcd".into(), state, elapsed, expected_seconds: 40 }.seconds_left()
    }

    #[test]
    fn uses_the_measured_speed_when_there_is_one() {
        assert_eq!(after(10, BuildState::Building { done: 1, total: 100 }), Some(30));
        assert_eq!(after(10, BuildState::Building { done: 50, total: 100 }), Some(10));
        assert_eq!(after(90, BuildState::Packing), Some(0));
    }
}
