//! Handles the lines of the work: redacts secrets, writes the log, records progress.

use std::io::{self, Write};

use k8s_openapi::jiff::Timestamp;
use kubeon_wire::Progress;
use tokio::sync::mpsc::UnboundedSender;

use crate::activity::Activity;
use crate::log::RunnerLog;
use crate::progress_view::SharedProgress;
use crate::spans::RunSpans;
use crate::stream::Sink;
use crate::tail::Tail;

/// One of the runner's output streams.
pub(crate) struct Output {
    to: Box<dyn Write + Send>,
    ready: Vec<u8>,
    log: RunnerLog,
    tail: Tail,
    activity: Activity,
    spans: RunSpans,
}

impl Output {
    /// Standard output.
    pub(crate) fn stdout(log: RunnerLog, tail: Tail, activity: Activity, spans: RunSpans) -> Self {
        Self { to: Box::new(io::stdout()), ready: Vec::new(), log, tail, activity, spans }
    }

    /// Standard error.
    pub(crate) fn stderr(log: RunnerLog, tail: Tail, activity: Activity, spans: RunSpans) -> Self {
        Self { to: Box::new(io::stderr()), ready: Vec::new(), log, tail, activity, spans }
    }

    fn push(&mut self, line: &[u8]) {
        let clean = self.log.redactor.redact(line);
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
        self.log.recorded.push(&self.ready);
        // The work continues if no program reads the log.
        let _ = self.to.write_all(&self.ready).and_then(|()| self.to.flush());
        self.ready.clear();
    }
}

/// Lines of a script. The headings of ansible's tasks are recorded as progress.
pub(crate) struct ScriptLines {
    /// The output stream.
    pub output: Output,
    /// The progress of the work.
    pub view: SharedProgress,
    /// Whether the program kubeon may write progress events between them.
    pub progress: bool,
}

impl Sink for ScriptLines {
    fn line(&mut self, line: &[u8]) {
        let progress = || serde_json::from_slice::<Progress>(line.trim_ascii()).ok();
        if self.progress
            && line.trim_ascii_start().starts_with(b"{")
            && let Some(progress) = progress()
        {
            return record(&mut self.output, &self.view, &progress);
        }
        if let Some(heading) = heading(line) {
            let heading = self.output.log.redactor.redact_text(heading);
            self.view.send_modify(|view| view.start_task(&heading));
        }
        self.output.push(line);
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

/// Lines without progress.
pub(crate) struct PlainLines(pub Output);

impl Sink for PlainLines {
    fn line(&mut self, line: &[u8]) {
        self.0.push(line);
    }

    fn flush(&mut self) {
        self.0.write();
    }
}

/// Progress events in JSON, which are converted to readable text, and other lines.
pub(crate) struct ProgressLines {
    /// The output stream.
    pub output: Output,
    /// The progress of the work.
    pub view: SharedProgress,
    /// Receives a message when the program waits for its state to be saved.
    pub saved: UnboundedSender<()>,
}

impl Sink for ProgressLines {
    fn line(&mut self, line: &[u8]) {
        match serde_json::from_slice::<Progress>(line) {
            Ok(progress) => {
                record(&mut self.output, &self.view, &progress);
                if progress == Progress::Saved {
                    // The send fails if the program is being terminated.
                    let _ = self.saved.send(());
                }
            }
            Err(_) => self.output.push(line),
        }
    }

    fn flush(&mut self) {
        self.output.write();
    }
}

/// Records a progress event, and writes it as readable text.
fn record(output: &mut Output, view: &SharedProgress, progress: &Progress) {
    output.spans.record(progress);
    output.log.steps.record(progress, &output.log.redactor, Timestamp::now());
    let mut text = String::new();
    view.send_modify(|view| text = view.record(progress));
    for line in text.lines() {
        output.push(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_the_headings_of_ansible() {
        assert_eq!(heading(b"TASK [etcd : start] *******"), Some("TASK [etcd : start]"));
        assert_eq!(heading(b"ok: [h1]"), None);
    }
}
