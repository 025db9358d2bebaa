//! Exponential backoff.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// Exponential backoff.
#[derive(Debug)]
pub(crate) struct Backoff {
    pauses: ExponentialBackoff,
    most: Duration,
}

impl Backoff {
    /// Starts with `first` and doubles up to `most`.
    #[must_use]
    pub(crate) fn new(first: Duration, most: Duration) -> Self {
        let builder = ExponentialBuilder::default().with_min_delay(first).with_max_delay(most);
        Self { pauses: builder.without_max_times().build(), most }
    }

    /// Waits, and doubles the next wait.
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.pauses.next().unwrap_or(self.most)).await;
    }
}
