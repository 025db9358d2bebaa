//! A session with the node program: many steps at once over one channel.
//!
//! ```text
//!   run() ─┐ queue ► writer task ─ request line, bytes of its part ─► kubeon-node apply
//!   run() ─┤                       pings between them                      │
//!          └◄ events by step id ◄─ reader task ◄── event lines ────────────┘
//! ```
//!
//! The writer is a separate task, so that dropping a `run` never leaves a part half sent.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubeon_api::HostAddress;
use kubeon_ports::{EventSink, HostSession, Report};
use kubeon_wire::{Category, Event, Fence, ForwardingIdentity, HostStep, Request, StepFailure};
use parking_lot::Mutex;
use russh::ChannelMsg;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;

use crate::command::Exit;
use crate::connection::Connection;
use crate::failure::{failure, last_lines};
use crate::remote::Remote;
use crate::sender::{Blob, QueuedStep, encode, open_blob, send};
use crate::session_state::{SessionState, StepSignal};

/// Time limit for the host to accept or refuse the fence. A slow host needs some seconds to start the program.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// The id of the request to forward parts, which is no step.
const FORWARDING: &str = "forward-parts";

/// Time after a step's own time limit until the silence of the host counts as failure.
const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// Time limit for the host to finish after the last step was sent.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest line that a host may send, in bytes.
const MAX_LINE: usize = 4 * 1024 * 1024;

/// Lines of the program's other output in a failure.
const TAIL_LINES: usize = 20;

/// An open session with a host's node program.
pub struct NodeSession {
    state: Arc<SessionState>,
    queue: Mutex<Option<UnboundedSender<QueuedStep>>>,
    reader: Mutex<Option<JoinHandle<()>>>,
}

/// Result of an attempt to open a session.
pub(crate) enum Opening {
    Opened(NodeSession),
    /// The program is missing on the host or damaged.
    Missing,
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
            // A missing program closes its input; its exit code shows the cause.
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
        let program = match timeout(OPEN_TIMEOUT, answer).await {
            Ok(answer) => answer?,
            Err(_) => {
                let cause =
                    format!("the node program on {host} did not answer within {} s", OPEN_TIMEOUT.as_secs());
                return Err(StepFailure { log: lines.output_tail(), ..failure(Category::Timeout, cause) });
            }
        };
        let Some(program) = program else { return Ok(Opening::Missing) };
        tracing::debug!(%host, program, "session open");
        Ok(Opening::Opened(Self::running(connection, lines)))
    }

    fn running(connection: Arc<Connection>, mut lines: Lines) -> Self {
        let state = Arc::new(SessionState::new(connection.host));
        let (queue, queued) = mpsc::unbounded_channel();
        let write = std::mem::replace(&mut lines.remote.write, Box::pin(tokio::io::sink()));
        let writer = tokio::spawn(send(write, queued, Arc::clone(&state))).abort_handle();
        let reader = tokio::spawn(receive(lines, Arc::clone(&state), connection, writer));
        Self { state, queue: Mutex::new(Some(queue)), reader: Mutex::new(Some(reader)) }
    }

    /// Registers the request as waiting under this id and queues it for the writer.
    fn enqueue(
        &self,
        id: &str,
        request: &Request,
        blob: Option<Blob>,
    ) -> Result<UnboundedReceiver<StepSignal>, StepFailure> {
        let line = encode(request)?;
        let (signals, events) = mpsc::unbounded_channel();
        let mut waiting = self.state.waiting();
        if let Some(closed) = &waiting.closed {
            return Err(closed.clone());
        }
        if waiting.steps.contains_key(id) {
            let cause = format!("step {id} is running already on {}", self.state.host);
            return Err(failure(Category::Failed, cause));
        }
        let queued = QueuedStep { id: id.to_owned(), line, blob, signals: signals.downgrade() };
        let queue = self.queue.lock();
        if queue.as_ref().is_none_or(|queue| queue.send(queued).is_err()) {
            let cause = format!("the session with {} is closed", self.state.host);
            return Err(failure(Category::Unreachable, cause));
        }
        waiting.steps.insert(id.to_owned(), signals);
        Ok(events)
    }
}

#[async_trait]
impl HostSession for NodeSession {
    /// The sink receives `Started`, `Progress` and `Note`; the result is the outcome of the step. Progress of a part never
    /// decreases, although both sides report it.
    async fn run(
        &self,
        step: HostStep,
        blob: Option<PathBuf>,
        sink: EventSink<'_>,
    ) -> Result<Report, StepFailure> {
        let blob = open_blob(&step, blob).await?;
        let mut events = self.enqueue(&step.id, &Request::Run(step.clone()), blob)?;
        let registered = RegisteredStep { state: &self.state, id: &step.id };
        let limit = Duration::from_secs(u64::from(step.timeout_seconds)) + GRACE_PERIOD;
        let mut furthest = 0;
        loop {
            let event = match timeout(limit, events.recv()).await {
                Ok(Some(StepSignal::Event(event))) => event,
                Ok(Some(StepSignal::Sent)) => continue,
                Ok(None) => return Err(self.state.closed()),
                Err(_) if self.state.idle_time() < limit => continue,
                Err(_) => return Err(registered.silence(limit)),
            };
            match event {
                Event::Done { changed, milliseconds, .. } => return Ok(Report { changed, milliseconds }),
                Event::Failed { failure, .. } => return Err(failure),
                Event::Progress { done, .. } if done <= furthest => {}
                Event::Progress { done, .. } => {
                    furthest = done;
                    sink(event);
                }
                Event::Started { .. }
                | Event::Received { .. }
                | Event::Note { .. }
                | Event::Working { .. } => sink(event),
                Event::Opened { .. }
                | Event::Refused { .. }
                | Event::Forwarding { .. }
                | Event::NotForwarding { .. } => {}
            }
        }
    }

    async fn forward_parts(&self, identity: ForwardingIdentity) -> Result<u16, String> {
        let request = Request::ForwardParts(identity);
        let mut events = self.enqueue(FORWARDING, &request, None).map_err(|failure| failure.cause)?;
        let _registered = RegisteredStep { state: &self.state, id: FORWARDING };
        loop {
            match timeout(OPEN_TIMEOUT, events.recv()).await {
                Ok(Some(StepSignal::Event(Event::Forwarding { port }))) => return Ok(port),
                Ok(Some(StepSignal::Event(Event::NotForwarding { cause }))) => return Err(cause),
                Ok(Some(_)) => {}
                Ok(None) => return Err(self.state.closed().cause),
                Err(_) => return Err(format!("{} did not answer in time", self.state.host)),
            }
        }
    }

    async fn ended(&self) -> StepFailure {
        // The sender is in `state`, so the channel cannot close while this waits.
        drop(self.state.ended.subscribe().wait_for(|ended| *ended).await);
        self.state.closed()
    }

    async fn close(&self) {
        self.queue.lock().take();
        let reader = self.reader.lock().take();
        if let Some(mut reader) = reader
            && timeout(CLOSE_TIMEOUT, &mut reader).await.is_err()
        {
            tracing::warn!(host = %self.state.host, "the host has not finished in time; the session is dropped");
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

/// Removes a step from the waiting steps when its `run` ends or is dropped.
struct RegisteredStep<'a> {
    state: &'a SessionState,
    id: &'a str,
}

impl RegisteredStep<'_> {
    fn silence(&self, limit: Duration) -> StepFailure {
        let cause = format!("{} has sent nothing for {} s", self.state.host, limit.as_secs());
        failure(Category::Timeout, cause)
    }
}

impl Drop for RegisteredStep<'_> {
    fn drop(&mut self) {
        self.state.waiting().steps.remove(self.id);
    }
}

/// The reader task. It owns the connection, so that the connection lives as long as the session.
async fn receive(
    mut lines: Lines,
    state: Arc<SessionState>,
    connection: Arc<Connection>,
    writer: AbortHandle,
) {
    loop {
        let event = tokio::select! {
            event = lines.next() => event,
            () = state.abort.notified() => return,
        };
        let Some(event) = event else { break };
        state.touch();
        let id = match &event {
            Event::Started { id }
            | Event::Progress { id, .. }
            | Event::Received { id }
            | Event::Note { id, .. }
            | Event::Working { id }
            | Event::Done { id, .. }
            | Event::Failed { id, .. } => id.as_str(),
            Event::Forwarding { .. } | Event::NotForwarding { .. } => FORWARDING,
            Event::Opened { .. } | Event::Refused { .. } => continue,
        };
        let waiting = state.waiting().steps.get(id).cloned();
        match waiting {
            Some(signals) => {
                // The receiver is closed when the `run` was dropped.
                signals.send(StepSignal::Event(event)).ok();
            }
            None => tracing::debug!(host = %state.host, id, "no run waits for this step"),
        }
    }
    state.close(lines.ended());
    // The writer may wait for space in a channel that the host no longer reads.
    writer.abort();
    drop(connection);
}

/// The program's output as events.
struct Lines {
    host: HostAddress,
    remote: Remote,
    buffer: Vec<u8>,
    other_output: VecDeque<u8>,
    exit: Option<Exit>,
}

impl Lines {
    fn new(host: HostAddress, remote: Remote) -> Self {
        Self { host, remote, buffer: Vec::new(), other_output: VecDeque::new(), exit: None }
    }

    /// The next event; `None` when the program has ended or the connection broke. Output that is not an event is kept for
    /// [`Lines::output_tail`].
    async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                match serde_json::from_slice(&line) {
                    Ok(event) => return Some(event),
                    Err(_) => self.keep_output(&line),
                }
            }
            if self.buffer.len() > MAX_LINE {
                let line = std::mem::take(&mut self.buffer);
                self.keep_output(&line);
            }
            match self.remote.read.wait().await {
                Some(ChannelMsg::Data { data }) => self.buffer.extend_from_slice(&data),
                Some(ChannelMsg::ExtendedData { data, .. }) => self.keep_output(&data),
                Some(ChannelMsg::ExitStatus { exit_status }) => self.exit = Some(Exit::Code(exit_status)),
                Some(ChannelMsg::ExitSignal { signal_name, .. }) => {
                    self.exit = Some(Exit::Signal(format!("{signal_name:?}")));
                }
                Some(ChannelMsg::Close) | None => return None,
                Some(_) => {}
            }
        }
    }

    fn keep_output(&mut self, bytes: &[u8]) {
        self.other_output.extend(bytes);
        let excess = self.other_output.len().saturating_sub(16 * 1024);
        self.other_output.drain(..excess);
    }

    /// The last lines of output that is not an event.
    fn output_tail(&self) -> Vec<String> {
        let output: Vec<u8> = self.other_output.iter().copied().collect();
        last_lines(&String::from_utf8_lossy(&output), TAIL_LINES)
    }

    /// The failure that explains the end of the events.
    fn ended(&self) -> StepFailure {
        let cause = match &self.exit {
            Some(exit) => format!("the node program on {} ended ({exit})", self.host),
            None => format!("the connection to {} broke", self.host),
        };
        StepFailure { log: self.output_tail(), ..failure(Category::Unreachable, cause) }
    }
}
