//! A session with the node program: many steps at once over one channel.
//!
//! ```text
//!   run() ─┐ queue ► writer task ─ request line, bytes of its part ─► kubeon-node apply
//!   run() ─┤                       pings between them                      │
//!          └◄ events by step id ◄─ reader task ◄── event lines ────────────┘
//! ```
//!
//! The writer is a task of its own: a `run` that is given up can never leave a part half sent.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use kubeon_api::HostAddress;
use kubeon_ports::{EventSink, HostSession, Report};
use kubeon_wire::{Category, Event, Fence, HostStep, Request, StepFailure};
use parking_lot::{Mutex, MutexGuard};
use russh::ChannelMsg;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;

use crate::connection::Connection;
use crate::exec::Exit;
use crate::failure::{failure, last_lines};
use crate::remote::Remote;
use crate::sender::{Blob, Job, Signal, encode, open_blob, send};

/// Time for the fence to be accepted or refused.
const OPENING: Duration = Duration::from_secs(10);

/// What a host is given beyond a step's own time before its silence counts as failure.
const GRACE: Duration = Duration::from_secs(30);

/// Time for the host to finish after the last step was sent.
const CLOSING: Duration = Duration::from_secs(10);

/// Longest line that a host may send.
const LINE: usize = 4 * 1024 * 1024;

/// Last words of the program that are kept, in lines.
const LAST_WORDS: usize = 20;

/// An open session with a host's node program.
pub struct NodeSession {
    shared: Arc<Shared>,
    jobs: Mutex<Option<UnboundedSender<Job>>>,
    reader: Mutex<Option<JoinHandle<()>>>,
}

/// How an attempt to open a session ended.
pub(crate) enum Opening {
    Opened(NodeSession),
    /// The program is not on the host, or not whole.
    Missing,
}

/// What both halves of a session, and those who wait for it, have in common.
pub(crate) struct Shared {
    pub(crate) host: HostAddress,
    start: Instant,
    /// Milliseconds after `start` of the last byte that moved, either way.
    moved: AtomicU64,
    state: Mutex<State>,
    /// Rung by the writer when the stream cannot be kept in step.
    pub(crate) abort: Notify,
    ended: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    steps: HashMap<String, UnboundedSender<Signal>>,
    /// Why nothing more can be done; set once.
    closed: Option<StepFailure>,
}

impl Shared {
    pub(crate) fn new(host: HostAddress) -> Self {
        Self {
            host,
            start: Instant::now(),
            moved: AtomicU64::new(0),
            state: Mutex::default(),
            abort: Notify::new(),
            ended: watch::Sender::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn touch(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(now, Ordering::Relaxed);
    }

    fn quiet_for(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.moved.load(Ordering::Relaxed)))
    }

    /// Ends all waiting steps; the first reason is kept.
    pub(crate) fn close(&self, failure: StepFailure) {
        let mut state = self.state();
        state.closed.get_or_insert(failure);
        state.steps.clear();
        self.ended.send_replace(true);
    }

    fn closed(&self) -> StepFailure {
        let unknown = || failure(Category::Unreachable, format!("the session with {} is closed", self.host));
        self.state().closed.clone().unwrap_or_else(unknown)
    }
}

impl NodeSession {
    /// Sends the fence and waits for the answer.
    pub(crate) async fn open(
        connection: Arc<Connection>,
        remote: Remote,
        fence: &Fence,
    ) -> Result<Opening, StepFailure> {
        let host = connection.host;
        let mut lines = Lines::new(host, remote);
        let line = encode(&Request::Open(fence.clone()))?;
        let answer = async {
            // A program that is missing closes its input; its exit code then tells why.
            if let Err(error) = lines.remote.write.write_all(&line).await {
                tracing::debug!(%host, %error, "the fence was not read");
            }
            loop {
                match lines.next().await {
                    Some(Event::Opened { program }) => return Ok(Some(program)),
                    Some(Event::Refused { failure }) => return Err(failure),
                    Some(_) => {}
                    None if lines.exit == Some(Exit::Code(127)) => return Ok(None),
                    None => return Err(lines.ended()),
                }
            }
        };
        let program = match timeout(OPENING, answer).await {
            Ok(answer) => answer?,
            Err(_) => {
                let cause =
                    format!("the node program on {host} did not answer within {} s", OPENING.as_secs());
                return Err(StepFailure { log: lines.last_words(), ..failure(Category::Timeout, cause) });
            }
        };
        let Some(program) = program else { return Ok(Opening::Missing) };
        tracing::debug!(%host, program, "session open");
        Ok(Opening::Opened(Self::running(connection, lines)))
    }

    fn running(connection: Arc<Connection>, mut lines: Lines) -> Self {
        let shared = Arc::new(Shared::new(connection.host));
        let (jobs, queue) = mpsc::unbounded_channel();
        let write = std::mem::replace(&mut lines.remote.write, Box::pin(tokio::io::sink()));
        let writer = tokio::spawn(send(write, queue, Arc::clone(&shared))).abort_handle();
        let reader = tokio::spawn(receive(lines, Arc::clone(&shared), connection, writer));
        Self { shared, jobs: Mutex::new(Some(jobs)), reader: Mutex::new(Some(reader)) }
    }

    /// Enters the step among those waited for and hands it to the writer.
    fn enqueue(&self, step: &HostStep, blob: Option<Blob>) -> Result<UnboundedReceiver<Signal>, StepFailure> {
        let line = encode(&Request::Run(step.clone()))?;
        let (signals, events) = mpsc::unbounded_channel();
        let mut state = self.shared.state();
        if let Some(closed) = &state.closed {
            return Err(closed.clone());
        }
        if state.steps.contains_key(&step.id) {
            let cause = format!("step {} is running already on {}", step.id, self.shared.host);
            return Err(failure(Category::Failed, cause));
        }
        let job = Job { id: step.id.clone(), line, blob, signals: signals.downgrade() };
        let jobs = self.jobs.lock();
        if jobs.as_ref().is_none_or(|jobs| jobs.send(job).is_err()) {
            let cause = format!("the session with {} is closed", self.shared.host);
            return Err(failure(Category::Unreachable, cause));
        }
        state.steps.insert(step.id.clone(), signals);
        Ok(events)
    }
}

#[async_trait]
impl HostSession for NodeSession {
    /// The sink receives `Started`, `Progress` and `Note`; how it ended is the result. For a part,
    /// progress never goes back, whichever side counted further.
    async fn run(
        &self,
        step: HostStep,
        blob: Option<PathBuf>,
        sink: EventSink<'_>,
    ) -> Result<Report, StepFailure> {
        let blob = open_blob(&step, blob).await?;
        let mut events = self.enqueue(&step, blob)?;
        let waiting = Waiting { shared: &self.shared, id: &step.id };
        let patience = Duration::from_secs(u64::from(step.timeout_seconds)) + GRACE;
        let mut furthest = 0;
        loop {
            let event = match timeout(patience, events.recv()).await {
                Ok(Some(Signal::Event(event))) => event,
                Ok(Some(Signal::Sent)) => continue,
                Ok(None) => return Err(self.shared.closed()),
                Err(_) if self.shared.quiet_for() < patience => continue,
                Err(_) => return Err(waiting.silence(patience)),
            };
            match event {
                Event::Done { changed, milliseconds, .. } => return Ok(Report { changed, milliseconds }),
                Event::Failed { failure, .. } => return Err(failure),
                Event::Progress { done, .. } if done <= furthest => {}
                Event::Progress { done, .. } => {
                    furthest = done;
                    sink(event);
                }
                Event::Started { .. } | Event::Note { .. } => sink(event),
                Event::Opened { .. } | Event::Refused { .. } => {}
            }
        }
    }

    async fn ended(&self) -> StepFailure {
        // The sender lives in `shared`, so the channel cannot close while this waits.
        drop(self.shared.ended.subscribe().wait_for(|ended| *ended).await);
        self.shared.closed()
    }

    async fn close(&self) {
        self.jobs.lock().take();
        let reader = self.reader.lock().take();
        if let Some(mut reader) = reader
            && timeout(CLOSING, &mut reader).await.is_err()
        {
            tracing::warn!(host = %self.shared.host, "the host is still finishing; the session is left to it");
            reader.abort();
        }
    }
}

impl Drop for NodeSession {
    fn drop(&mut self) {
        let reader = self.reader.lock().take();
        if let Some(reader) = reader {
            reader.abort();
        }
    }
}

/// Takes a step off the list when nobody waits for it any more.
struct Waiting<'a> {
    shared: &'a Shared,
    id: &'a str,
}

impl Waiting<'_> {
    fn silence(&self, patience: Duration) -> StepFailure {
        let cause = format!("{} has not said a word for {} s", self.shared.host, patience.as_secs());
        failure(Category::Timeout, cause)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.state().steps.remove(self.id);
    }
}

/// The reader task. Holds the connection, so that it lives as long as the session.
async fn receive(mut lines: Lines, shared: Arc<Shared>, connection: Arc<Connection>, writer: AbortHandle) {
    loop {
        let event = tokio::select! {
            event = lines.next() => event,
            () = shared.abort.notified() => return,
        };
        let Some(event) = event else { break };
        shared.touch();
        let id = match &event {
            Event::Started { id }
            | Event::Progress { id, .. }
            | Event::Note { id, .. }
            | Event::Done { id, .. }
            | Event::Failed { id, .. } => id,
            Event::Opened { .. } | Event::Refused { .. } => continue,
        };
        let waiting = shared.state().steps.get(id).cloned();
        match waiting {
            Some(signals) => {
                // A `run` that was given up does not listen any more.
                signals.send(Signal::Event(event)).ok();
            }
            None => tracing::debug!(host = %shared.host, id, "nobody waits for this step"),
        }
    }
    shared.close(lines.ended());
    // It may wait for room in a channel that nobody reads any more.
    writer.abort();
    drop(connection);
}

/// The program's output as events.
struct Lines {
    host: HostAddress,
    remote: Remote,
    buffer: Vec<u8>,
    words: VecDeque<u8>,
    exit: Option<Exit>,
}

impl Lines {
    fn new(host: HostAddress, remote: Remote) -> Self {
        Self { host, remote, buffer: Vec::new(), words: VecDeque::new(), exit: None }
    }

    /// The next event; `None` when the program has ended or the connection broke. What is no event is
    /// kept among the last words.
    async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                match serde_json::from_slice(&line) {
                    Ok(event) => return Some(event),
                    Err(_) => self.keep(&line),
                }
            }
            if self.buffer.len() > LINE {
                let line = std::mem::take(&mut self.buffer);
                self.keep(&line);
            }
            match self.remote.read.wait().await {
                Some(ChannelMsg::Data { data }) => self.buffer.extend_from_slice(&data),
                Some(ChannelMsg::ExtendedData { data, .. }) => self.keep(&data),
                Some(ChannelMsg::ExitStatus { exit_status }) => self.exit = Some(Exit::Code(exit_status)),
                Some(ChannelMsg::ExitSignal { signal_name, .. }) => {
                    self.exit = Some(Exit::Signal(format!("{signal_name:?}")));
                }
                Some(ChannelMsg::Close) | None => return None,
                Some(_) => {}
            }
        }
    }

    fn keep(&mut self, words: &[u8]) {
        self.words.extend(words);
        let over = self.words.len().saturating_sub(16 * 1024);
        self.words.drain(..over);
    }

    fn last_words(&self) -> Vec<String> {
        let words: Vec<u8> = self.words.iter().copied().collect();
        last_lines(&String::from_utf8_lossy(&words), LAST_WORDS)
    }

    /// Why there are no more events.
    fn ended(&self) -> StepFailure {
        let cause = match &self.exit {
            Some(exit) => format!("the node program on {} ended ({exit})", self.host),
            None => format!("the connection to {} broke", self.host),
        };
        StepFailure { log: self.last_words(), ..failure(Category::Unreachable, cause) }
    }
}
