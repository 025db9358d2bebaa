//! Exponential backoff.

use std::time::Duration;

/// Exponential backoff.
#[derive(Debug, Clone)]
pub struct Backoff {
    next: Duration,
    most: Duration,
}

impl Backoff {
    /// Starts with `first` and doubles up to `most`.
    #[must_use]
    pub fn new(first: Duration, most: Duration) -> Self {
        Self { next: first, most }
    }

    /// Waits, and doubles the next wait.
    pub async fn wait(&mut self) {
        let now = self.next;
        self.next = self.most.min(now * 2);
        tokio::time::sleep(now).await;
    }
}
