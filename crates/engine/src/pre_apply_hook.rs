//! A pause before the first effect on a host, until the caller or a program of theirs allows it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::error::{EngineError, ErrorCategory};
use crate::output::EngineOutput;

/// What is waited for before the first effect on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreApplyWait {
    /// Nothing.
    Nothing,
    /// A line on standard input.
    Line,
    /// The success of a program that is given the cluster's name.
    Program(PathBuf),
}

impl PreApplyWait {
    /// Waits for it.
    ///
    /// # Errors
    /// When it does not come in time, or the run is cancelled. No host was written to then.
    pub async fn wait(
        &self,
        cluster: &str,
        output: &dyn EngineOutput,
        cancellation: &CancellationToken,
    ) -> Result<(), EngineError> {
        match self {
            Self::Nothing => Ok(()),
            Self::Line => {
                output.detail(1, "everything is saved; waiting for a line on standard input");
                line(tokio::io::stdin(), cancellation).await
            }
            Self::Program(program) => {
                output.detail(1, &format!("everything is saved; waiting for {}", program.display()));
                success(program, cluster, cancellation).await
            }
        }
    }
}

/// How long is waited for it.
pub const HOLD_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest line that is read.
const LINE: u64 = 4096;

/// Waits for a line, whatever it says.
///
/// # Errors
/// When none comes in time, the input ends, or the run is cancelled.
async fn line(input: impl AsyncRead + Unpin, cancellation: &CancellationToken) -> Result<(), EngineError> {
    let mut line = Vec::new();
    let mut input = BufReader::new(input.take(LINE));
    tokio::select! {
        read = input.read_until(b'\n', &mut line) => match read {
            Ok(0) => Err(held("standard input ended")),
            Ok(_) => Ok(()),
            Err(error) => Err(held(&format!("standard input cannot be read: {error}"))),
        },
        () = tokio::time::sleep(HOLD_TIMEOUT) => Err(held(&format!("no line came within {} s", HOLD_TIMEOUT.as_secs()))),
        () = cancellation.cancelled() => Err(interrupted()),
    }
}

/// Runs a program to its end. Its standard error is this program's.
async fn success(program: &Path, cluster: &str, cancellation: &CancellationToken) -> Result<(), EngineError> {
    let mut command = Command::new(program);
    // Standard output is for results.
    command.arg(cluster).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    let failed = |how: &dyn std::fmt::Display| held(&format!("{}: {how}", program.display()));
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    tokio::select! {
        ended = child.wait() => match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(failed(&status)),
            Err(error) => Err(failed(&error)),
        },
        () = tokio::time::sleep(HOLD_TIMEOUT) => Err(failed(&format!("not done within {} s", HOLD_TIMEOUT.as_secs()))),
        () = cancellation.cancelled() => Err(interrupted()),
    }
}

fn interrupted() -> EngineError {
    EngineError::new(ErrorCategory::Interrupted, "stopped while held; no host was written to")
}

fn held(why: &str) -> EngineError {
    EngineError::refused(format!("held, and not released: {why}; no host was written to"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_line_lets_it_go_on_and_nothing_else_does() {
        let cancellation = CancellationToken::new();
        line(&b"go\nmore"[..], &cancellation).await.unwrap();
        let ended = line(&b""[..], &cancellation).await.unwrap_err();
        assert_eq!(ended.category, ErrorCategory::Refused);
        assert!(ended.title.contains("standard input ended"), "{ended}");
        let (_open, silent) = tokio::io::duplex(8);
        let late = line(silent, &cancellation).await.unwrap_err();
        assert!(late.title.contains("within 120 s"), "{late}");
    }

    #[tokio::test]
    async fn a_program_that_succeeds_lets_it_go_on_and_one_that_fails_does_not() {
        let cancellation = CancellationToken::new();
        let run = async |program: &str| success(Path::new(program), "demo", &cancellation).await;
        run("true").await.unwrap();
        let failed = run("false").await.unwrap_err();
        assert!(failed.title.contains("false: exit status: 1"), "{failed}");
        let missing = run("/nowhere").await.unwrap_err();
        assert!(missing.title.contains("/nowhere: No such file"), "{missing}");
    }

    #[tokio::test(start_paused = true)]
    async fn ctrl_c_ends_it() {
        let cancellation = CancellationToken::new();
        cancellation.cancel();
        let (_open, silent) = tokio::io::duplex(8);
        assert_eq!(line(silent, &cancellation).await.unwrap_err().category, ErrorCategory::Interrupted);
    }
}
