//! The time of the last line of output, and the heartbeat that the runner logs while the work writes no
//! output.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::log::RunnerLog;
use crate::progress_view::SharedProgress;

/// The time of the last line of output.
#[derive(Debug, Clone)]
pub(crate) struct Activity {
    last: Arc<Mutex<Instant>>,
}

impl Activity {
    /// Starts with the current time.
    #[must_use]
    pub(crate) fn now() -> Self {
        Self { last: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Records that a line was written now.
    pub(crate) fn touch(&self) {
        *self.last.lock() = Instant::now();
    }

    fn last(&self) -> Instant {
        *self.last.lock()
    }

    /// Logs that the work is still running each time no line was written for `silence`. Never returns.
    pub(crate) async fn heartbeat(self, silence: Duration, log: RunnerLog, view: SharedProgress) {
        let began = Instant::now();
        loop {
            let due = self.last() + silence;
            if due > Instant::now() {
                sleep_until(due).await;
                continue;
            }
            let (steps, current) = (view.borrow().steps().text, view.borrow().current());
            let at = current.map(|current| format!(", at {current}")).unwrap_or_default();
            let (minutes, quiet) = (began.elapsed().as_secs() / 60, silence.as_secs());
            log.line(&format!("still running after {minutes} min ({steps}{at}); no output for {quiet} s"));
            self.touch();
        }
    }
}
