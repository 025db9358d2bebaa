//! Forwards the output of the work at once, line by line, with bounded memory.
//!
//! ```text
//!   pipe ─► 64 KiB ─► lines (split at 16 KiB, never inside a secret) ─► sink: redact, keep the last, write
//! ```
//!
//! Each pipe has a thread. If no program reads the log, the work blocks, as intended, but signals and reaping
//! do not.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::redactor::Redactor;

/// The longest line in bytes; longer lines are split.
pub(crate) const LINE: usize = 16 * 1024;
/// The longest line when the output may contain progress events.
pub(crate) const PROGRESS: usize = 1024 * 1024;
/// Bytes of one read.
const CHUNK: usize = 64 * 1024;
/// The maximum number of bytes that are read after the end of the work from a pipe that other processes still
/// hold open: a pipe's capacity.
const LEFT_IN_PIPE: usize = 1024 * 1024;

/// Receives lines.
pub(crate) trait Sink: Send + 'static {
    /// Receives a line, or a piece of a long line, without its newline.
    fn line(&mut self, line: &[u8]);
    /// Writes the received lines. Called when no more input is available.
    fn flush(&mut self);
}

/// Splits chunks into lines.
pub(crate) struct Lines {
    held: Vec<u8>,
    limit: usize,
    redactor: Arc<Redactor>,
}

impl Lines {
    /// Lines of at most `limit` bytes, never split inside a secret.
    pub(crate) fn new(limit: usize, redactor: Arc<Redactor>) -> Self {
        Self { held: Vec::new(), limit, redactor }
    }

    /// Splits a chunk and passes its complete lines to the sink.
    pub(crate) fn push(&mut self, chunk: &[u8], sink: &mut impl Sink) {
        let mut parts = chunk.split(|byte| *byte == b'\n');
        // The next chunk continues the part after the last line end.
        let rest = parts.next_back().unwrap_or_default();
        for part in parts {
            if self.held.is_empty() {
                pieces(part, self.limit, &self.redactor, sink);
            } else {
                self.held.extend_from_slice(part);
                let line = std::mem::take(&mut self.held);
                pieces(&line, self.limit, &self.redactor, sink);
            }
        }
        self.held.extend_from_slice(rest);
        while self.held.len() > self.limit {
            let cut = self.redactor.cut(&self.held, self.limit);
            sink.line(self.held.get(..cut).unwrap_or_default());
            self.held.drain(..cut);
        }
    }

    /// Passes the rest to the sink as the last line.
    pub(crate) fn end(&mut self, sink: &mut impl Sink) {
        if !self.held.is_empty() {
            let line = std::mem::take(&mut self.held);
            pieces(&line, self.limit, &self.redactor, sink);
        }
    }
}

fn pieces(line: &[u8], limit: usize, redactor: &Redactor, sink: &mut impl Sink) {
    let mut rest = line.strip_suffix(b"\r").unwrap_or(line);
    while rest.len() > limit {
        let (piece, more) = rest.split_at(redactor.cut(rest, limit));
        sink.line(piece);
        rest = more;
    }
    sink.line(rest);
}

/// The threads that forward the output of one process.
pub(crate) struct Pumps {
    /// Dropping it stops the threads.
    stop: PipeWriter,
    stop_signal: PipeReader,
    done: Vec<oneshot::Receiver<()>>,
}

impl Pumps {
    /// A value without threads.
    ///
    /// # Errors
    /// When no pipe can be created.
    pub(crate) fn new() -> io::Result<Self> {
        let (stop_signal, stop) = io::pipe()?;
        Ok(Self { stop, stop_signal, done: Vec::new() })
    }

    /// Starts a thread for a pipe.
    ///
    /// # Errors
    /// When no file descriptor or thread is available.
    pub(crate) fn add(
        &mut self,
        from: impl Into<OwnedFd>,
        mut lines: Lines,
        mut sink: impl Sink,
    ) -> io::Result<()> {
        let from = File::from(from.into());
        let stop_signal = self.stop_signal.try_clone()?;
        let (sender, done) = oneshot::channel();
        std::thread::Builder::new().name("output".to_owned()).spawn(move || {
            pump(&from, &stop_signal, |chunk| {
                lines.push(chunk, &mut sink);
                sink.flush();
            });
            lines.end(&mut sink);
            sink.flush();
            // The send fails if the receiver has timed out.
            let _ = sender.send(());
        })?;
        self.done.push(done);
        Ok(())
    }

    /// Waits for the end of the pipes. If other processes still hold them open after `timeout`, reads only
    /// the bytes that they contain.
    pub(crate) async fn finish(self, timeout: Duration) {
        let Self { stop, stop_signal, done } = self;
        drop(stop_signal);
        let mut stop = Some(stop);
        let mut until = Instant::now() + timeout;
        for mut thread in done {
            if timeout_at(until, &mut thread).await.is_err() && stop.take().is_some() {
                until = Instant::now() + timeout;
                // The operation must end also if no program reads the log.
                let _ = timeout_at(until, thread).await;
            }
        }
    }
}

/// Forwards chunks until the pipe ends, or until the stop signal arrived and the pipe is empty.
fn pump(mut from: &File, stop_signal: &PipeReader, mut take: impl FnMut(&[u8])) {
    let mut buffer = vec![0; CHUNK];
    let mut left: Option<usize> = None;
    loop {
        match (left, readable(from, stop_signal, left.is_some())) {
            (None, Ready::Sign) => {
                left = Some(LEFT_IN_PIPE);
                continue;
            }
            (Some(_), Ready::Sign | Ready::Nothing) | (Some(0), _) => return,
            _ => {}
        }
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                take(buffer.get(..count).unwrap_or_default());
                left = left.map(|left| left.saturating_sub(count));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

enum Ready {
    Pipe,
    Sign,
    Nothing,
}

fn readable(from: &File, stop_signal: &PipeReader, at_once: bool) -> Ready {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut both = [PollFd::new(from, PollFlags::IN), PollFd::new(stop_signal, PollFlags::IN)];
    // `poll` is not expected to fail for another reason than a signal; the read would then report the error.
    let waited = rustix::io::retry_on_intr(|| poll(&mut both, at_once.then_some(&now)));
    match (waited, both.map(|fd| !fd.revents().is_empty())) {
        (Err(_), _) | (_, [true, _]) => Ready::Pipe,
        (_, [false, true]) => Ready::Sign,
        _ => Ready::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct CollectedLines(Vec<String>);

    impl Sink for CollectedLines {
        fn line(&mut self, line: &[u8]) {
            self.0.push(String::from_utf8_lossy(line).into_owned());
        }
        fn flush(&mut self) {}
    }

    fn lines(limit: usize, chunks: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut collected) = (Lines::new(limit, Arc::default()), CollectedLines::default());
        for chunk in chunks {
            lines.push(chunk, &mut collected);
        }
        lines.end(&mut collected);
        collected.0
    }

    #[test]
    fn the_lines_do_not_depend_on_the_chunks() {
        let text = b"one\n\ntwo two\r\nlast";
        let whole = lines(100, &[text]);
        assert_eq!(whole, ["one", "", "two two", "last"]);
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(lines(100, &bytes), whole);
    }

    #[test]
    fn splits_long_lines_and_loses_nothing() {
        let long = "x".repeat(1000);
        for chunk in [7, 64, 1000] {
            let chunks: Vec<&[u8]> = long.as_bytes().chunks(chunk).collect();
            let pieces = lines(64, &chunks);
            assert!(pieces.iter().all(|piece| piece.len() <= 64));
            assert_eq!(pieces.concat(), long);
        }
    }

    #[test]
    fn forwards_a_pipe_that_another_process_still_holds_open() {
        let (reader, mut writer) = io::pipe().unwrap();
        io::Write::write_all(&mut writer, b"text").unwrap();
        let (stop_signal, stop) = io::pipe().unwrap();
        drop(stop);
        let mut got = Vec::new();
        pump(&File::from(OwnedFd::from(reader)), &stop_signal, |chunk| got.extend_from_slice(chunk));
        assert_eq!(got, b"text");
        drop(writer);
    }
}
