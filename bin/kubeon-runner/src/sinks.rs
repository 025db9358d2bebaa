//! Where the lines of the work go: hidden what is secret, into the log, and to what is known of the work.

use std::io::{self, Write};
use std::sync::Arc;

use kubeon_wire::Progress;
use tokio::sync::mpsc::UnboundedSender;

use crate::activity::Activity;
use crate::job::Boards;
use crate::masks::Masks;
use crate::spans::Spans;
use crate::stream::Sink;
use crate::tail::Tail;

/// One of the runner's own streams.
pub struct Output {
    to: Box<dyn Write + Send>,
    ready: Vec<u8>,
    masks: Arc<Masks>,
    tail: Tail,
    activity: Activity,
    spans: Spans,
}

impl Output {
    /// To standard output.
    pub fn stdout(masks: Arc<Masks>, tail: Tail, activity: Activity, spans: Spans) -> Self {
        Self { to: Box::new(io::stdout()), ready: Vec::new(), masks, tail, activity, spans }
    }

    /// To standard error.
    pub fn stderr(masks: Arc<Masks>, tail: Tail, activity: Activity, spans: Spans) -> Self {
        Self { to: Box::new(io::stderr()), ready: Vec::new(), masks, tail, activity, spans }
    }

    fn tell(&mut self, line: &[u8]) {
        let clean = self.masks.hide(line);
        let text = String::from_utf8_lossy(&clean);
        self.tail.push(&text);
        self.ready.extend_from_slice(text.as_bytes());
        self.ready.push(b'\n');
    }

    fn write(&mut self) {
        if self.ready.is_empty() {
            return;
        }
        self.activity.touch();
        // When nobody takes the log any more, the work goes on all the same.
        let _ = self.to.write_all(&self.ready).and_then(|()| self.to.flush());
        self.ready.clear();
    }
}

/// Lines of a script. What ansible says of plays and tasks tells how far it is.
pub struct Words {
    /// Where they go.
    pub output: Output,
    /// What is known.
    pub board: Boards,
    /// Whether the program kubeon may tell its progress among them.
    pub progress: bool,
}

impl Sink for Words {
    fn line(&mut self, line: &[u8]) {
        let progress = || serde_json::from_slice::<Progress>(line.trim_ascii()).ok();
        if self.progress
            && line.trim_ascii_start().starts_with(b"{")
            && let Some(progress) = progress()
        {
            return tell(&mut self.output, &self.board, &progress);
        }
        if let Some(heading) = heading(line) {
            let heading = self.output.masks.hide_text(heading);
            self.board.send_modify(|board| board.heading(&heading));
        }
        self.output.tell(line);
    }

    fn flush(&mut self) {
        self.output.write();
    }
}

/// `TASK [etcd : start] ****` without its stars.
fn heading(line: &[u8]) -> Option<&str> {
    let known = [&b"TASK ["[..], b"RUNNING HANDLER ["].iter().any(|word| line.starts_with(word));
    let text = std::str::from_utf8(line).ok().filter(|_| known)?;
    Some(text.trim_end_matches(['*', ' ']))
}

/// Lines that are passed on and mean nothing more.
pub struct Plain(pub Output);

impl Sink for Plain {
    fn line(&mut self, line: &[u8]) {
        self.0.tell(line);
    }

    fn flush(&mut self) {
        self.0.write();
    }
}

/// Lines of progress: JSON becomes what a person reads, anything else is passed on.
pub struct Story {
    /// Where they go.
    pub output: Output,
    /// What is known.
    pub board: Boards,
    /// Told when the program has saved and waits.
    pub saved: UnboundedSender<()>,
}

impl Sink for Story {
    fn line(&mut self, line: &[u8]) {
        match serde_json::from_slice::<Progress>(line) {
            Ok(progress) => {
                tell(&mut self.output, &self.board, &progress);
                if progress == Progress::Saved {
                    // Nobody waits for it once the program is given up.
                    let _ = self.saved.send(());
                }
            }
            Err(_) => self.output.tell(line),
        }
    }

    fn flush(&mut self) {
        self.output.write();
    }
}

/// Takes progress in, and passes on what a person reads of it.
fn tell(output: &mut Output, board: &Boards, progress: &Progress) {
    output.spans.take(progress);
    let mut told = String::new();
    board.send_modify(|board| told = board.take(progress));
    for one in told.lines() {
        output.tell(one.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_headings_of_ansible() {
        assert_eq!(heading(b"TASK [etcd : start] *******"), Some("TASK [etcd : start]"));
        assert_eq!(heading(b"ok: [h1]"), None);
    }
}
