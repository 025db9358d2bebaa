//! `kubeon-node apply`: reads requests, runs the steps, and writes events.
//!
//! ```text
//!   stdin ─► reader ─┬─ step ─► thread of the step ─► effect ─► journal ─► Done
//!                    └─ part bytes ─► the part's thread         └─► Received
//! ```
//!
//! The session ends at the end of the input, or if the input sends no data for too long. Steps that only wait
//! are then cancelled, and the others get a short time to finish. Every effect may be interrupted at any
//! point, so that killing the program is safe.

use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use kubeon_api::Digest;
use kubeon_wire::{
    Category, Event, ForwardingIdentity, HostStep, Op, PartForwarder, Request, SESSION_GRACE, StepFailure,
};
use parking_lot::{Condvar, Mutex};

use crate::drift::DriftCheck;
use crate::durable::write_file;
use crate::events::Events;
use crate::failure::{failed, of, plain};
use crate::forwarding::{Forwarding, SpooledPart};
use crate::host::HostSystem;
use crate::input::Input;
use crate::job::{Job, StepEffect};
use crate::journal::{self, Entry};
use crate::ops::part_stream::{PartReader, PartWriter, pair};
use crate::ticket_lock::TicketLock;
use crate::timeout_extension::TimeoutExtension;
use crate::{cluster_record, fence, ops, parts, paths};

/// The most steps at the same time; the plan of one host has fewer steps.
const STEPS_AT_ONCE: usize = 256;

/// A session with the engine.
pub struct Session {
    host: HostSystem,
    events: Events,
    stop: AtomicBool,
    running: Mutex<usize>,
    ended: Condvar,
    touch: Mutex<()>,
    /// The forwarding of parts to other hosts, if the engine asked for it.
    forwarding: OnceLock<Forwarding>,
    /// The order in which parts are unpacked, which arrive one after another but are not waited for.
    unpacking: Arc<TicketLock>,
}

/// The step, the digest and the size of a part whose bytes follow.
type ArrivingPart = (String, Digest, u64);

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
            forwarding: OnceLock::new(),
            unpacking: Arc::default(),
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
            // The engine may only have been suspended. Without an event it repeats the cancelled steps; with
            // one it would count them as failed.
            self.events.mute();
        }
        self.finish();
        self.forwarding.get().into_iter().for_each(Forwarding::end);
        drop(lock);
        ending
    }

    /// Cancels all steps and waits a short time for their end.
    pub fn finish(&self) {
        // Release: a step that sees the cancellation must also see that the events are muted.
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
        let line =
            input.line().map_err(|error| failed(format!("cannot read the input: {}", plain(&error))))?;
        let Some(line) = line else { return Ok(None) };
        let Request::Open(fence) = parse(&line)? else {
            return Err(failed("the first request must open the session"));
        };
        let lock = fence::open(&self.host.root, &fence)?;
        parts::sweep(&self.host.root)?;
        self.events.send(&Event::Opened { program: env!("CARGO_PKG_VERSION").to_owned() });
        Ok(Some(lock))
    }

    fn requests<R: Read>(self: &Arc<Self>, input: &mut Input<R>) -> Ending {
        // A failed stream ends the session like the regular end: complete requests are executed.
        while let Ok(Some(line)) = input.line() {
            let step = match parse(&line) {
                Ok(Request::Run(step)) => step,
                Ok(Request::Ping) => continue,
                Ok(Request::ForwardParts(identity)) => {
                    self.forward_parts(&identity);
                    continue;
                }
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
            let Op::Part { digest, size, source, .. } = &step.op else {
                self.start(step, None);
                continue;
            };
            let (part, source) = ((step.id.clone(), digest.clone(), *size), source.clone());
            let forwarding = self.forwarding.get();
            let (kept, reader) = forwarding.and_then(|forwarding| forwarding.keep(&part.1, part.2)).unzip();
            let (feed, arriving) = pair(reader, self.unpacking.ticket());
            self.start(step, Some(arriving));
            match source {
                Some(source) => self.receive(part, source, feed, kept),
                None => {
                    if self.take(input, part, feed, kept).is_err() {
                        break;
                    }
                }
            }
        }
        Ending::Closed
    }

    /// Receives a part from the input.
    fn take<R: Read>(
        &self,
        input: &mut Input<R>,
        (id, digest, size): ArrivingPart,
        feed: PartWriter,
        mut kept: Option<SpooledPart>,
    ) -> io::Result<()> {
        let sum = feed.take(input, size, &mut |bytes| keep(&mut kept, bytes))?;
        if sum == digest.as_str() {
            self.events.send(&Event::Received { id });
        }
        Ok(())
    }

    /// Begins to forward parts, unless this session does already.
    fn forward_parts(&self, identity: &ForwardingIdentity) {
        let port = match self.forwarding.get() {
            Some(forwarding) => Ok(forwarding.port),
            None => Forwarding::begin(&self.host.root, identity)
                .map(|forwarding| self.forwarding.get_or_init(|| forwarding).port),
        };
        self.events.send(&match port {
            Ok(port) => Event::Forwarding { port },
            Err(failure) => Event::NotForwarding { cause: failure.cause },
        });
    }

    /// Receives a part from another host, beside further requests.
    fn receive(
        self: &Arc<Self>,
        (id, digest, size): ArrivingPart,
        source: PartForwarder,
        feed: PartWriter,
        mut kept: Option<SpooledPart>,
    ) {
        let session = Arc::clone(self);
        let work = move || {
            let Some(forwarding) = session.forwarding.get() else {
                return feed.fail("this session has no identity among the hosts of the run".to_owned());
            };
            let mut keep = |bytes: &[u8]| keep(&mut kept, bytes);
            if forwarding.receive((&digest, size), &source, feed, &mut keep) {
                session.events.send(&Event::Received { id });
            }
        };
        // Without a thread the feed is dropped, and the step fails.
        drop(thread::Builder::new().spawn(work));
    }

    fn start(self: &Arc<Self>, step: HostStep, bytes: Option<PartReader>) {
        let mut running = self.running.lock();
        let id = step.id.clone();
        let session = Arc::clone(self);
        let work = move || session.execute(&step, bytes);
        let started = *running < STEPS_AT_ONCE && thread::Builder::new().spawn(work).is_ok();
        if started {
            *running += 1;
        } else {
            let failure = of(Category::Exhausted, format!("{} steps are already running", *running));
            self.events.send(&Event::Failed { id, failure });
        }
    }

    fn execute(&self, step: &HostStep, bytes: Option<PartReader>) {
        let start = Instant::now();
        self.events.send(&Event::Started { id: step.id.clone() });
        let outcome = catch_unwind(AssertUnwindSafe(|| self.run_step(step, bytes)))
            .unwrap_or_else(|_| Err(failed("the step panicked; see the standard error of kubeon-node")));
        let id = step.id.clone();
        let milliseconds = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.events.send(&match outcome {
            Ok(changed) => Event::Done { id, changed, milliseconds },
            Err(failure) => Event::Failed { id, failure },
        });
        *self.running.lock() -= 1;
        self.ended.notify_all();
    }

    /// Runs a step unless its results are up to date. Returns whether anything changed.
    fn run_step(&self, step: &HostStep, bytes: Option<PartReader>) -> Result<bool, StepFailure> {
        let root = &self.host.root;
        // A digest contains only references to secrets: compare the files to detect a renewed secret.
        if step.journal
            && step.record_in.is_none()
            && !matches!(step.op, Op::Files { .. })
            && let Some(entry) = journal::entry(root, &step.id)?
            && entry.digest == step.digest
            && DriftCheck::read(&self.host, &[&entry]).state_of(&entry) == kubeon_wire::ResultState::UpToDate
        {
            return Ok(false);
        }
        let limit = Duration::from_secs(u64::from(step.timeout_seconds.max(1)));
        let job = Job {
            host: &self.host,
            id: &step.id,
            deadline: Instant::now() + limit,
            extension: TimeoutExtension::new(root, limit),
            events: &self.events,
            stop: &self.stop,
        };
        if !matches!(step.op, Op::Reset { .. } | Op::Await { .. } | Op::Part { .. }) {
            self.mark_touched()?;
        }
        // A later run must know who cordoned the node, also if this one is interrupted while pods leave it.
        let recorded_before = step.journal && matches!(step.op, Op::Drain { .. });
        if let (true, Some(object)) = (recorded_before, &step.record_in) {
            let entry = Entry { id: step.id.clone(), digest: step.digest.clone(), marks: Vec::new() };
            cluster_record::remember(&job, object, &entry)?;
        }
        // Nothing compares an object with its record: a run that ends before the new record must not leave the old one.
        if step.record_in.is_some() && matches!(step.op, Op::Objects { .. }) {
            cluster_record::forget(&job, &step.id)?;
        }
        let StepEffect { changed, marks } = ops::run(&job, &step.op, bytes)?;
        if step.journal && !recorded_before && !matches!(step.op, Op::Reset { .. }) {
            let entry = Entry { id: step.id.clone(), digest: step.digest.clone(), marks };
            match &step.record_in {
                Some(object) => cluster_record::remember(&job, object, &entry)?,
                None => journal::remember(root, &entry)?,
            }
        }
        Ok(changed)
    }

    /// Records that a reset has files to remove, before the first such file is written.
    fn mark_touched(&self) -> Result<(), StepFailure> {
        // Steps run in parallel, and any of them may be the first.
        let _guard = self.touch.lock();
        let place = self.host.root.at(paths::TOUCHED);
        if place.exists() { Ok(()) } else { write_file(&place, b"", 0o644) }
    }
}

/// Keeps bytes of a part for other hosts. Returns whether they are kept.
fn keep(kept: &mut Option<SpooledPart>, bytes: &[u8]) -> bool {
    kept.as_mut().is_some_and(|kept| kept.write(bytes))
}

/// Parses a request. The failure does not contain the request, which may contain a secret.
fn parse(line: &[u8]) -> Result<Request, StepFailure> {
    serde_json::from_slice(line).map_err(|error| {
        let problem = if error.is_data() { "is not known to this version" } else { "is not JSON" };
        failed(format!("a request of {} bytes {problem} (column {})", line.len(), error.column()))
    })
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
