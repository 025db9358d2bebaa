//! The context of a running step: the host, its deadline, and the channel for its events.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kubeon_wire::{Category, Event, StepFailure};

use crate::events::Events;
use crate::failure::of;
use crate::host::HostSystem;
use crate::journal::Mark;
use crate::timeout_extension::TimeoutExtension;

/// The interval at which a waiting step checks for cancellation.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// A running step.
pub struct Job<'a> {
    /// The host.
    pub host: &'a HostSystem,
    /// The step's identity.
    pub id: &'a str,
    /// The time at which the step times out, without its `extension`.
    pub deadline: Instant,
    /// The extension of the deadline while the host makes progress.
    pub extension: TimeoutExtension,
    /// Receives its events.
    pub events: &'a Events,
    /// Set when the run is cancelled.
    pub stop: &'a AtomicBool,
}

/// The effect of a step.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StepEffect {
    /// Whether anything on the host changed.
    pub changed: bool,
    /// The results to record in the journal.
    pub marks: Vec<Mark>,
}

impl Job<'_> {
    /// Sends a note for the user.
    pub fn note(&self, text: impl Into<String>) {
        self.events.send(&Event::Note { id: self.id.to_owned(), text: text.into() });
    }

    /// Sends the progress, in bytes.
    pub fn progress(&self, done: u64, total: u64) {
        self.events.send(&Event::Progress { id: self.id.to_owned(), done, total });
    }

    /// Tells that what the step waits for has changed: its time limit starts again.
    pub fn progressed(&self) {
        self.extension.progressed(Instant::now());
        self.report();
    }

    /// Tells the engine that the step is still running.
    fn report(&self) {
        self.events.send(&Event::Working { id: self.id.to_owned() });
    }

    /// The time left until the step times out.
    #[must_use]
    pub fn left(&self) -> Duration {
        let now = Instant::now();
        (self.deadline + self.extension.at(now)).saturating_duration_since(now)
    }

    /// Sleeps before the next check of a condition.
    ///
    /// # Errors
    /// [`Category::Timeout`] with `seen` as cause at the deadline, [`Category::Cancelled`] when the run is cancelled.
    pub fn pause(&self, interval: Duration, seen: impl Fn() -> String) -> Result<(), StepFailure> {
        let until = Instant::now() + interval.min(self.left());
        if self.extension.is_report_due(Instant::now()) {
            self.report();
        }
        loop {
            if self.stop.load(Ordering::Acquire) {
                return Err(of(Category::Cancelled, format!("cancelled while waiting: {}", seen())));
            }
            if self.left().is_zero() {
                return Err(of(Category::Timeout, seen()));
            }
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Ok(());
            }
            thread::sleep(rest.min(STOP_INTERVAL));
        }
    }
}
