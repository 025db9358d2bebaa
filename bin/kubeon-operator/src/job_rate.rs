//! The rate at which Jobs are created: one after the other, in equal intervals.
//!
//! Jobs that start together end together, and a user waits for each end. Creating, scheduling and starting a pod takes
//! far longer than this interval, so no Job finishes later because of it.

use std::time::Duration;

use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

/// The time from one Job to the next: 400 Jobs are created within 5 s.
const JOB_INTERVAL: Duration = Duration::from_millis(12);
/// The most requests for Jobs in flight: an API server that was busy for a moment answers all of them together.
const IN_FLIGHT: usize = 4;
/// How long a request without an answer counts as in flight.
const IN_FLIGHT_FOR: Duration = Duration::from_millis(100);

/// Decides when the next Job may be created.
pub(crate) struct JobRateLimiter {
    in_flight: Semaphore,
    interval: Mutex<Interval>,
}

/// Permission to create a Job.
pub(crate) struct JobPermit<'s> {
    permit: Option<SemaphorePermit<'s>>,
    until: Instant,
}

impl Default for JobRateLimiter {
    fn default() -> Self {
        let mut interval = interval(JOB_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { in_flight: Semaphore::new(IN_FLIGHT), interval: Mutex::new(interval) }
    }
}

impl JobRateLimiter {
    /// Waits for the next interval; returns at once when the last Job is older than that. The wait is bounded by the
    /// number of queue keys that are reconciled at the same time.
    pub(crate) async fn acquire(&self) -> JobPermit<'_> {
        // The semaphore is never closed. If it were, requests would not be limited.
        let permit = self.in_flight.acquire().await.ok();
        self.interval.lock().await.tick().await;
        JobPermit { permit, until: Instant::now() + IN_FLIGHT_FOR }
    }
}

impl JobPermit<'_> {
    /// Waits for the request that creates the Job; it counts as in flight for at most 100 ms.
    pub(crate) async fn during<T>(mut self, request: impl Future<Output = T>) -> T {
        let mut request = std::pin::pin!(request);
        match tokio::time::timeout_at(self.until, &mut request).await {
            Ok(answer) => answer,
            Err(_) => {
                self.permit.take();
                request.await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_single_job_is_created_at_once_and_many_in_equal_intervals() {
        let job_rate = JobRateLimiter::default();
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let start = Instant::now();
            let mut created = Vec::new();
            for _ in 0..4 {
                job_rate.acquire().await.during(async { created.push(start.elapsed()) }).await;
            }
            assert_eq!(created[0], Duration::ZERO);
            assert!(created.windows(2).all(|two| two[1] - two[0] == JOB_INTERVAL), "{created:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn late_answers_delay_other_requests_only_briefly() {
        let (job_rate, start) = (JobRateLimiter::default(), Instant::now());
        let without_answer = || async { job_rate.acquire().await.during(std::future::pending::<()>()).await };
        let hang = futures::future::join_all((0..IN_FLIGHT).map(|_| without_answer()));
        let other = async { job_rate.acquire().await.during(std::future::ready(start.elapsed())).await };
        tokio::select! { biased; _ = hang => unreachable!("these requests never end"), _ = other => {} }
        assert!((IN_FLIGHT_FOR..IN_FLIGHT_FOR * 2).contains(&start.elapsed()), "{:?}", start.elapsed());
    }
}
