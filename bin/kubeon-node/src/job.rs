//! What a step is given while it runs: the host, its deadline, and a voice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kubeon_wire::{Category, Event, StepFailure};

use crate::events::Events;
use crate::failure::of;
use crate::host::HostSystem;
use crate::journal::Mark;

/// How soon a waiting step notices that it was told to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// A step under way.
pub struct Job<'a> {
    /// The host.
    pub host: &'a HostSystem,
    /// The step's identity.
    pub id: &'a str,
    /// When the step counts as failed.
    pub deadline: Instant,
    /// Receives what it says.
    pub events: &'a Events,
    /// Set when the run was told to stop.
    pub stop: &'a AtomicBool,
}

/// What a step did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StepEffect {
    /// Whether anything on the host changed.
    pub changed: bool,
    /// What it left, for the journal.
    pub marks: Vec<Mark>,
}

impl Job<'_> {
    /// Says a word for people.
    pub fn note(&self, text: impl Into<String>) {
        self.events.say(&Event::Note { id: self.id.to_owned(), text: text.into() });
    }

    /// Says how far it is, in bytes.
    pub fn progress(&self, done: u64, total: u64) {
        self.events.say(&Event::Progress { id: self.id.to_owned(), done, total });
    }

    /// The time left until the deadline.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Sleeps before the next look at something awaited.
    ///
    /// # Errors
    /// [`Category::Timeout`] with `seen` as cause at the deadline, [`Category::Cancelled`] when told to stop.
    pub fn pause(&self, interval: Duration, seen: impl Fn() -> String) -> Result<(), StepFailure> {
        let until = Instant::now() + interval.min(self.left());
        loop {
            if self.stop.load(Ordering::Acquire) {
                return Err(of(Category::Cancelled, format!("told to stop while waiting: {}", seen())));
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
