//! Ctrl-C and SIGTERM: the first one stops gently, the second one at once.

use kubeon_engine::error::ErrorCategory;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli_error::{CliError, exit_code};
use crate::output::CliOutput;

/// The signals that end a command, from now on and for the rest of the process.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Begins to watch.
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

    /// Returns when the next one comes.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Watches for signals from now on, for the rest of the process.
///
/// # Errors
/// When signals cannot be watched.
pub(crate) fn watch(cancellation: &CancellationToken, output: &CliOutput) -> Result<(), CliError> {
    let (signals, gone) = (Signals::new()?, output.clone());
    tokio::spawn(stop(signals, cancellation.clone(), output.clone(), move || {
        gone.on_screen(None);
        std::process::exit(i32::from(exit_code(ErrorCategory::Interrupted)));
    }));
    Ok(())
}

/// Cancels at the first signal, and calls `go` at the second.
async fn stop(mut signals: Signals, cancellation: CancellationToken, output: CliOutput, go: impl FnOnce()) {
    signals.next().await;
    cancellation.cancel();
    output.say("stopping: steps under way are finished first; press Ctrl-C again to stop at once");
    signals.next().await;
    go();
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

    /// One test for both signals: they reach the whole process.
    #[tokio::test]
    async fn the_first_signal_cancels_and_the_second_one_exits() {
        let output = CliOutput::new(
            &CommandLine::parse_from(["kubeon", "--quiet"]).output,
            &CliEnvironment::default(),
        );
        for (first, second) in [(Kind::INT, Kind::TERM), (Kind::TERM, Kind::INT)] {
            let (cancellation, gone) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
            let mark = Arc::clone(&gone);
            let signals = Signals::new().unwrap();
            let go = move || mark.store(true, Ordering::SeqCst);
            let watching = tokio::spawn(stop(signals, cancellation.clone(), output.clone(), go));
            assert!(!cancellation.is_cancelled());
            kill_process(getpid(), first).unwrap();
            tokio::time::timeout(Duration::from_secs(10), cancellation.cancelled()).await.unwrap();
            assert!(!gone.load(Ordering::SeqCst), "{first:?} alone only stops gently");
            kill_process(getpid(), second).unwrap();
            tokio::time::timeout(Duration::from_secs(10), watching).await.unwrap().unwrap();
            assert!(gone.load(Ordering::SeqCst));
        }
    }
}
