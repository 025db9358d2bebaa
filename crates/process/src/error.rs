//! Why a program did not succeed.

use std::io;
use std::time::Duration;

/// Why a program did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The program does not exist.
    #[error("{program} cannot be started: {source}")]
    Missing {
        /// The program.
        program: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The program exists and cannot be started or waited for.
    #[error("{program} cannot be started: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The program was stopped at its time limit.
    #[error("{program} was stopped: it ran for more than {} s", limit.as_secs())]
    Timeout {
        /// The program.
        program: String,
        /// The limit.
        limit: Duration,
    },
    /// The program was stopped with [`crate::ProgramStopper`].
    #[error("{program} was stopped")]
    Stopped {
        /// The program.
        program: String,
    },
    /// The program ended with an exit code other than 0, or by a signal.
    #[error("{program} failed ({status}): {stderr_tail}")]
    Failed {
        /// The program.
        program: String,
        /// The exit code or the signal.
        status: String,
        /// The last lines of its standard error.
        stderr_tail: String,
    },
}

impl ProgramError {
    pub(crate) fn start(program: &str, source: io::Error) -> Self {
        let program = program.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { program, source },
            _ => Self::Start { program, source },
        }
    }
}
