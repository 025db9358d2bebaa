//! The program's output: one complete line of JSON for each event.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use kubeon_wire::{Event, StepFailure};
use parking_lot::Mutex;

/// The writer of events, shared by all steps.
pub struct Events {
    out: Mutex<Box<dyn Write + Send>>,
    on_closed: fn(),
    muted: AtomicBool,
}

impl Events {
    /// Writes to standard output. Ends the program when the reader has closed it: the engine is then gone
    /// too, and every effect may be interrupted.
    #[must_use]
    pub fn stdout() -> Self {
        Self::new(Box::new(io::stdout()), || std::process::exit(1))
    }

    /// Writes to a writer and ignores its errors.
    #[must_use]
    pub fn with_writer(out: Box<dyn Write + Send>) -> Self {
        Self::new(out, || {})
    }

    fn new(out: Box<dyn Write + Send>, on_closed: fn()) -> Self {
        Self { out: Mutex::new(out), on_closed, muted: AtomicBool::new(false) }
    }

    /// Drops all further events. Does not wait for the writer: a step may be blocked while it writes an
    /// event.
    pub fn mute(&self) {
        self.muted.store(true, Ordering::Relaxed);
    }

    /// Writes an event.
    pub fn send(&self, event: &Event) {
        if self.muted.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut line) = serde_json::to_vec(event) else { return (self.on_closed)() };
        line.push(b'\n');
        let mut out = self.out.lock();
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
            (self.on_closed)();
        }
    }

    /// Writes that the session is refused.
    pub fn refuse(&self, failure: StepFailure) {
        self.send(&Event::Refused { failure });
    }
}
