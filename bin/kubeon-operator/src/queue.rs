//! Which lane is next: each at most once at a time, each at most once in the queue.
//!
//! ```text
//!   a Job ended ─────────► Urgent ──┐
//!   anything else ───────► Fresh  ──┼──► workers; some take urgent lanes only
//!   what can be told later ► Rest ──┘    (those that rested for 5 s go beside fresh ones, four at a time)
//! ```

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use kubeon_operations::QueueKey;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The pause after the first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A lane that rested for so long goes before fresh ones,
const LONGEST_REST: Duration = Duration::from_secs(5);
/// as long as no more of its kind are worked on.
const MOST_RESTED: usize = 4;

/// How soon a lane is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Somebody waits for its end.
    Urgent,
    /// Something changed.
    Fresh,
    /// What is left to write can wait for others.
    Rest,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReconcileOutcome {
    /// Nothing is left to do, before that moment if one is given.
    Done(Option<Instant>),
    /// What mattered is done; the rest is for later.
    Rest,
    /// Something failed that may do better after a while.
    Failed,
}

/// A lane to work on.
pub(crate) struct QueueItem {
    pub queue_key: QueueKey,
    pub class: Urgency,
    /// Cancelled when somebody begins to wait for the lane's end meanwhile.
    pub preempted: CancellationToken,
}

/// One that is worked on.
struct InProgress {
    class: Urgency,
    /// How soon it was wanted again meanwhile.
    again: Option<Urgency>,
    preempted: CancellationToken,
}

#[derive(Default)]
struct State {
    urgent: VecDeque<QueueKey>,
    fresh: VecDeque<QueueKey>,
    rest: VecDeque<(Instant, QueueKey)>,
    /// Lanes in one of the three; an entry there that is of another class is an old one.
    waiting: HashMap<QueueKey, Urgency>,
    working: HashMap<QueueKey, InProgress>,
    /// How many of those rested.
    rested: usize,
    later: BTreeSet<(Instant, QueueKey)>,
    due: HashMap<QueueKey, Instant>,
    /// The pauses after further failures.
    failures: HashMap<QueueKey, ExponentialBackoff>,
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
    pub(crate) fn open(&self) {
        self.state().open = true;
        self.changed.notify_waiters();
        self.hurried.notify_waiters();
    }

    /// Lets no worker take another lane, and waits until none is worked on.
    pub(crate) async fn close(&self) {
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
    pub(crate) fn wake(&self, queue_key: &QueueKey, class: Urgency) {
        let mut state = self.state();
        if let Some(worked) = state.working.get_mut(queue_key) {
            worked.again = Some(worked.again.map_or(class, |before| before.min(class)));
            if class == Urgency::Urgent {
                worked.preempted.cancel();
            }
            return;
        }
        if state.push(queue_key, class) {
            drop(state);
            self.tell(class);
        }
    }

    fn tell(&self, class: Urgency) {
        self.changed.notify_one();
        if class == Urgency::Urgent {
            self.hurried.notify_one();
        }
    }

    /// The next lane that is wanted at least as soon as `least`. Waits until there is one.
    pub(crate) async fn next(&self, least: Urgency) -> QueueItem {
        loop {
            let changed = if least == Urgency::Urgent { &self.hurried } else { &self.changed };
            let changed = changed.notified();
            let pause = {
                let mut state = self.state();
                state.overdue();
                if state.open
                    && let Some((queue_key, class)) = state.take(least)
                {
                    let work = state.begin(queue_key, class);
                    if !state.waiting.is_empty() {
                        self.changed.notify_one();
                    }
                    if !state.urgent.is_empty() {
                        self.hurried.notify_one();
                    }
                    return work;
                }
                state.later.first().filter(|_| state.open && least != Urgency::Urgent).map(|(when, _)| *when)
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
    pub(crate) fn done(&self, queue_key: &QueueKey, outcome: ReconcileOutcome) {
        let mut state = self.state();
        let worked = state.working.remove(queue_key);
        let again = worked.as_ref().and_then(|worked| worked.again);
        state.rested -= usize::from(worked.is_some_and(|worked| worked.class == Urgency::Rest));
        self.ended.notify_one();
        let (class, when) = match outcome {
            ReconcileOutcome::Done(when) => (again, when),
            // A change that is seen meanwhile is mostly the turn's own.
            ReconcileOutcome::Rest if again == Some(Urgency::Urgent) => (again, None),
            ReconcileOutcome::Rest => (Some(Urgency::Rest), None),
            ReconcileOutcome::Failed => {
                let pauses = state.failures.entry(queue_key.clone()).or_insert_with(pauses);
                let pause = pauses.next().unwrap_or(LONGEST_PAUSE);
                (None, Some(Instant::now() + spread(pause, queue_key)))
            }
        };
        if outcome != ReconcileOutcome::Failed {
            state.failures.remove(queue_key);
        }
        if let Some(class) = class {
            state.push(queue_key, class);
            drop(state);
            self.tell(class);
            return;
        }
        if let Some(when) = when {
            state.schedule(queue_key, when);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Lanes that are ready or worked on.
    pub(crate) fn load(&self) -> (usize, usize) {
        let state = self.state();
        (state.waiting.len(), state.working.len())
    }
}

impl State {
    /// Puts a lane into the queue; false when it is there already and wanted no sooner.
    fn push(&mut self, queue_key: &QueueKey, class: Urgency) -> bool {
        let waits = self.waiting.get(queue_key).copied();
        // One that rests is not made fresh by the changes that it made itself.
        if waits.is_some_and(|before| before <= class || class != Urgency::Urgent) {
            return false;
        }
        self.waiting.insert(queue_key.clone(), class);
        match class {
            Urgency::Urgent => self.urgent.push_back(queue_key.clone()),
            Urgency::Fresh => self.fresh.push_back(queue_key.clone()),
            Urgency::Rest => self.rest.push_back((Instant::now(), queue_key.clone())),
        }
        true
    }

    fn begin(&mut self, queue_key: QueueKey, class: Urgency) -> QueueItem {
        self.unschedule(&queue_key);
        let preempted = CancellationToken::new();
        let worked = InProgress { class, again: None, preempted: preempted.clone() };
        self.working.insert(queue_key.clone(), worked);
        self.rested += usize::from(class == Urgency::Rest);
        QueueItem { queue_key, class, preempted }
    }

    fn take(&mut self, least: Urgency) -> Option<(QueueKey, Urgency)> {
        let long = |(since, _): &(Instant, QueueKey)| since.elapsed() >= LONGEST_REST;
        let rested = self.rested < MOST_RESTED && self.rest.front().is_some_and(long);
        let order = match (least, rested) {
            (Urgency::Urgent, _) => &[Urgency::Urgent][..],
            (_, false) => &[Urgency::Urgent, Urgency::Fresh, Urgency::Rest],
            (_, true) => &[Urgency::Urgent, Urgency::Rest, Urgency::Fresh],
        };
        order.iter().find_map(|class| Some((self.pop(*class)?, *class)))
    }

    fn pop(&mut self, class: Urgency) -> Option<QueueKey> {
        loop {
            let queue_key = match class {
                Urgency::Urgent => self.urgent.pop_front()?,
                Urgency::Fresh => self.fresh.pop_front()?,
                Urgency::Rest => self.rest.pop_front()?.1,
            };
            if self.waiting.get(&queue_key) == Some(&class) {
                self.waiting.remove(&queue_key);
                return Some(queue_key);
            }
        }
    }

    fn schedule(&mut self, queue_key: &QueueKey, when: Instant) {
        self.unschedule(queue_key);
        self.due.insert(queue_key.clone(), when);
        self.later.insert((when, queue_key.clone()));
    }

    fn unschedule(&mut self, queue_key: &QueueKey) {
        if let Some(when) = self.due.remove(queue_key) {
            self.later.remove(&(when, queue_key.clone()));
        }
    }

    fn overdue(&mut self) {
        let now = Instant::now();
        while self.later.first().is_some_and(|(when, _)| *when <= now) {
            let Some((_, queue_key)) = self.later.pop_first() else { break };
            self.due.remove(&queue_key);
            if !self.working.contains_key(&queue_key) {
                self.push(&queue_key, Urgency::Fresh);
            }
        }
    }
}

/// The pauses after failures of one key, without an end.
fn pauses() -> ExponentialBackoff {
    let builder = ExponentialBuilder::default().with_min_delay(FIRST_PAUSE).with_max_delay(LONGEST_PAUSE);
    builder.without_max_times().build()
}

/// Adds up to 31 % of the pause, always the same share for a key, so that keys that failed together are not retried
/// together. The jitter of the library adds no more than the first pause.
fn spread(pause: Duration, queue_key: &QueueKey) -> Duration {
    let percent: u32 = queue_key.to_string().bytes().map(u32::from).sum::<u32>() % 32;
    pause + pause * percent / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue_key(name: &str) -> QueueKey {
        QueueKey::Cluster(name.to_owned())
    }

    async fn next(queue: &Queue) -> String {
        queue.next(Urgency::Rest).await.queue_key.to_string()
    }

    #[tokio::test]
    async fn a_lane_is_worked_on_once_at_a_time_and_again_when_woken_meanwhile() {
        let queue = Queue::default();
        queue.open();
        queue.wake(&queue_key("a"), Urgency::Fresh);
        queue.wake(&queue_key("a"), Urgency::Fresh);
        assert_eq!(next(&queue).await, "cluster/a");
        assert_eq!(queue.load(), (0, 1));
        queue.wake(&queue_key("a"), Urgency::Fresh);
        assert_eq!(queue.load(), (0, 1), "not beside itself");
        queue.done(&queue_key("a"), ReconcileOutcome::Done(None));
        assert_eq!(next(&queue).await, "cluster/a");
        queue.done(&queue_key("a"), ReconcileOutcome::Done(None));
        assert_eq!(queue.load(), (0, 0));
    }

    #[tokio::test]
    async fn what_ended_goes_first_and_what_rests_last() {
        let queue = Queue::default();
        for name in ["rests", "fresh", "ends"] {
            queue.wake(&queue_key(name), Urgency::Fresh);
        }
        queue.open();
        assert_eq!(next(&queue).await, "cluster/rests");
        queue.done(&queue_key("rests"), ReconcileOutcome::Rest);
        queue.wake(&queue_key("rests"), Urgency::Fresh);
        queue.wake(&queue_key("ends"), Urgency::Urgent);
        let order = [next(&queue).await, next(&queue).await, next(&queue).await];
        assert_eq!(order, ["cluster/ends", "cluster/fresh", "cluster/rests"]);
        assert_eq!(queue.load(), (0, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn what_rested_long_goes_before_what_is_fresh() {
        let queue = Queue::default();
        queue.open();
        queue.wake(&queue_key("rests"), Urgency::Fresh);
        next(&queue).await;
        queue.done(&queue_key("rests"), ReconcileOutcome::Rest);
        tokio::time::advance(LONGEST_REST).await;
        queue.wake(&queue_key("fresh"), Urgency::Fresh);
        assert_eq!([next(&queue).await, next(&queue).await], ["cluster/rests", "cluster/fresh"]);
    }

    #[tokio::test]
    async fn workers_for_urgent_lanes_take_no_other() {
        let queue = Queue::default();
        queue.open();
        queue.wake(&queue_key("fresh"), Urgency::Fresh);
        let waits = tokio::time::timeout(Duration::from_millis(20), queue.next(Urgency::Urgent));
        assert!(waits.await.is_err());
        let work = queue.next(Urgency::Rest).await;
        queue.wake(&queue_key("fresh"), Urgency::Fresh);
        assert!(!work.preempted.is_cancelled(), "nobody waits for it");
        // Woken during its reconcile: it is due at once afterwards, and the worker is preempted.
        queue.wake(&queue_key("fresh"), Urgency::Urgent);
        assert!(work.preempted.is_cancelled());
        queue.done(&queue_key("fresh"), ReconcileOutcome::Rest);
        let work = queue.next(Urgency::Urgent).await;
        assert_eq!((work.queue_key, work.class), (queue_key("fresh"), Urgency::Urgent));
        assert!(!work.preempted.is_cancelled());
    }

    #[tokio::test]
    async fn a_lane_comes_back_when_it_is_due() {
        let queue = Queue::default();
        queue.open();
        queue.wake(&queue_key("a"), Urgency::Fresh);
        next(&queue).await;
        queue.done(&queue_key("a"), ReconcileOutcome::Failed);
        let due = Instant::now() + Duration::from_millis(200);
        next(&queue).await;
        queue.done(&queue_key("a"), ReconcileOutcome::Done(Some(due)));
        next(&queue).await;
        assert!(Instant::now() >= due);
    }

    #[test]
    fn each_failure_makes_the_pause_longer_up_to_a_bound() {
        let a = queue_key("a");
        let pauses: Vec<_> = pauses().take(39).map(|pause| spread(pause, &a)).collect();
        assert_eq!(pauses.len(), 39);
        assert!(pauses.is_sorted() && pauses[0] < pauses[5]);
        assert!(pauses[38] < LONGEST_PAUSE * 2);
    }
}
