//! Waiting longer after every failure.

use std::time::Duration;

/// The next wait.
#[derive(Debug, Clone)]
pub struct Backoff {
    next: Duration,
    most: Duration,
}

impl Backoff {
    /// Starts with `first`, doubles up to `most`.
    #[must_use]
    pub fn new(first: Duration, most: Duration) -> Self {
        Self { next: first, most }
    }

    /// Waits.
    pub async fn wait(&mut self) {
        let now = self.next;
        self.next = self.most.min(now * 2);
        tokio::time::sleep(now).await;
    }
}
