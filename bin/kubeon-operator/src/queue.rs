//! Which lane is next: each at most once at a time, each at most once in the queue.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kubeon_operations::Lane;
use tokio::sync::Notify;
use tokio::time::Instant;

/// After the first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// After many of them.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing is left to do, before that moment if one is given.
    Done(Option<Instant>),
    /// Something failed that may do better after a while.
    Failed,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Lane>,
    waiting: HashSet<Lane>,
    /// Lanes that are worked on, and whether they were woken meanwhile.
    working: HashMap<Lane, bool>,
    later: BTreeSet<(Instant, Lane)>,
    due: HashMap<Lane, Instant>,
    failures: HashMap<Lane, u32>,
    open: bool,
}

/// Lanes that have something to do.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Notify,
    ended: Notify,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds it can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets workers take lanes.
    pub fn open(&self) {
        self.state().open = true;
        self.changed.notify_waiters();
    }

    /// Lets no worker take another lane, and waits until none is worked on.
    pub async fn close(&self) {
        self.state().open = false;
        loop {
            let ended = self.ended.notified();
            if self.load().1 == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Something of the lane changed.
    pub fn wake(&self, lane: &Lane) {
        let mut state = self.state();
        if let Some(again) = state.working.get_mut(lane) {
            *again = true;
            return;
        }
        if state.waiting.insert(lane.clone()) {
            state.ready.push_back(lane.clone());
            drop(state);
            self.changed.notify_one();
        }
    }

    /// The next lane. Waits until there is one.
    pub async fn next(&self) -> Lane {
        loop {
            let changed = self.changed.notified();
            let pause = {
                let mut state = self.state();
                state.overdue();
                if state.open
                    && let Some(lane) = state.ready.pop_front()
                {
                    state.waiting.remove(&lane);
                    state.unschedule(&lane);
                    state.working.insert(lane.clone(), false);
                    if !state.ready.is_empty() {
                        self.changed.notify_one();
                    }
                    return lane;
                }
                state.later.first().filter(|_| state.open).map(|(when, _)| *when)
            };
            match pause {
                Some(when) => {
                    tokio::select! { () = changed => {} () = tokio::time::sleep_until(when) => {} }
                }
                None => changed.await,
            }
        }
    }

    /// A lane's turn ended.
    pub fn done(&self, lane: &Lane, outcome: Outcome) {
        let mut state = self.state();
        let again = state.working.remove(lane).unwrap_or_default();
        self.ended.notify_one();
        let when = match outcome {
            Outcome::Done(when) => {
                state.failures.remove(lane);
                when
            }
            Outcome::Failed => {
                let count = state.failures.entry(lane.clone()).or_default();
                *count = count.saturating_add(1);
                Some(Instant::now() + pause(*count, lane))
            }
        };
        if again && outcome != Outcome::Failed {
            drop(state);
            self.wake(lane);
            return;
        }
        if let Some(when) = when {
            state.schedule(lane, when);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Lanes that are ready or worked on.
    pub fn load(&self) -> (usize, usize) {
        let state = self.state();
        (state.ready.len(), state.working.len())
    }
}

impl State {
    fn schedule(&mut self, lane: &Lane, when: Instant) {
        self.unschedule(lane);
        self.due.insert(lane.clone(), when);
        self.later.insert((when, lane.clone()));
    }

    fn unschedule(&mut self, lane: &Lane) {
        if let Some(when) = self.due.remove(lane) {
            self.later.remove(&(when, lane.clone()));
        }
    }

    fn overdue(&mut self) {
        let now = Instant::now();
        while self.later.first().is_some_and(|(when, _)| *when <= now) {
            let Some((_, lane)) = self.later.pop_first() else { break };
            self.due.remove(&lane);
            if !self.working.contains_key(&lane) && self.waiting.insert(lane.clone()) {
                self.ready.push_back(lane);
            }
        }
    }
}

/// Twice as long each time, spread so that lanes that failed together do not come back together.
fn pause(failures: u32, lane: &Lane) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1).min(12)));
    let spread: u32 = lane.to_string().bytes().map(u32::from).sum::<u32>() % 32;
    doubled.min(LONGEST_PAUSE) + doubled.min(LONGEST_PAUSE) * spread / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(name: &str) -> Lane {
        Lane::Cluster(name.to_owned())
    }

    #[tokio::test]
    async fn a_lane_is_worked_on_once_at_a_time_and_again_when_woken_meanwhile() {
        let queue = Queue::default();
        queue.open();
        queue.wake(&lane("a"));
        queue.wake(&lane("a"));
        assert_eq!(queue.next().await, lane("a"));
        assert_eq!(queue.load(), (0, 1));
        queue.wake(&lane("a"));
        assert_eq!(queue.load(), (0, 1), "not beside itself");
        queue.done(&lane("a"), Outcome::Done(None));
        assert_eq!(queue.next().await, lane("a"));
        queue.done(&lane("a"), Outcome::Done(None));
        assert_eq!(queue.load(), (0, 0));
    }

    #[tokio::test]
    async fn a_lane_comes_back_when_it_is_due() {
        let queue = Queue::default();
        queue.open();
        queue.wake(&lane("a"));
        queue.next().await;
        queue.done(&lane("a"), Outcome::Failed);
        let due = Instant::now() + Duration::from_millis(200);
        queue.next().await;
        queue.done(&lane("a"), Outcome::Done(Some(due)));
        queue.next().await;
        assert!(Instant::now() >= due);
    }

    #[test]
    fn each_failure_makes_the_pause_longer_up_to_a_bound() {
        let a = lane("a");
        let pauses: Vec<_> = (1..40).map(|failures| pause(failures, &a)).collect();
        assert!(pauses.is_sorted() && pauses[0] < pauses[5]);
        assert!(pauses[38] < LONGEST_PAUSE * 2);
    }
}
