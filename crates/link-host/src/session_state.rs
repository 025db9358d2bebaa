//! The state of a session with the node program.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kubeon_api::HostAddress;
use kubeon_wire::{Category, Event, StepFailure};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, watch};

use crate::failure::failure;

/// A message to a waiting `run`.
pub(crate) enum StepSignal {
    /// The step was sent completely.
    Sent,
    /// The host reported this event.
    Event(Event),
}

/// The state that reader, writer and waiting `run` calls of a session share.
pub(crate) struct SessionState {
    pub(crate) host: HostAddress,
    start: Instant,
    /// Time of the last byte in either direction, in milliseconds after `start`.
    last_activity: AtomicU64,
    waiting: Mutex<WaitingSteps>,
    /// Notified by the writer when it fails in the middle of a part.
    pub(crate) abort: Notify,
    pub(crate) ended: watch::Sender<bool>,
}

/// The steps whose `run` waits, and the reason when the session is closed.
#[derive(Default)]
pub(crate) struct WaitingSteps {
    pub(crate) steps: HashMap<String, UnboundedSender<StepSignal>>,
    /// The reason why the session is closed; set once.
    pub(crate) closed: Option<StepFailure>,
}

impl SessionState {
    pub(crate) fn new(host: HostAddress) -> Self {
        Self {
            host,
            start: Instant::now(),
            last_activity: AtomicU64::new(0),
            waiting: Mutex::default(),
            abort: Notify::new(),
            ended: watch::Sender::new(false),
        }
    }

    pub(crate) fn waiting(&self) -> MutexGuard<'_, WaitingSteps> {
        self.waiting.lock()
    }

    pub(crate) fn touch(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_activity.store(now, Ordering::Relaxed);
    }

    pub(crate) fn idle_time(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.last_activity.load(Ordering::Relaxed)))
    }

    /// Ends all waiting steps. Later reasons do not replace the first.
    pub(crate) fn close(&self, failure: StepFailure) {
        let mut waiting = self.waiting();
        waiting.closed.get_or_insert(failure);
        waiting.steps.clear();
        self.ended.send_replace(true);
    }

    pub(crate) fn closed(&self) -> StepFailure {
        let unknown = || failure(Category::Unreachable, format!("the session with {} is closed", self.host));
        self.waiting().closed.clone().unwrap_or_else(unknown)
    }
}
