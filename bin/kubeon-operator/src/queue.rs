//! The work queue. A key is in the queue at most once, and at most one worker reconciles it.
//!
//! ```text
//!   a Job ended ──────────► Urgent ─┐
//!   anything else ────────► Fresh ──┼──► workers; some take urgent keys only
//!   status that can wait ──► Rest ──┘    (keys that waited for 5 s are taken before fresh ones, four at a time)
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
/// A key that waited with the priority `Rest` for this long is taken before fresh keys,
const LONGEST_REST: Duration = Duration::from_secs(5);
/// unless this number of such keys is being reconciled.
const MOST_RESTED: usize = 4;

/// The priority of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// The Job of an operation ended: a user waits for the result.
    Urgent,
    /// An object changed.
    Fresh,
    /// Only writes are left that can wait for other keys.
    Rest,
}

/// The result of a reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReconcileOutcome {
    /// Nothing is left to do; the key is reconciled again at this time, if there is one.
    Done(Option<Instant>),
    /// The urgent writes are done; the others follow with the priority `Rest`.
    Rest,
    /// A temporary error; the key is retried after a pause.
    Failed,
}

/// A key that a worker reconciles.
pub(crate) struct QueueItem {
    pub queue_key: QueueKey,
    pub class: Urgency,
    /// Cancelled when the key becomes urgent during the reconcile.
    pub preempted: CancellationToken,
}

/// A key that is being reconciled.
struct InProgress {
    class: Urgency,
    /// The priority with which the key was added during the reconcile.
    again: Option<Urgency>,
    preempted: CancellationToken,
}

#[derive(Default)]
struct State {
    urgent: VecDeque<QueueKey>,
    fresh: VecDeque<QueueKey>,
    rest: VecDeque<(Instant, QueueKey)>,
    /// Keys in one of the three queues. An entry of a queue with another priority than this is outdated.
    waiting: HashMap<QueueKey, Urgency>,
    working: HashMap<QueueKey, InProgress>,
    /// The number of keys with the priority `Rest` that are being reconciled.
    rested: usize,
    later: BTreeSet<(Instant, QueueKey)>,
    due: HashMap<QueueKey, Instant>,
    /// The pauses after further failures.
    failures: HashMap<QueueKey, ExponentialBackoff>,
    open: bool,
}

/// Keys to reconcile.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Notify,
    urgent_changed: Notify,
    ended: Notify,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Allows workers to take keys.
    pub(crate) fn open(&self) {
        self.state().open = true;
        self.changed.notify_waiters();
        self.urgent_changed.notify_waiters();
    }

    /// Stops workers from taking keys, and waits until the running reconciles end.
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

    /// Adds a key.
    pub(crate) fn wake(&self, queue_key: &QueueKey, class: Urgency) {
        let mut state = self.state();
        if let Some(in_progress) = state.working.get_mut(queue_key) {
            in_progress.again = Some(in_progress.again.map_or(class, |before| before.min(class)));
            if class == Urgency::Urgent {
                in_progress.preempted.cancel();
            }
            return;
        }
        if state.push(queue_key, class) {
            drop(state);
            self.notify(class);
        }
    }

    fn notify(&self, class: Urgency) {
        self.changed.notify_one();
        if class == Urgency::Urgent {
            self.urgent_changed.notify_one();
        }
    }

    /// Waits for the next key with at least the priority `least`.
    pub(crate) async fn next(&self, least: Urgency) -> QueueItem {
        loop {
            let changed = if least == Urgency::Urgent { &self.urgent_changed } else { &self.changed };
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
                        self.urgent_changed.notify_one();
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

    /// Records that the reconcile of a key ended.
    pub(crate) fn done(&self, queue_key: &QueueKey, outcome: ReconcileOutcome) {
        let mut state = self.state();
        let in_progress = state.working.remove(queue_key);
        let again = in_progress.as_ref().and_then(|in_progress| in_progress.again);
        state.rested -=
            usize::from(in_progress.is_some_and(|in_progress| in_progress.class == Urgency::Rest));
        self.ended.notify_one();
        let (class, when) = match outcome {
            ReconcileOutcome::Done(when) => (again, when),
            // A change during the reconcile is mostly caused by its own writes.
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
            self.notify(class);
            return;
        }
        if let Some(when) = when {
            state.schedule(queue_key, when);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// The numbers of keys that wait and that are being reconciled.
    pub(crate) fn load(&self) -> (usize, usize) {
        let state = self.state();
        (state.waiting.len(), state.working.len())
    }
}

impl State {
    /// Adds a key to a queue; false when it waits already with the same or a higher priority.
    fn push(&mut self, queue_key: &QueueKey, class: Urgency) -> bool {
        let waits = self.waiting.get(queue_key).copied();
        // Its own writes do not raise the priority of a key that waits with the priority `Rest`.
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
        let in_progress = InProgress { class, again: None, preempted: preempted.clone() };
        self.working.insert(queue_key.clone(), in_progress);
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
    async fn a_key_is_reconciled_once_at_a_time_and_again_when_it_was_added_meanwhile() {
        let queue = Queue::default();
        queue.open();
        queue.wake(&queue_key("a"), Urgency::Fresh);
        queue.wake(&queue_key("a"), Urgency::Fresh);
        assert_eq!(next(&queue).await, "cluster/a");
        assert_eq!(queue.load(), (0, 1));
        queue.wake(&queue_key("a"), Urgency::Fresh);
        assert_eq!(queue.load(), (0, 1), "a key is reconciled once at a time");
        queue.done(&queue_key("a"), ReconcileOutcome::Done(None));
        assert_eq!(next(&queue).await, "cluster/a");
        queue.done(&queue_key("a"), ReconcileOutcome::Done(None));
        assert_eq!(queue.load(), (0, 0));
    }

    #[tokio::test]
    async fn urgent_keys_are_first_and_keys_with_the_priority_rest_are_last() {
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
    async fn keys_that_waited_long_are_taken_before_fresh_ones() {
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
    async fn workers_for_urgent_keys_take_no_other_keys() {
        let queue = Queue::default();
        queue.open();
        queue.wake(&queue_key("fresh"), Urgency::Fresh);
        let waits = tokio::time::timeout(Duration::from_millis(20), queue.next(Urgency::Urgent));
        assert!(waits.await.is_err());
        let work = queue.next(Urgency::Rest).await;
        queue.wake(&queue_key("fresh"), Urgency::Fresh);
        assert!(!work.preempted.is_cancelled(), "the key is not urgent");
        // Woken during its reconcile: it is due at once afterwards, and the worker is preempted.
        queue.wake(&queue_key("fresh"), Urgency::Urgent);
        assert!(work.preempted.is_cancelled());
        queue.done(&queue_key("fresh"), ReconcileOutcome::Rest);
        let work = queue.next(Urgency::Urgent).await;
        assert_eq!((work.queue_key, work.class), (queue_key("fresh"), Urgency::Urgent));
        assert!(!work.preempted.is_cancelled());
    }

    #[tokio::test]
    async fn a_key_is_taken_again_when_it_is_due() {
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
