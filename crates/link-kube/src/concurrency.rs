//! The limit of parallel requests: as many as the API server answers without a queue of its own.
//!
//! ```text
//!   requests ──► wait ──► at most `limit` in flight ──► answers
//!                               ▲                        │ latency of writes
//!                               └── change of `limit` ◄──┘
//! ```
//!
//! A longer queue at the API server makes nothing faster: urgent requests, the lease and the requests of
//! other clients wait in it. Urgent requests do not wait here; each takes the places of two normal ones.
//! Requests with low priority wait for them for a short time. Every wait is bounded: requests have a timeout,
//! and waiting requests are served in order.

use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The initial limit. It keeps a small API server busy, also one that waits for its processor. Slow answers
/// alone do not reduce the limit below it, because other clients may cause them.
const INITIAL: usize = 24;
/// The lowest limit, after refusals because of load.
const FEWEST: usize = 8;
/// The highest limit, for a large API server with a slow disk.
const MOST: usize = 64;

/// Places that an urgent request takes from normal ones. Fewer parallel requests make each answer faster.
const TAKEN_PLACES: usize = 2;
/// Places that urgent requests leave to normal ones.
const LEFT_PLACES: usize = 4;
/// Parallel requests with low priority.
const LOW_PRIORITY: usize = 4;
/// How long another urgent request is expected after an urgent one.
const URGENT_PAUSE: Duration = Duration::from_millis(150);
/// How long a request with low priority waits for urgent ones when it is the next one.
const DEFER_LIMIT: Duration = Duration::from_millis(1500);
/// How long such a request waits for urgent ones in total.
const DEFER_LIMIT_TOTAL: Duration = Duration::from_secs(10);

/// Limits parallel requests.
pub(crate) struct ConcurrencyLimiter {
    permits: Semaphore,
    low_priority: Semaphore,
    measure: Mutex<Measure>,
}

/// The place of one request; it is released on drop.
pub(crate) struct NormalPermit<'g> {
    limiter: &'g ConcurrencyLimiter,
    permit: Option<SemaphorePermit<'g>>,
    /// Its place among the requests with low priority.
    _low_priority: Option<SemaphorePermit<'g>>,
}

/// An urgent request in flight.
pub(crate) struct HighPermit<'g> {
    limiter: &'g ConcurrencyLimiter,
    /// The number of its places.
    places: usize,
}

/// The measured latency, and the limit.
#[derive(Debug)]
struct Measure {
    limit: usize,
    /// Places to remove as soon as they are free.
    owed: usize,
    /// Places of urgent requests.
    high: usize,
    /// The number of answered writes in the current window.
    count: u32,
    sum: Duration,
    /// The mean latency of the best window. It grows slowly, so that an old value does not apply forever.
    best: Option<Duration>,
    /// When an urgent request was last in flight.
    last_urgent: Option<Instant>,
}

impl Default for ConcurrencyLimiter {
    fn default() -> Self {
        let measure = Measure {
            limit: INITIAL,
            owed: 0,
            high: 0,
            count: 0,
            sum: Duration::ZERO,
            best: None,
            last_urgent: None,
        };
        Self {
            permits: Semaphore::new(INITIAL),
            low_priority: Semaphore::new(LOW_PRIORITY),
            measure: Mutex::new(measure),
        }
    }
}

impl ConcurrencyLimiter {
    /// Waits for a place.
    pub(crate) async fn acquire(&self) -> NormalPermit<'_> {
        // The semaphore is never closed; if it were, requests would not wait.
        NormalPermit { limiter: self, permit: self.permits.acquire().await.ok(), _low_priority: None }
    }

    /// Waits for a place for a request with low priority.
    pub(crate) async fn acquire_low(&self) -> NormalPermit<'_> {
        let end = tokio::time::Instant::now() + DEFER_LIMIT_TOTAL;
        let low_priority = self.low_priority.acquire().await.ok();
        self.idle_until(end).await;
        NormalPermit { limiter: self, permit: self.permits.acquire().await.ok(), _low_priority: low_priority }
    }

    /// Waits until no urgent request is in flight or expected, at most 1.5 s.
    pub(crate) async fn idle(&self) {
        self.idle_until(tokio::time::Instant::now() + DEFER_LIMIT).await;
    }

    async fn idle_until(&self, end: tokio::time::Instant) {
        let end = end.min(tokio::time::Instant::now() + DEFER_LIMIT);
        while let Some(pause) = self.busy_for() {
            let now = tokio::time::Instant::now();
            if now >= end {
                return;
            }
            tokio::time::sleep(pause.min(end - now)).await;
        }
    }

    /// Takes places at once.
    pub(crate) fn acquire_high(&self) -> HighPermit<'_> {
        let mut measure = self.measure();
        measure.last_urgent = Some(Instant::now());
        let places = TAKEN_PLACES.min(measure.limit.saturating_sub(LEFT_PLACES + measure.high));
        measure.high += places;
        for _ in 0..places {
            match self.permits.try_acquire() {
                Ok(free) => free.forget(),
                Err(_) => measure.owed += 1,
            }
        }
        HighPermit { limiter: self, places }
    }

    /// Records the latency of a write; `None` when it was refused because of load, or not answered.
    pub(crate) fn observe(&self, time: Option<Duration>) {
        let wanted = self.permits.available_permits() == 0;
        let grown = self.measure().observe(time, wanted);
        self.permits.add_permits(grown);
    }

    /// The current limit.
    pub(crate) fn limit(&self) -> usize {
        self.measure().limit
    }

    fn busy_for(&self) -> Option<Duration> {
        self.measure().busy_for()
    }

    fn measure(&self) -> MutexGuard<'_, Measure> {
        self.measure.lock()
    }
}

impl Drop for NormalPermit<'_> {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        let mut measure = self.limiter.measure();
        if measure.owed > 0 {
            measure.owed -= 1;
            permit.forget();
        }
    }
}

impl Drop for HighPermit<'_> {
    fn drop(&mut self) {
        let mut measure = self.limiter.measure();
        measure.last_urgent = Some(Instant::now());
        measure.high -= self.places;
        let owed = self.places.min(measure.owed);
        measure.owed -= owed;
        self.limiter.permits.add_permits(self.places - owed);
    }
}

impl Measure {
    /// Returns the number of added places. `wanted`: whether all places are taken.
    fn observe(&mut self, time: Option<Duration>, wanted: bool) -> usize {
        let Some(time) = time else {
            self.shrink(self.limit / 2, FEWEST);
            return 0;
        };
        self.count += 1;
        self.sum += time;
        if usize::try_from(self.count).unwrap_or(usize::MAX) < self.limit {
            return 0;
        }
        let mean = self.sum / self.count;
        (self.count, self.sum) = (0, Duration::ZERO);
        let best = self.best.map_or(mean, |best| mean.min(best + best / 20));
        self.best = Some(best);
        if mean > best * 2 && self.limit > INITIAL {
            self.shrink(self.limit / 8, INITIAL);
        } else if (mean < best * 3 / 2 || self.limit < INITIAL) && wanted && self.limit < MOST {
            self.limit += 1;
            // A place that was to be removed stays instead.
            if self.owed == 0 {
                return 1;
            }
            self.owed -= 1;
        }
        0
    }

    /// How long requests with low priority should wait now; `None` when they need not wait.
    fn busy_for(&self) -> Option<Duration> {
        if self.high > 0 {
            return Some(URGENT_PAUSE);
        }
        let left = URGENT_PAUSE.checked_sub(self.last_urgent?.elapsed())?;
        (!left.is_zero()).then_some(left)
    }

    fn shrink(&mut self, by: usize, least: usize) {
        let by = by.clamp(1, MOST).min(self.limit.saturating_sub(least));
        self.limit -= by;
        self.owed += by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    fn answers(limiter: &ConcurrencyLimiter, count: usize, milliseconds: u64) {
        for _ in 0..count {
            limiter.observe(Some(Duration::from_millis(milliseconds)));
        }
    }

    #[tokio::test]
    async fn the_limit_grows_while_answers_stay_fast_and_only_when_it_is_used() {
        let limiter = ConcurrencyLimiter::default();
        answers(&limiter, 1000, 5);
        assert_eq!(limiter.limit(), INITIAL);
        let mut permits = Vec::new();
        for _ in 0..10_000 {
            while let Ok(permit) = limiter.permits.try_acquire() {
                permits.push(NormalPermit { limiter: &limiter, permit: Some(permit), _low_priority: None });
            }
            answers(&limiter, 1, 5);
        }
        assert_eq!((limiter.limit(), permits.len()), (MOST, MOST));
    }

    #[tokio::test]
    async fn slow_answers_and_refusals_lower_the_limit_down_to_a_bound() {
        let limiter = ConcurrencyLimiter::default();
        let mut permits = Vec::new();
        for _ in 0..2_000 {
            while let Ok(permit) = limiter.permits.try_acquire() {
                permits.push(NormalPermit { limiter: &limiter, permit: Some(permit), _low_priority: None });
            }
            answers(&limiter, 1, 5);
        }
        let before = limiter.limit();
        answers(&limiter, 200, 50);
        assert!(limiter.limit() < before, "{}", limiter.limit());
        answers(&limiter, 300, 50);
        assert_eq!(limiter.limit(), INITIAL, "slow answers alone do not go below the initial limit");
        for _ in 0..3 {
            limiter.observe(None);
        }
        assert_eq!(limiter.limit(), FEWEST);
        permits.clear();
        assert_eq!(limiter.permits.available_permits(), FEWEST);
    }

    #[tokio::test]
    async fn urgent_requests_take_the_places_of_others_at_once() {
        let limiter = ConcurrencyLimiter::default();
        let calm = limiter.acquire().await;
        let high: Vec<_> = (0..100).map(|_| limiter.acquire_high()).collect();
        assert_eq!(limiter.permits.available_permits(), LEFT_PLACES - 1);
        let another = limiter.acquire().await;
        drop((calm, high, another));
        assert_eq!(limiter.permits.available_permits(), INITIAL);
    }

    #[tokio::test]
    async fn requests_with_low_priority_leave_places_to_others() {
        let limiter = ConcurrencyLimiter::default();
        let mut permits = Vec::new();
        for _ in 0..LOW_PRIORITY {
            permits.push(limiter.acquire_low().await);
        }
        assert!(limiter.acquire_low().now_or_never().is_none(), "no place with low priority is left");
        permits.push(limiter.acquire().await);
        permits.clear();
        limiter.acquire_low().await;
    }

    #[tokio::test]
    async fn requests_with_low_priority_wait_for_urgent_ones() {
        let at_once = |limiter: &ConcurrencyLimiter| limiter.measure().busy_for().is_none();
        let limiter = ConcurrencyLimiter::default();
        assert!(at_once(&limiter));
        let high = limiter.acquire_high();
        assert!(!at_once(&limiter));
        drop(high);
        assert!(!at_once(&limiter), "another urgent request is expected");
        let start = Instant::now();
        limiter.acquire_low().await;
        assert!(at_once(&limiter) && start.elapsed() < DEFER_LIMIT);
        let high = limiter.acquire_high();
        let (start, low_priority) = (Instant::now(), limiter.acquire_low().await);
        assert!(start.elapsed() >= DEFER_LIMIT, "the wait is bounded");
        drop((low_priority, high));
    }

    #[tokio::test(start_paused = true)]
    async fn continuous_urgent_requests_delay_others_only_up_to_the_bound() {
        let limiter = ConcurrencyLimiter::default();
        let _hurried = limiter.acquire_high();
        let start = tokio::time::Instant::now();
        let wait = || async {
            drop(limiter.acquire_low().await);
            start.elapsed()
        };
        let waited = futures::future::join_all((0..200).map(|_| wait())).await;
        assert!(waited[..LOW_PRIORITY].iter().all(|after| *after >= DEFER_LIMIT), "{waited:?}");
        assert!(waited.iter().all(|after| *after <= DEFER_LIMIT_TOTAL + DEFER_LIMIT), "{waited:?}");
    }

    #[tokio::test]
    async fn a_request_waits_until_a_place_is_free() {
        let limiter = ConcurrencyLimiter::default();
        let mut permits = Vec::new();
        for _ in 0..INITIAL {
            permits.push(limiter.acquire().await);
        }
        let mut waiting = std::pin::pin!(limiter.acquire());
        assert!(waiting.as_mut().now_or_never().is_none(), "every place is taken");
        permits.pop();
        waiting.await;
    }
}
