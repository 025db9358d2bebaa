//! The writer of a session: sends steps in order, each with the bytes of its part, and pings when there is nothing to
//! send.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubeon_wire::{Category, Event, HostStep, Op, PING_INTERVAL, Request, StepFailure};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, WeakUnboundedSender};
use tokio::time::timeout;

use crate::failure::failure;
use crate::remote::StdinWriter;
use crate::session_state::{SessionState, StepSignal};

/// Bytes of a part read at a time.
const CHUNK: usize = 512 * 1024;

/// Interval of progress events.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// A part's file, its size and its path.
pub(crate) type Blob = (File, u64, PathBuf);

/// A step to be sent.
pub(crate) struct QueuedStep {
    pub(crate) id: String,
    pub(crate) line: Vec<u8>,
    pub(crate) blob: Option<Blob>,
    /// Weak, so that the waiting `run` ends when the session ends during the sending.
    pub(crate) signals: WeakUnboundedSender<StepSignal>,
}

impl QueuedStep {
    fn signal(&self, signal: StepSignal) {
        if let Some(signals) = self.signals.upgrade() {
            // The receiver is closed when the `run` was dropped.
            signals.send(signal).ok();
        }
    }
}

/// A request as a line.
pub(crate) fn encode(request: &Request) -> Result<Vec<u8>, StepFailure> {
    let mut line = serde_json::to_vec(request)
        .map_err(|error| failure(Category::Failed, format!("a request cannot be encoded: {error}")))?;
    line.push(b'\n');
    Ok(line)
}

/// Opens a part's file before anything is sent, and checks its size.
pub(crate) async fn open_blob(step: &HostStep, blob: Option<PathBuf>) -> Result<Option<Blob>, StepFailure> {
    let size = match &step.op {
        Op::Part { size, source: None, .. } => *size,
        _ => return Ok(None),
    };
    let Some(path) = blob else {
        return Err(failure(
            Category::Failed,
            format!("step {} came without the bytes of its part", step.id),
        ));
    };
    let opened = async {
        let file = File::open(&path).await?;
        let found = file.metadata().await?.len();
        Ok::<_, std::io::Error>((file, found))
    };
    match opened.await {
        Ok((file, found)) if found == size => Ok(Some((file, size, path))),
        Ok((_, found)) => Err(failure(
            Category::Corrupt,
            format!(
                "{} has {found} bytes and should have {size}; build or fetch the bundle again",
                path.display()
            ),
        )),
        Err(error) => Err(failure(Category::Failed, format!("cannot read {}: {error}", path.display()))),
    }
}

/// The writer task. Closes the program's input when the queue is closed.
pub(crate) async fn send(
    mut write: StdinWriter,
    mut queue: UnboundedReceiver<QueuedStep>,
    state: Arc<SessionState>,
) {
    loop {
        match timeout(PING_INTERVAL, queue.recv()).await {
            Ok(Some(mut step)) => match send_step(&mut write, &mut step, &state).await {
                Ok(()) => step.signal(StepSignal::Sent),
                Err(failure) => {
                    // The host cannot skip half a part: the session cannot continue.
                    state.close(failure);
                    state.abort.notify_one();
                    return;
                }
            },
            Ok(None) => break,
            Err(_) => ping(&mut write, &state).await,
        }
    }
    if let Err(error) = write.shutdown().await {
        tracing::debug!(host = %state.host, %error, "the session's input was already closed");
    }
}

/// Shows the host that the engine is alive. A ping does not count as progress of a step: only the host reports progress.
async fn ping(write: &mut StdinWriter, state: &SessionState) {
    let Ok(line) = encode(&Request::Ping) else { return };
    if let Err(error) = write.write_all(&line).await {
        // The reader reports why the session ended.
        tracing::debug!(host = %state.host, %error, "a ping cannot be sent");
    }
}

async fn send_step(
    write: &mut StdinWriter,
    step: &mut QueuedStep,
    state: &SessionState,
) -> Result<(), StepFailure> {
    let broken = |error: std::io::Error| {
        failure(Category::Unreachable, format!("the connection to {} broke: {error}", state.host))
    };
    write.write_all(&step.line).await.map_err(broken)?;
    state.touch();
    let Some((mut file, total, path)) = step.blob.take() else { return Ok(()) };
    let mut buffer = vec![0; CHUNK];
    let (mut done, mut reported) = (0, Instant::now());
    while done < total {
        let wanted = usize::try_from(total - done).unwrap_or(CHUNK).min(CHUNK);
        let read = file.read(&mut buffer[..wanted]).await;
        let read = match read {
            Ok(0) => Err("it became shorter while it was sent".to_owned()),
            Ok(read) => Ok(read),
            Err(error) => Err(error.to_string()),
        };
        let read =
            read.map_err(|why| failure(Category::Corrupt, format!("cannot read {}: {why}", path.display())))?;
        write.write_all(&buffer[..read]).await.map_err(broken)?;
        done += u64::try_from(read).unwrap_or(0);
        state.touch();
        if reported.elapsed() >= PROGRESS_INTERVAL || done == total {
            reported = Instant::now();
            step.signal(StepSignal::Event(Event::Progress { id: step.id.clone(), done, total }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kubeon_wire::SILENCE_LIMIT;
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_idle_session_sends_pings_in_time() {
        let (engine, host) = tokio::io::duplex(4096);
        let (steps, queue) = mpsc::unbounded_channel();
        let state = Arc::new(SessionState::new("127.0.0.1".parse().unwrap()));
        let sending = tokio::spawn(send(Box::pin(engine), queue, state));
        let mut lines = BufReader::new(host).lines();
        for _ in 0..10 {
            let line = timeout(SILENCE_LIMIT / 2, lines.next_line()).await.unwrap().unwrap().unwrap();
            assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), Request::Ping);
        }
        drop(steps);
        assert_eq!(lines.next_line().await.unwrap(), None, "the input ends with the session");
        sending.await.unwrap();
    }
}
