//! Ctrl-C and SIGTERM: the first signal stops gracefully, the second signal stops at once.

use kubeon_engine::error::ErrorCategory;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli_error::{CliError, exit_code};
use crate::output::CliOutput;

/// The signals that end a command. They are caught for the rest of the process.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Starts to watch for the signals.
    ///
    /// # Errors
    /// When signals cannot be watched.
    pub(crate) fn new() -> Result<Self, CliError> {
        let unwatchable =
            |error: std::io::Error| CliError::failed(format!("cannot watch for signals: {error}"));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(unwatchable)?,
            terminate: signal(SignalKind::terminate()).map_err(unwatchable)?,
        })
    }

    /// Returns at the next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Cancels at the first signal and ends the process at the second.
///
/// # Errors
/// When signals cannot be watched.
pub(crate) fn watch(cancellation: &CancellationToken, output: &CliOutput) -> Result<(), CliError> {
    let (signals, screen) = (Signals::new()?, output.clone());
    tokio::spawn(handle(signals, cancellation.clone(), output.clone(), move || {
        screen.set_screen(None);
        std::process::exit(i32::from(exit_code(ErrorCategory::Interrupted)));
    }));
    Ok(())
}

/// Cancels at the first signal, and calls `exit` at the second.
async fn handle(
    mut signals: Signals,
    cancellation: CancellationToken,
    output: CliOutput,
    exit: impl FnOnce(),
) {
    signals.next().await;
    cancellation.cancel();
    output.info("stopping after the running steps; press Ctrl-C again to stop at once");
    signals.next().await;
    exit();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use clap::Parser as _;
    use rustix::process::{Signal as Kind, getpid, kill_process};

    use super::*;
    use crate::args::{CliEnvironment, CommandLine};

    /// One test for both signals, because they reach the whole process.
    #[tokio::test]
    async fn the_first_signal_cancels_and_the_second_one_exits() {
        let output = CliOutput::new(
            &CommandLine::parse_from(["kubeon", "--quiet"]).output,
            &CliEnvironment::default(),
        );
        for (first, second) in [(Kind::INT, Kind::TERM), (Kind::TERM, Kind::INT)] {
            let (cancellation, exited) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
            let mark = Arc::clone(&exited);
            let signals = Signals::new().unwrap();
            let exit = move || mark.store(true, Ordering::SeqCst);
            let watching = tokio::spawn(handle(signals, cancellation.clone(), output.clone(), exit));
            assert!(!cancellation.is_cancelled());
            kill_process(getpid(), first).unwrap();
            tokio::time::timeout(Duration::from_secs(10), cancellation.cancelled()).await.unwrap();
            assert!(!exited.load(Ordering::SeqCst), "{first:?} alone only cancels");
            kill_process(getpid(), second).unwrap();
            tokio::time::timeout(Duration::from_secs(10), watching).await.unwrap().unwrap();
            assert!(exited.load(Ordering::SeqCst));
        }
    }
}
