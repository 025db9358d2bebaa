//! The writing half of a session: steps in the order in which they came, each with the bytes of its part, and a
//! ping where there is nothing to send for a while.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubeon_wire::{Category, Event, HostStep, Op, PING_INTERVAL, Request, StepFailure};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, WeakUnboundedSender};
use tokio::time::timeout;

use crate::failure::failure;
use crate::remote::Writer;
use crate::session::Shared;

/// Bytes of a part read at a time.
const CHUNK: usize = 512 * 1024;

/// Shortest time between two words on what was sent.
const TICK: Duration = Duration::from_millis(100);

/// A part's file, its size and its path.
pub(crate) type Blob = (File, u64, PathBuf);

/// A step to be sent.
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) line: Vec<u8>,
    pub(crate) blob: Option<Blob>,
    /// Weak, so that a session that ends while it sends takes its steps along.
    pub(crate) signals: WeakUnboundedSender<Signal>,
}

impl Job {
    fn tell(&self, signal: Signal) {
        if let Some(signals) = self.signals.upgrade() {
            // A `run` that was given up does not listen any more.
            signals.send(signal).ok();
        }
    }
}

/// What a waiting `run` is told.
pub(crate) enum Signal {
    /// All of the step has been sent.
    Sent,
    Event(Event),
}

/// A request as a line.
pub(crate) fn encode(request: &Request) -> Result<Vec<u8>, StepFailure> {
    let mut line = serde_json::to_vec(request)
        .map_err(|error| failure(Category::Failed, format!("a request cannot be written: {error}")))?;
    line.push(b'\n');
    Ok(line)
}

/// Opens a part's file before anything is sent, and makes sure that it has the size promised.
pub(crate) async fn open_blob(step: &HostStep, blob: Option<PathBuf>) -> Result<Option<Blob>, StepFailure> {
    let size = match &step.op {
        Op::Part { size, .. } => *size,
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

/// The writer task. Ends the program's input when no more steps can come.
pub(crate) async fn send(mut write: Writer, mut queue: UnboundedReceiver<Job>, shared: Arc<Shared>) {
    loop {
        match timeout(PING_INTERVAL, queue.recv()).await {
            Ok(Some(mut job)) => match send_one(&mut write, &mut job, &shared).await {
                Ok(()) => job.tell(Signal::Sent),
                Err(failure) => {
                    // Half a part cannot be taken back: the session is of no more use.
                    shared.close(failure);
                    shared.abort.notify_one();
                    return;
                }
            },
            Ok(None) => break,
            Err(_) => ping(&mut write, &shared).await,
        }
    }
    if let Err(error) = write.shutdown().await {
        tracing::debug!(host = %shared.host, %error, "the session's input is closed already");
    }
}

/// Shows the host that somebody is there. It is no movement: that a step goes on, only the host can show.
async fn ping(write: &mut Writer, shared: &Shared) {
    let Ok(line) = encode(&Request::Ping) else { return };
    if let Err(error) = write.write_all(&line).await {
        // Why, the reader hears.
        tracing::debug!(host = %shared.host, %error, "nobody takes a ping");
    }
}

async fn send_one(write: &mut Writer, job: &mut Job, shared: &Shared) -> Result<(), StepFailure> {
    let broken = |error: std::io::Error| {
        failure(Category::Unreachable, format!("the connection to {} broke: {error}", shared.host))
    };
    write.write_all(&job.line).await.map_err(broken)?;
    shared.touch();
    let Some((mut file, total, path)) = job.blob.take() else { return Ok(()) };
    let mut buffer = vec![0; CHUNK];
    let (mut done, mut told) = (0, Instant::now());
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
        shared.touch();
        if told.elapsed() >= TICK || done == total {
            told = Instant::now();
            job.tell(Signal::Event(Event::Progress { id: job.id.clone(), done, total }));
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
    async fn a_host_that_there_is_nothing_to_say_to_hears_pings_in_time() {
        let (engine, host) = tokio::io::duplex(4096);
        let (jobs, queue) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new("127.0.0.1".parse().unwrap()));
        let sending = tokio::spawn(send(Box::pin(engine), queue, shared));
        let mut lines = BufReader::new(host).lines();
        for _ in 0..10 {
            let line = timeout(SILENCE_LIMIT / 2, lines.next_line()).await.unwrap().unwrap().unwrap();
            assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), Request::Ping);
        }
        drop(jobs);
        assert_eq!(lines.next_line().await.unwrap(), None, "the input ends with the session");
        sending.await.unwrap();
    }
}
