//! A graceful shutdown: the runner forwards SIGTERM or SIGINT to the work, waits for the grace period, then kills the
//! work.

use std::io;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::log::RunnerLog;
use crate::reaper::ProcessReaper;

/// The time for the last status and the callback after the grace period: 4 s of a kubelet's usual 30.
fn report_time(grace: Duration) -> Duration {
    (grace * 4 / 25).max(Duration::from_secs(4))
}

/// The first SIGTERM or SIGINT that arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShutdownRequest {
    /// SIGTERM or SIGINT.
    pub signal: Signal,
    /// The time by which the runner must have reported the result: the kubelet kills it soon after.
    pub deadline: Instant,
}

impl ShutdownRequest {
    /// The runner's exit code: 128 + the signal's number.
    #[must_use]
    pub(crate) fn code(self) -> u8 {
        u8::try_from(128 + self.signal.as_raw()).unwrap_or(u8::MAX)
    }
}

/// Reports whether a shutdown was requested.
#[derive(Debug, Clone)]
pub(crate) struct Shutdown {
    requested: watch::Receiver<Option<ShutdownRequest>>,
}

impl Shutdown {
    /// Starts to listen for signals and to forward them to the work.
    ///
    /// # Errors
    /// When a signal handler cannot be installed.
    pub(crate) fn listen(reaper: ProcessReaper, grace: Duration, log: RunnerLog) -> io::Result<Self> {
        let (request, requested) = watch::channel(None);
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut user1 = signal(SignalKind::user_defined1())?;
        let mut user2 = signal(SignalKind::user_defined2())?;
        tokio::spawn(async move {
            let mut kill_at: Option<Instant> = None;
            loop {
                let received = tokio::select! {
                    Some(()) = terminate.recv() => Signal::TERM,
                    Some(()) = interrupt.recv() => Signal::INT,
                    Some(()) = hangup.recv() => Signal::HUP,
                    Some(()) = user1.recv() => Signal::USR1,
                    Some(()) = user2.recv() => Signal::USR2,
                    () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                        log.line("the grace period is over; the runner kills the work");
                        reaper.signal(Signal::KILL);
                        kill_at = None;
                        continue;
                    }
                };
                if matches!(received, Signal::TERM | Signal::INT) && request.borrow().is_none() {
                    log.line(&format!("received signal {}; stopping the work", received.as_raw()));
                    let over = Instant::now() + grace;
                    kill_at = Some(over);
                    request.send_replace(Some(ShutdownRequest {
                        signal: received,
                        deadline: over + report_time(grace),
                    }));
                }
                reaper.signal(received);
            }
        });
        Ok(Self { requested })
    }

    /// The request; none before the first signal.
    #[must_use]
    pub(crate) fn request(&self) -> Option<ShutdownRequest> {
        *self.requested.borrow()
    }

    /// Waits until a shutdown is requested.
    pub(crate) async fn requested(&self) {
        let mut requested = self.requested.clone();
        if requested.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for `timeout`, or until the deadline of a shutdown that was or is requested.
    pub(crate) async fn deadline(&self, timeout: Duration) {
        let at_timeout = Instant::now() + timeout;
        let mut requested = self.requested.clone();
        let at_shutdown = async move {
            match requested.wait_for(Option::is_some).await.map(|request| *request) {
                Ok(Some(request)) => sleep_until(request.deadline).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep_until(at_timeout) => {}
            () = at_shutdown => {}
        }
    }
}
