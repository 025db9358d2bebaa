//! Which lane is next: each at most once at a time, each at most once in the queue.
//!
//! ```text
//!   a Job ended ─────────► Urgent ──┐
//!   anything else ───────► Fresh  ──┼──► workers; some take urgent lanes only
//!   what can be told later ► Rest ──┘    (those that rested for 5 s go beside fresh ones, four at a time)
//! ```

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use kubeon_operations::Lane;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// After the first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// After many of them.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A lane that rested for so long goes before fresh ones,
const LONGEST_REST: Duration = Duration::from_secs(5);
/// as long as no more of its kind are worked on.
const MOST_RESTED: usize = 4;

/// How soon a lane is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Somebody waits for its end.
    Urgent,
    /// Something changed.
    Fresh,
    /// What is left to write can wait for others.
    Rest,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing is left to do, before that moment if one is given.
    Done(Option<Instant>),
    /// What mattered is done; the rest is for later.
    Rest,
    /// Something failed that may do better after a while.
    Failed,
}

/// A lane to work on.
pub(crate) struct Work {
    pub lane: Lane,
    pub class: Class,
    /// Cancelled when somebody begins to wait for the lane's end meanwhile.
    pub overtaken: CancellationToken,
}

/// One that is worked on.
struct Worked {
    class: Class,
    /// How soon it was wanted again meanwhile.
    again: Option<Class>,
    overtaken: CancellationToken,
}

#[derive(Default)]
struct State {
    urgent: VecDeque<Lane>,
    fresh: VecDeque<Lane>,
    rest: VecDeque<(Instant, Lane)>,
    /// Lanes in one of the three; an entry there that is of another class is an old one.
    waiting: HashMap<Lane, Class>,
    working: HashMap<Lane, Worked>,
    /// How many of those rested.
    rested: usize,
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
    hurried: Notify,
    ended: Notify,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Lets workers take lanes.
    pub fn open(&self) {
        self.state().open = true;
        self.changed.notify_waiters();
        self.hurried.notify_waiters();
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
    pub fn wake(&self, lane: &Lane, class: Class) {
        let mut state = self.state();
        if let Some(worked) = state.working.get_mut(lane) {
            worked.again = Some(worked.again.map_or(class, |before| before.min(class)));
            if class == Class::Urgent {
                worked.overtaken.cancel();
            }
            return;
        }
        if state.push(lane, class) {
            drop(state);
            self.tell(class);
        }
    }

    fn tell(&self, class: Class) {
        self.changed.notify_one();
        if class == Class::Urgent {
            self.hurried.notify_one();
        }
    }

    /// The next lane that is wanted at least as soon as `least`. Waits until there is one.
    pub async fn next(&self, least: Class) -> Work {
        loop {
            let changed = if least == Class::Urgent { &self.hurried } else { &self.changed };
            let changed = changed.notified();
            let pause = {
                let mut state = self.state();
                state.overdue();
                if state.open
                    && let Some((lane, class)) = state.take(least)
                {
                    let work = state.begin(lane, class);
                    if !state.waiting.is_empty() {
                        self.changed.notify_one();
                    }
                    if !state.urgent.is_empty() {
                        self.hurried.notify_one();
                    }
                    return work;
                }
                state.later.first().filter(|_| state.open && least != Class::Urgent).map(|(when, _)| *when)
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
        let worked = state.working.remove(lane);
        let again = worked.as_ref().and_then(|worked| worked.again);
        state.rested -= usize::from(worked.is_some_and(|worked| worked.class == Class::Rest));
        self.ended.notify_one();
        let (class, when) = match outcome {
            Outcome::Done(when) => (again, when),
            // A change that is seen meanwhile is mostly the turn's own.
            Outcome::Rest if again == Some(Class::Urgent) => (again, None),
            Outcome::Rest => (Some(Class::Rest), None),
            Outcome::Failed => {
                let count = state.failures.entry(lane.clone()).or_default();
                *count = count.saturating_add(1);
                (None, Some(Instant::now() + pause(*count, lane)))
            }
        };
        if outcome != Outcome::Failed {
            state.failures.remove(lane);
        }
        if let Some(class) = class {
            state.push(lane, class);
            drop(state);
            self.tell(class);
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
        (state.waiting.len(), state.working.len())
    }
}

impl State {
    /// Puts a lane into the queue; false when it is there already and wanted no sooner.
    fn push(&mut self, lane: &Lane, class: Class) -> bool {
        let waits = self.waiting.get(lane).copied();
        // One that rests is not made fresh by the changes that it made itself.
        if waits.is_some_and(|before| before <= class || class != Class::Urgent) {
            return false;
        }
        self.waiting.insert(lane.clone(), class);
        match class {
            Class::Urgent => self.urgent.push_back(lane.clone()),
            Class::Fresh => self.fresh.push_back(lane.clone()),
            Class::Rest => self.rest.push_back((Instant::now(), lane.clone())),
        }
        true
    }

    fn begin(&mut self, lane: Lane, class: Class) -> Work {
        self.unschedule(&lane);
        let overtaken = CancellationToken::new();
        let worked = Worked { class, again: None, overtaken: overtaken.clone() };
        self.working.insert(lane.clone(), worked);
        self.rested += usize::from(class == Class::Rest);
        Work { lane, class, overtaken }
    }

    fn take(&mut self, least: Class) -> Option<(Lane, Class)> {
        let long = |(since, _): &(Instant, Lane)| since.elapsed() >= LONGEST_REST;
        let rested = self.rested < MOST_RESTED && self.rest.front().is_some_and(long);
        let order = match (least, rested) {
            (Class::Urgent, _) => &[Class::Urgent][..],
            (_, false) => &[Class::Urgent, Class::Fresh, Class::Rest],
            (_, true) => &[Class::Urgent, Class::Rest, Class::Fresh],
        };
        order.iter().find_map(|class| Some((self.pop(*class)?, *class)))
    }

    fn pop(&mut self, class: Class) -> Option<Lane> {
        loop {
            let lane = match class {
                Class::Urgent => self.urgent.pop_front()?,
                Class::Fresh => self.fresh.pop_front()?,
                Class::Rest => self.rest.pop_front()?.1,
            };
            if self.waiting.get(&lane) == Some(&class) {
                self.waiting.remove(&lane);
                return Some(lane);
            }
        }
    }

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
            if !self.working.contains_key(&lane) {
                self.push(&lane, Class::Fresh);
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

    async fn next(queue: &Queue) -> String {
        queue.next(Class::Rest).await.lane.to_string()
    }

    #[tokio::test]
    async fn a_lane_is_worked_on_once_at_a_time_and_again_when_woken_meanwhile() {
        let queue = Queue::default();
        queue.open();
        queue.wake(&lane("a"), Class::Fresh);
        queue.wake(&lane("a"), Class::Fresh);
        assert_eq!(next(&queue).await, "cluster/a");
        assert_eq!(queue.load(), (0, 1));
        queue.wake(&lane("a"), Class::Fresh);
        assert_eq!(queue.load(), (0, 1), "not beside itself");
        queue.done(&lane("a"), Outcome::Done(None));
        assert_eq!(next(&queue).await, "cluster/a");
        queue.done(&lane("a"), Outcome::Done(None));
        assert_eq!(queue.load(), (0, 0));
    }

    #[tokio::test]
    async fn what_ended_goes_first_and_what_rests_last() {
        let queue = Queue::default();
        for name in ["rests", "fresh", "ends"] {
            queue.wake(&lane(name), Class::Fresh);
        }
        queue.open();
        assert_eq!(next(&queue).await, "cluster/rests");
        queue.done(&lane("rests"), Outcome::Rest);
        queue.wake(&lane("rests"), Class::Fresh);
        queue.wake(&lane("ends"), Class::Urgent);
        let order = [next(&queue).await, next(&queue).await, next(&queue).await];
        assert_eq!(order, ["cluster/ends", "cluster/fresh", "cluster/rests"]);
        assert_eq!(queue.load(), (0, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn what_rested_long_goes_before_what_is_fresh() {
        let queue = Queue::default();
        queue.open();
        queue.wake(&lane("rests"), Class::Fresh);
        next(&queue).await;
        queue.done(&lane("rests"), Outcome::Rest);
        tokio::time::advance(LONGEST_REST).await;
        queue.wake(&lane("fresh"), Class::Fresh);
        assert_eq!([next(&queue).await, next(&queue).await], ["cluster/rests", "cluster/fresh"]);
    }

    #[tokio::test]
    async fn workers_for_urgent_lanes_take_no_other() {
        let queue = Queue::default();
        queue.open();
        queue.wake(&lane("fresh"), Class::Fresh);
        let waits = tokio::time::timeout(Duration::from_millis(20), queue.next(Class::Urgent));
        assert!(waits.await.is_err());
        let work = queue.next(Class::Rest).await;
        queue.wake(&lane("fresh"), Class::Fresh);
        assert!(!work.overtaken.is_cancelled(), "nobody waits for it");
        // Woken while it is worked on: it is wanted at once afterwards, and whoever works on it knows.
        queue.wake(&lane("fresh"), Class::Urgent);
        assert!(work.overtaken.is_cancelled());
        queue.done(&lane("fresh"), Outcome::Rest);
        let work = queue.next(Class::Urgent).await;
        assert_eq!((work.lane, work.class), (lane("fresh"), Class::Urgent));
        assert!(!work.overtaken.is_cancelled());
    }

    #[tokio::test]
    async fn a_lane_comes_back_when_it_is_due() {
        let queue = Queue::default();
        queue.open();
        queue.wake(&lane("a"), Class::Fresh);
        next(&queue).await;
        queue.done(&lane("a"), Outcome::Failed);
        let due = Instant::now() + Duration::from_millis(200);
        next(&queue).await;
        queue.done(&lane("a"), Outcome::Done(Some(due)));
        next(&queue).await;
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
