//! The pre-apply hook: a pause before the first effect on a host, until the caller or a program allows the
//! run to continue.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kubeon_process::{ProgramError, ProgramRun};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio_util::sync::CancellationToken;

use crate::error::{EngineError, ErrorCategory};
use crate::output::EngineOutput;

/// The condition to wait for before the first effect on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreApplyWait {
    /// Do not wait.
    Nothing,
    /// A line on standard input.
    Line,
    /// The success of a program, which gets the name of the cluster as its argument.
    Program(PathBuf),
}

impl PreApplyWait {
    /// Waits for the condition.
    ///
    /// # Errors
    /// When the condition fails, is not met in time, or the run is cancelled. No host was written to.
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
                wait_for_line(tokio::io::stdin(), cancellation).await
            }
            Self::Program(program) => {
                output.detail(1, &format!("everything is saved; waiting for {}", program.display()));
                run_program(program, cluster, cancellation).await
            }
        }
    }
}

/// Time limit of the hook.
pub const TIMEOUT: Duration = Duration::from_secs(120);
/// Longest line that is read, in bytes.
const MAX_LINE: u64 = 4096;

/// Waits for a line of any content.
///
/// # Errors
/// When no line arrives in time, the input ends, or the run is cancelled.
async fn wait_for_line(
    input: impl AsyncRead + Unpin,
    cancellation: &CancellationToken,
) -> Result<(), EngineError> {
    let mut line = Vec::new();
    let mut input = BufReader::new(input.take(MAX_LINE));
    tokio::select! {
        read = input.read_until(b'\n', &mut line) => match read {
            Ok(0) => Err(not_met("standard input ended")),
            Ok(_) => Ok(()),
            Err(error) => Err(not_met(&format!("standard input cannot be read: {error}"))),
        },
        () = tokio::time::sleep(TIMEOUT) => Err(not_met(&format!("no line arrived within {} s", TIMEOUT.as_secs()))),
        () = cancellation.cancelled() => Err(interrupted()),
    }
}

/// Runs a program to its end. The program inherits standard error.
async fn run_program(
    program: &Path,
    cluster: &str,
    cancellation: &CancellationToken,
) -> Result<(), EngineError> {
    // Standard output is reserved for results. In our process group the program may ask on the terminal.
    let mut run = ProgramRun::new(program, TIMEOUT).in_our_group().inherit_stderr();
    run.command().arg(cluster);
    let stopper = run.stopper();
    let mut running = tokio::task::spawn_blocking(move || run.run());
    let ended = tokio::select! {
        ended = &mut running => ended,
        () = cancellation.cancelled() => {
            stopper.stop();
            running.await
        }
    };
    let failed = |how: &dyn std::fmt::Display| Err(not_met(&format!("{}: {how}", program.display())));
    match ended.map_err(|error| not_met(&error.to_string()))? {
        Ok(output) if output.success() => Ok(()),
        Ok(output) => failed(&output.status),
        Err(ProgramError::Stopped { .. }) => Err(interrupted()),
        Err(ProgramError::Timeout { limit, .. }) => failed(&format!("not done within {} s", limit.as_secs())),
        Err(ProgramError::Missing { source, .. } | ProgramError::Start { source, .. }) => failed(&source),
        Err(error @ ProgramError::Failed { .. }) => failed(&error),
    }
}

fn interrupted() -> EngineError {
    EngineError::new(
        ErrorCategory::Interrupted,
        "interrupted before the first effect; no host was written to",
    )
}

fn not_met(why: &str) -> EngineError {
    EngineError::refused(format!(
        "the condition for the first effect was not met: {why}; no host was written to"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_line_continues_the_run() {
        let cancellation = CancellationToken::new();
        wait_for_line(&b"go\nmore"[..], &cancellation).await.unwrap();
        let ended = wait_for_line(&b""[..], &cancellation).await.unwrap_err();
        assert_eq!(ended.category, ErrorCategory::Refused);
        assert!(ended.title.contains("standard input ended"), "{ended}");
        let (_open, silent) = tokio::io::duplex(8);
        let late = wait_for_line(silent, &cancellation).await.unwrap_err();
        assert!(late.title.contains("within 120 s"), "{late}");
    }

    #[tokio::test]
    async fn only_a_successful_program_continues_the_run() {
        let cancellation = CancellationToken::new();
        let run = async |program: &str| run_program(Path::new(program), "demo", &cancellation).await;
        run("true").await.unwrap();
        let failed = run("false").await.unwrap_err();
        assert!(failed.title.contains("false: exit status: 1"), "{failed}");
        let missing = run("/nowhere").await.unwrap_err();
        assert!(missing.title.contains("/nowhere: No such file"), "{missing}");
    }

    #[tokio::test]
    async fn cancellation_stops_the_program() {
        let cancellation = CancellationToken::new();
        let stop = async {
            tokio::task::yield_now().await;
            cancellation.cancel();
        };
        // The argument of the program is its time in seconds.
        let (ended, ()) = tokio::join!(run_program(Path::new("sleep"), "60", &cancellation), stop);
        assert_eq!(ended.unwrap_err().category, ErrorCategory::Interrupted);
    }

    #[tokio::test(start_paused = true)]
    async fn cancellation_ends_the_wait() {
        let cancellation = CancellationToken::new();
        cancellation.cancel();
        let (_open, silent) = tokio::io::duplex(8);
        assert_eq!(
            wait_for_line(silent, &cancellation).await.unwrap_err().category,
            ErrorCategory::Interrupted
        );
    }
}
