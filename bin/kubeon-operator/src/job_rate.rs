//! When a Job may be made: one after the other, evenly.
//!
//! Jobs that begin together end together, and somebody waits for each end. What makes pods of Jobs, places them and starts
//! them takes far longer for each than this pace, so nothing comes up later for it.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// From one Job to the next: 400 at once are made within 5 s.
const APART: Duration = Duration::from_millis(12);
/// Requests for Jobs on their way at once: what an API server that was busy for a moment answers all at once.
const BESIDE: usize = 4;
/// For how long one without an answer keeps others from going.
const HOLDS_UP: Duration = Duration::from_millis(100);

/// The moments at which Jobs are made.
pub(crate) struct JobRateLimiter {
    places: Semaphore,
    next: Mutex<Option<Instant>>,
}

/// Leave to make a Job.
pub(crate) struct JobPermit<'s> {
    place: Option<SemaphorePermit<'s>>,
    until: Instant,
}

impl Default for JobRateLimiter {
    fn default() -> Self {
        Self { places: Semaphore::new(BESIDE), next: Mutex::default() }
    }
}

impl JobRateLimiter {
    /// Waits for the next moment; not at all when the Job before was made a while ago. Bounded by how many wait, which is
    /// by how many lanes are worked on.
    pub(crate) async fn acquire(&self) -> JobPermit<'_> {
        // It is never closed; if it were, nothing would be held back.
        let place = self.places.acquire().await.ok();
        let moment = self.claim(Instant::now());
        tokio::time::sleep_until(moment).await;
        JobPermit { place, until: moment + HOLDS_UP }
    }

    fn claim(&self, now: Instant) -> Instant {
        let mut next = self.next.lock();
        let mine = next.map_or(now, |next| next.max(now));
        *next = Some(mine + APART);
        mine
    }
}

impl JobPermit<'_> {
    /// Waits for what makes the Job; others wait for it no longer than 100 ms.
    pub(crate) async fn during<T>(mut self, made: impl Future<Output = T>) -> T {
        let mut made = std::pin::pin!(made);
        match tokio::time::timeout_at(self.until, &mut made).await {
            Ok(answer) => answer,
            Err(_) => {
                self.place.take();
                made.await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_alone_is_made_at_once_and_many_evenly() {
        let (job_rate, now) = (JobRateLimiter::default(), Instant::now());
        let claimed: Vec<_> = (0..4).map(|_| job_rate.claim(now) - now).collect();
        assert_eq!(claimed, [Duration::ZERO, APART, APART * 2, APART * 3]);
        let later = now + Duration::from_secs(1);
        assert_eq!(job_rate.claim(later), later);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_are_late_hold_others_up_for_a_moment_only() {
        let (job_rate, begun) = (JobRateLimiter::default(), Instant::now());
        let never = || async { job_rate.acquire().await.during(std::future::pending::<()>()).await };
        let hang = futures::future::join_all((0..BESIDE).map(|_| never()));
        let goes = async { job_rate.acquire().await.during(std::future::ready(begun.elapsed())).await };
        tokio::select! { biased; _ = hang => unreachable!("they hang"), _ = goes => {} }
        assert!((HOLDS_UP..HOLDS_UP * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }
}
