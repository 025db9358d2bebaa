//! Ends a wait for a host that shows no progress: the limit starts again with every byte that arrives.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The time of the last byte from a host.
pub(crate) struct LastByte(Mutex<Instant>);

impl LastByte {
    /// Starts the limit.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    /// Starts the limit again.
    pub(crate) fn arrived(&self) {
        *self.0.lock() = Instant::now();
    }

    /// Returns when no byte has arrived for the time `limit`.
    pub(crate) async fn silent_for(&self, limit: Duration) {
        loop {
            let deadline = *self.0.lock() + limit;
            if Instant::now() >= deadline {
                return;
            }
            sleep_until(deadline).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_host_that_sends_something_again_and_again_is_not_silent() {
        let (last, start) = (LastByte::new(), Instant::now());
        let sending = async {
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_secs(19)).await;
                last.arrived();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = sending => {}
            () = last.silent_for(Duration::from_secs(20)) => {}
        }
        assert_eq!(start.elapsed(), Duration::from_secs(10 * 19 + 20));
    }
}
