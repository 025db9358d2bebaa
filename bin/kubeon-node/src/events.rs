//! What the program says: one line of JSON for each event, whole lines only.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use kubeon_wire::{Event, StepFailure};
use parking_lot::Mutex;

/// The one writer of standard output, shared by all steps.
pub struct Events {
    out: Mutex<Box<dyn Write + Send>>,
    gone: fn(),
    hushed: AtomicBool,
}

impl Events {
    /// Writes to standard output and ends the program when the reader is gone: the sender of the steps
    /// is gone then, and every effect may be interrupted.
    #[must_use]
    pub fn stdout() -> Self {
        Self::new(Box::new(io::stdout()), || std::process::exit(1))
    }

    /// Speaks into a writer; that it is gone is ignored.
    #[must_use]
    pub fn into(out: Box<dyn Write + Send>) -> Self {
        Self::new(out, || {})
    }

    fn new(out: Box<dyn Write + Send>, gone: fn()) -> Self {
        Self { out: Mutex::new(out), gone, hushed: AtomicBool::new(false) }
    }

    /// From now on nothing is said. Never waits: a step may be stuck in saying a word that nobody takes.
    pub fn hush(&self) {
        self.hushed.store(true, Ordering::Relaxed);
    }

    /// Says one event.
    pub fn say(&self, event: &Event) {
        if self.hushed.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut line) = serde_json::to_vec(event) else { return (self.gone)() };
        line.push(b'\n');
        let mut out = self.out.lock();
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
            (self.gone)();
        }
    }

    /// Says that the session is refused.
    pub fn refuse(&self, failure: StepFailure) {
        self.say(&Event::Refused { failure });
    }
}
