//! What a build tells while it runs, so that somebody else can draw it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// One piece of news.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The component's name; `bundle` for the last step, which puts the layout together.
    pub component: String,
    /// What happens to it.
    pub state: State,
    /// Since its first news that was not `Queued`.
    pub elapsed: Duration,
    /// A cold build takes about this long on two cores; 0 when unknown.
    pub expected_seconds: u32,
}

/// What happens to a component. `Cached`, `Done` and `Failed` are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its turn has not come.
    Queued,
    /// Another process is making the same thing.
    Waiting,
    /// Sources or packages are fetched.
    Fetching,
    /// It is compiled or unpacked.
    Building {
        /// Packages finished.
        done: usize,
        /// Packages in all.
        total: usize,
    },
    /// Everything is compiled and the programs are put together, which tells nothing of itself.
    Linking,
    /// Blobs are written.
    Packing,
    /// It was in the cache.
    Cached,
    /// It was made.
    Done,
    /// It could not be made. The reason is the build's result, once the other lane has finished what it is at.
    Failed,
}

impl Progress {
    /// Seconds left, from the pace so far once a tenth is done, before that from the expectation. `None` when neither
    /// says anything.
    #[must_use]
    pub fn seconds_left(&self) -> Option<u64> {
        let elapsed = self.elapsed.as_secs();
        match self.state {
            State::Cached | State::Done | State::Failed => Some(0),
            State::Building { done, total } if done * 10 >= total && done > 0 => {
                let rest = self.elapsed.as_secs_f64() / done as f64 * total.saturating_sub(done) as f64;
                Some(rest.ceil() as u64)
            }
            State::Linking => None,
            _ if self.expected_seconds == 0 => None,
            _ => Some(u64::from(self.expected_seconds).saturating_sub(elapsed)),
        }
    }
}

/// Adds the times.
pub(crate) struct Reporter<'a> {
    report: &'a (dyn Fn(Progress) + Sync),
    started: Mutex<BTreeMap<String, Instant>>,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(report: &'a (dyn Fn(Progress) + Sync)) -> Self {
        Self { report, started: Mutex::default() }
    }

    pub(crate) fn say(&self, component: &str, expected_seconds: u32, state: State) {
        let elapsed = if state == State::Queued {
            Duration::ZERO
        } else {
            let mut started = self.started.lock();
            started.entry(component.to_owned()).or_insert_with(Instant::now).elapsed()
        };
        (self.report)(Progress { component: component.to_owned(), state, elapsed, expected_seconds });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64, state: State) -> Option<u64> {
        let elapsed = Duration::from_secs(seconds);
        Progress { component: "etcd".into(), state, elapsed, expected_seconds: 40 }.seconds_left()
    }

    #[test]
    fn trusts_the_pace_once_there_is_one() {
        assert_eq!(after(10, State::Building { done: 1, total: 100 }), Some(30));
        assert_eq!(after(10, State::Building { done: 50, total: 100 }), Some(10));
        assert_eq!(after(90, State::Packing), Some(0));
    }
}
