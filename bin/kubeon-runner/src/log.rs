//! The runner's own messages on standard error, with secrets redacted.

use std::io::{self, Write as _};
use std::sync::Arc;

use crate::redactor::Redactor;

/// Writes the runner's own messages.
#[derive(Debug, Clone)]
pub(crate) struct RunnerLog {
    redactor: Arc<Redactor>,
}

impl RunnerLog {
    /// A log that redacts these secrets.
    #[must_use]
    pub(crate) fn new(redactor: Arc<Redactor>) -> Self {
        Self { redactor }
    }

    /// Writes one message.
    pub(crate) fn line(&self, text: &str) {
        let mut line = format!("kubeon-runner: {}", self.redactor.redact_text(text.trim_end()));
        line.push('\n');
        // The work continues if no program reads the log.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}
