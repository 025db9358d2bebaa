//! `kubeon-node apply`: requests in, effects, events out.
//!
//! ```text
//!   stdin ─► reader ─┬─ step ─► its own thread ─► effect ─► journal ─► Done
//!                    └─ part bytes ─► the part's thread
//! ```
//!
//! The end of the input ends the session, and so does its silence: steps that only wait are told to stop, the
//! others get a little time to finish. Every effect may be broken off anywhere, so that being killed is no worse.

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kubeon_wire::{Category, Event, HostStep, Op, Request, SESSION_GRACE, StepFailure};
use parking_lot::{Condvar, Mutex};

use crate::drift::Look;
use crate::durable::write_file;
use crate::events::Events;
use crate::failure::{failed, of, plain};
use crate::host::HostSystem;
use crate::input::Input;
use crate::job::{Job, StepEffect};
use crate::journal::{self, Entry};
use crate::ops::part_stream::{Arriving, pair};
use crate::{fence, ops, parts, paths};

/// Steps at the same time; a plan for one host has fewer steps in all.
const STEPS_AT_ONCE: usize = 256;

/// A session with the engine.
pub struct Session {
    host: HostSystem,
    events: Events,
    stop: AtomicBool,
    running: Mutex<usize>,
    ended: Condvar,
    touch: Mutex<()>,
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The input ended.
    Closed,
    /// The fence or the input was refused.
    Refused,
}

impl Session {
    /// A session on a host.
    #[must_use]
    pub fn new(host: HostSystem, events: Events) -> Arc<Self> {
        Arc::new(Self {
            host,
            events,
            stop: AtomicBool::new(false),
            running: Mutex::new(0),
            ended: Condvar::new(),
            touch: Mutex::new(()),
        })
    }

    /// Serves requests until the input ends or breaks.
    pub fn serve(self: &Arc<Self>, stream: impl Read) -> Ending {
        let mut input = Input::new(stream);
        let lock = match self.open(&mut input) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Ending::Closed,
            Err(failure) => {
                self.events.refuse(failure);
                return Ending::Refused;
            }
        };
        let ending = self.requests(&mut input);
        if input.broke() {
            // An engine that only slept would take steps that are told to stop for answered. It does them again.
            self.events.hush();
        }
        self.finish();
        drop(lock);
        ending
    }

    /// Tells all steps to stop and gives them a little time.
    pub fn finish(&self) {
        // A step that sees the request to stop must also see the quiet mode that was set before it.
        self.stop.store(true, Ordering::Release);
        let end = Instant::now() + SESSION_GRACE;
        let mut running = self.running.lock();
        while *running > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.ended.wait_for(&mut running, left);
        }
    }

    fn open<R: Read>(&self, input: &mut Input<R>) -> Result<Option<fence::Lock>, StepFailure> {
        let line = input.line().map_err(|error| failed(format!("the input broke: {}", plain(&error))))?;
        let Some(line) = line else { return Ok(None) };
        let Request::Open(fence) = parse(&line)? else {
            return Err(failed("the first request must open the session"));
        };
        let lock = fence::open(&self.host.root, &fence)?;
        parts::sweep(&self.host.root)?;
        self.events.say(&Event::Opened { program: env!("CARGO_PKG_VERSION").to_owned() });
        Ok(Some(lock))
    }

    fn requests<R: Read>(self: &Arc<Self>, input: &mut Input<R>) -> Ending {
        // A stream that broke is an end like any other: what was asked for in whole lines is done.
        while let Ok(Some(line)) = input.line() {
            let step = match parse(&line) {
                Ok(Request::Run(step)) => step,
                Ok(Request::Ping) => continue,
                Ok(Request::Open(_)) => {
                    self.events.refuse(failed("the session is open already"));
                    return Ending::Refused;
                }
                Err(failure) => {
                    self.events.refuse(failure);
                    return Ending::Refused;
                }
            };
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            if let Op::Part { size, .. } = step.op {
                let (feed, arriving) = pair();
                self.start(step, Some(arriving));
                if feed.take(input, size).is_err() {
                    break;
                }
            } else {
                self.start(step, None);
            }
        }
        Ending::Closed
    }

    fn start(self: &Arc<Self>, step: HostStep, bytes: Option<Arriving>) {
        let mut running = self.running.lock();
        let id = step.id.clone();
        let session = Arc::clone(self);
        let work = move || session.work(&step, bytes);
        let started = *running < STEPS_AT_ONCE && thread::Builder::new().spawn(work).is_ok();
        if started {
            *running += 1;
        } else {
            let failure = of(Category::Exhausted, format!("{} steps are under way already", *running));
            self.events.say(&Event::Failed { id, failure });
        }
    }

    fn work(&self, step: &HostStep, bytes: Option<Arriving>) {
        let start = Instant::now();
        self.events.say(&Event::Started { id: step.id.clone() });
        let outcome = catch_unwind(AssertUnwindSafe(|| self.step(step, bytes)))
            .unwrap_or_else(|_| Err(failed("the node program failed; its standard error says where")));
        let id = step.id.clone();
        let milliseconds = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.events.say(&match outcome {
            Ok(changed) => Event::Done { id, changed, milliseconds },
            Err(failure) => Event::Failed { id, failure },
        });
        *self.running.lock() -= 1;
        self.ended.notify_all();
    }

    /// Does a step unless it stands; tells whether anything changed.
    fn step(&self, step: &HostStep, bytes: Option<Arriving>) -> Result<bool, StepFailure> {
        let root = &self.host.root;
        // A digest holds secrets by reference: whether a renewed one is in place only its file can tell.
        if step.journal
            && !matches!(step.op, Op::Files { .. })
            && let Some(entry) = journal::entry(root, &step.id)?
            && entry.digest == step.digest
            && Look::at(&self.host, &[&entry]).state_of(&entry) == kubeon_wire::ResultState::UpToDate
        {
            return Ok(false);
        }
        let deadline = Instant::now() + Duration::from_secs(u64::from(step.timeout_seconds.max(1)));
        let job = Job { host: &self.host, id: &step.id, deadline, events: &self.events, stop: &self.stop };
        if !matches!(step.op, Op::Reset { .. } | Op::Await { .. } | Op::Part { .. }) {
            self.touch()?;
        }
        let StepEffect { changed, marks } = ops::run(&job, &step.op, bytes)?;
        if step.journal && !matches!(step.op, Op::Reset { .. }) {
            let entry = Entry { id: step.id.clone(), digest: step.digest.clone(), marks };
            journal::remember(root, &entry)?;
        }
        Ok(changed)
    }

    /// Marks that there is something for a reset to take away, before the first such thing is written.
    fn touch(&self) -> Result<(), StepFailure> {
        // Steps run side by side, and any of them may be the first.
        let _alone = self.touch.lock();
        let place = self.host.root.at(paths::TOUCHED);
        if place.exists() { Ok(()) } else { write_file(&place, b"", 0o644) }
    }
}

/// Reads a request. What it held is not repeated in the failure: it may be a secret.
fn parse(line: &[u8]) -> Result<Request, StepFailure> {
    serde_json::from_slice(line).map_err(|error| {
        let what = if error.is_data() { "is none that this version knows" } else { "is not JSON" };
        failed(format!("a request of {} bytes {what} (column {})", line.len(), error.column()))
    })
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
