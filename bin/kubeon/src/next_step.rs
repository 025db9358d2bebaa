//! What a user can do next, the last line of an error.

use std::fmt;

/// What the user can do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// A command, and what it does: `continue with`.
    Command {
        /// What it does.
        purpose: String,
        /// The command.
        command: String,
    },
    /// Advice that is not a single command.
    Advice(String),
}

impl NextStep {
    /// A command and what it does.
    pub(crate) fn command(purpose: impl Into<String>, command: impl Into<String>) -> Self {
        Self::Command { purpose: purpose.into(), command: command.into() }
    }
}

impl fmt::Display for NextStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command { purpose, command } => write!(f, "{purpose}: {command}"),
            Self::Advice(text) => f.write_str(text),
        }
    }
}
