//! When the work last said something, and the line that says that it lives when it says nothing.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::job::Boards;
use crate::voice::Voice;

/// When something was last said.
#[derive(Debug, Clone)]
pub struct Activity {
    last: Arc<Mutex<Instant>>,
}

impl Activity {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self { last: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Something was said.
    pub fn touch(&self) {
        *self.last.lock() = Instant::now();
    }

    fn last(&self) -> Instant {
        *self.last.lock()
    }

    /// Says that the work lives whenever nothing was said for `silence`. Never ends.
    pub async fn heartbeat(self, silence: Duration, voice: Voice, board: Boards) {
        let began = Instant::now();
        loop {
            let due = self.last() + silence;
            if due > Instant::now() {
                sleep_until(due).await;
                continue;
            }
            let (steps, current) = (board.borrow().steps().text, board.borrow().current());
            let at = current.map(|current| format!(", at {current}")).unwrap_or_default();
            let (minutes, quiet) = (began.elapsed().as_secs() / 60, silence.as_secs());
            voice.say(&format!("still at work after {minutes} min ({steps}{at}); no word for {quiet} s"));
            self.touch();
        }
    }
}
