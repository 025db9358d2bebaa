//! When a Job may be made: one after the other, evenly.
//!
//! Jobs that begin together end together, and somebody waits for each end. What makes pods of Jobs, places them and starts
//! them takes far longer for each than this pace, so nothing comes up later for it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// From one Job to the next: 400 at once are made within 5 s.
const APART: Duration = Duration::from_millis(12);

/// The moments at which Jobs are made.
#[derive(Default)]
pub(crate) struct Starts {
    next: Mutex<Option<Instant>>,
}

impl Starts {
    /// Waits for the next moment; not at all when the Job before was made a while ago. Bounded by how many wait, which is
    /// by how many lanes are worked on.
    pub async fn turn(&self) {
        tokio::time::sleep_until(self.claim(Instant::now())).await;
    }

    fn claim(&self, now: Instant) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = next.map_or(now, |next| next.max(now));
        *next = Some(mine + APART);
        mine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_alone_is_made_at_once_and_many_evenly() {
        let (starts, now) = (Starts::default(), Instant::now());
        let claimed: Vec<_> = (0..4).map(|_| starts.claim(now) - now).collect();
        assert_eq!(claimed, [Duration::ZERO, APART, APART * 2, APART * 3]);
        let later = now + Duration::from_secs(1);
        assert_eq!(starts.claim(later), later);
    }
}
