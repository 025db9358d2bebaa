//! Telling a run to stop.

use std::sync::Arc;

use tokio::sync::watch;

/// A switch that is thrown once and never back. Clones are the same switch.
#[derive(Debug, Clone)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl Stop {
    /// A switch that nobody has thrown yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Throws it: no new step starts; running ones get [`crate::FAREWELL`] to end.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was thrown.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when it is thrown; never, when it is not.
    pub async fn stopped(&self) {
        let mut switch = self.0.subscribe();
        // The sender lives in `self`, so the channel cannot close while this waits.
        drop(switch.wait_for(|stopped| *stopped).await);
    }
}
