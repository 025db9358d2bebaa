//! What the runner writes to the log of its pod, with secrets redacted: its own messages on standard error, and the
//! output of the work. And the steps of the work as records.

use std::io::{self, Write as _};
use std::sync::Arc;

use crate::recorded_log::RecordedLog;
use crate::redactor::Redactor;
use crate::step_records::StepRecords;

/// Writes the runner's own messages, and records everything that is written.
#[derive(Debug, Clone)]
pub(crate) struct RunnerLog {
    pub redactor: Arc<Redactor>,
    pub recorded: RecordedLog,
    pub steps: StepRecords,
}

impl RunnerLog {
    /// A log that redacts these secrets.
    #[must_use]
    pub(crate) fn new(redactor: Arc<Redactor>) -> Self {
        Self { redactor, recorded: RecordedLog::default(), steps: StepRecords::default() }
    }

    /// Writes one message.
    pub(crate) fn line(&self, text: &str) {
        let mut line = format!("kubeon-runner: {}", self.redactor.redact_text(text.trim_end()));
        line.push('\n');
        self.recorded.push(line.as_bytes());
        // The work continues if no program reads the log.
        let _ = io::stderr().write_all(line.as_bytes());
    }

    /// Writes lines that an earlier pod wrote, redacted.
    pub(crate) fn repeat(&self, lines: &[u8]) {
        self.recorded.push(lines);
        let _ = io::stderr().write_all(lines);
    }
}
