//! How many requests may be on their way at once: as many as the API server answers without a queue of its own.
//!
//! ```text
//!   requests ──► wait in line ──► at most `limit` on their way ──► answers
//!                                       ▲                            │ how long writes took
//!                                       └── more, fewer, the same ◄──┘
//! ```
//!
//! A longer queue at the API server makes nothing faster: what hurries, the lease, and everybody else's requests wait in it.
//! Hurried requests do not wait here; each takes the places of two calm ones. What nobody waits for lets them pass, for a moment.
//! Every wait is bounded: what is on its way has a bound, and those in line go in order.

use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Enough to keep a small API server busy, also one that has to wait for its processor. Slow answers alone are no reason
/// for fewer: they may be somebody else's work.
const USUAL: usize = 24;
/// What refusals for load leave.
const FEWEST: usize = 8;
/// Enough for a large API server with a slow disk.
const MOST: usize = 64;

/// Places that a hurried request takes from the others: the fewer are on their way, the sooner each is answered.
const TAKEN: usize = 2;
/// Places that hurried requests leave to the others.
const LEFT: usize = 4;
/// Slow requests at once.
const SLOW: usize = 4;
/// After a hurried request others are likely to follow.
const FOLLOWED_WITHIN: Duration = Duration::from_millis(150);
/// How long one that nobody waits for lets others pass when it is its turn.
const LETS_PASS: Duration = Duration::from_millis(1500);
/// How long it lets them pass in all: hurried requests that go on and on do not hold up what only tells of them.
const LETS_PASS_IN_ALL: Duration = Duration::from_secs(10);

/// Lets requests pass.
pub(crate) struct ConcurrencyLimiter {
    permits: Semaphore,
    slow: Semaphore,
    measure: Mutex<Measure>,
}

/// One request on its way; its place is free again when this is dropped.
pub(crate) struct NormalPermit<'g> {
    limiter: &'g ConcurrencyLimiter,
    permit: Option<SemaphorePermit<'g>>,
    /// Its place among the slow ones.
    _slow: Option<SemaphorePermit<'g>>,
}

/// A hurried request on its way.
pub(crate) struct HighPermit<'g> {
    limiter: &'g ConcurrencyLimiter,
    /// Places that it has.
    instead: usize,
}

/// What the answers said so far.
#[derive(Debug)]
struct Measure {
    limit: usize,
    /// Places to take away as soon as they are free.
    owed: usize,
    /// Places that hurried requests have.
    high: usize,
    /// Of this window: how many writes were answered, and how long that took together.
    count: u32,
    sum: Duration,
    /// The mean of the best window; it creeps up, so that an old best does not hold for ever.
    best: Option<Duration>,
    /// When a hurried request was last on its way.
    hurry: Option<Instant>,
}

impl Default for ConcurrencyLimiter {
    fn default() -> Self {
        let measure = Measure {
            limit: USUAL,
            owed: 0,
            high: 0,
            count: 0,
            sum: Duration::ZERO,
            best: None,
            hurry: None,
        };
        Self { permits: Semaphore::new(USUAL), slow: Semaphore::new(SLOW), measure: Mutex::new(measure) }
    }
}

impl ConcurrencyLimiter {
    /// Waits for a place.
    pub(crate) async fn acquire(&self) -> NormalPermit<'_> {
        // It is never closed; if it were, nothing would be held back.
        NormalPermit { limiter: self, permit: self.permits.acquire().await.ok(), _slow: None }
    }

    /// Waits for a place of a request that nobody waits for.
    pub(crate) async fn acquire_low(&self) -> NormalPermit<'_> {
        let end = tokio::time::Instant::now() + LETS_PASS_IN_ALL;
        let slow = self.slow.acquire().await.ok();
        self.idle_until(end).await;
        NormalPermit { limiter: self, permit: self.permits.acquire().await.ok(), _slow: slow }
    }

    /// Waits for a moment without hurried requests; no longer than 1.5 s.
    pub(crate) async fn idle(&self) {
        self.idle_until(tokio::time::Instant::now() + LETS_PASS).await;
    }

    async fn idle_until(&self, end: tokio::time::Instant) {
        let end = end.min(tokio::time::Instant::now() + LETS_PASS);
        while let Some(pause) = self.busy_for() {
            let now = tokio::time::Instant::now();
            if now >= end {
                return;
            }
            tokio::time::sleep(pause.min(end - now)).await;
        }
    }

    /// Passes at once, in the places of others.
    pub(crate) fn acquire_high(&self) -> HighPermit<'_> {
        let mut measure = self.measure();
        measure.hurry = Some(Instant::now());
        let instead = TAKEN.min(measure.limit.saturating_sub(LEFT + measure.high));
        measure.high += instead;
        for _ in 0..instead {
            match self.permits.try_acquire() {
                Ok(free) => free.forget(),
                Err(_) => measure.owed += 1,
            }
        }
        HighPermit { limiter: self, instead }
    }

    /// Takes in how long a write took; `None` when it was refused for load, or not answered.
    pub(crate) fn observe(&self, time: Option<Duration>) {
        let wanted = self.permits.available_permits() == 0;
        let grown = self.measure().observe(time, wanted);
        self.permits.add_permits(grown);
    }

    /// How many may be on their way now.
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
        measure.hurry = Some(Instant::now());
        measure.high -= self.instead;
        let owed = self.instead.min(measure.owed);
        measure.owed -= owed;
        self.limiter.permits.add_permits(self.instead - owed);
    }
}

impl Measure {
    /// How many places more there are now. `wanted`: whether all are taken.
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
        if mean > best * 2 && self.limit > USUAL {
            self.shrink(self.limit / 8, USUAL);
        } else if (mean < best * 3 / 2 || self.limit < USUAL) && wanted && self.limit < MOST {
            self.limit += 1;
            // A place that was still to be taken away stays instead.
            if self.owed == 0 {
                return 1;
            }
            self.owed -= 1;
        }
        0
    }

    /// For how long others should not begin now; `None` when they are in nobody's way.
    fn busy_for(&self) -> Option<Duration> {
        if self.high > 0 {
            return Some(FOLLOWED_WITHIN);
        }
        let left = FOLLOWED_WITHIN.checked_sub(self.hurry?.elapsed())?;
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

    fn answers(limiter: &ConcurrencyLimiter, count: usize, milliseconds: u64) {
        for _ in 0..count {
            limiter.observe(Some(Duration::from_millis(milliseconds)));
        }
    }

    #[tokio::test]
    async fn the_limit_grows_while_answers_stay_fast_and_only_when_it_is_used() {
        let limiter = ConcurrencyLimiter::default();
        answers(&limiter, 1000, 5);
        assert_eq!(limiter.limit(), USUAL);
        let mut passes = Vec::new();
        for _ in 0..10_000 {
            while let Ok(permit) = limiter.permits.try_acquire() {
                passes.push(NormalPermit { limiter: &limiter, permit: Some(permit), _slow: None });
            }
            answers(&limiter, 1, 5);
        }
        assert_eq!((limiter.limit(), passes.len()), (MOST, MOST));
    }

    #[tokio::test]
    async fn slow_answers_and_refusals_make_it_smaller_down_to_a_bound() {
        let limiter = ConcurrencyLimiter::default();
        let mut passes = Vec::new();
        for _ in 0..2_000 {
            while let Ok(permit) = limiter.permits.try_acquire() {
                passes.push(NormalPermit { limiter: &limiter, permit: Some(permit), _slow: None });
            }
            answers(&limiter, 1, 5);
        }
        let before = limiter.limit();
        answers(&limiter, 200, 50);
        assert!(limiter.limit() < before, "{}", limiter.limit());
        answers(&limiter, 300, 50);
        assert_eq!(limiter.limit(), USUAL, "slow answers alone leave so many");
        for _ in 0..3 {
            limiter.observe(None);
        }
        assert_eq!(limiter.limit(), FEWEST);
        passes.clear();
        assert_eq!(limiter.permits.available_permits(), FEWEST);
    }

    #[tokio::test]
    async fn hurried_requests_pass_at_once_in_the_places_of_others() {
        let limiter = ConcurrencyLimiter::default();
        let calm = limiter.acquire().await;
        let high: Vec<_> = (0..100).map(|_| limiter.acquire_high()).collect();
        assert_eq!(limiter.permits.available_permits(), LEFT - 1);
        let another = limiter.acquire().await;
        drop((calm, high, another));
        assert_eq!(limiter.permits.available_permits(), USUAL);
    }

    #[tokio::test]
    async fn slow_requests_leave_places_to_others() {
        let limiter = ConcurrencyLimiter::default();
        let mut passes = Vec::new();
        for _ in 0..SLOW {
            passes.push(limiter.acquire_low().await);
        }
        assert!(tokio::time::timeout(Duration::from_millis(20), limiter.acquire_low()).await.is_err());
        passes.push(limiter.acquire().await);
        passes.clear();
        limiter.acquire_low().await;
    }

    #[tokio::test]
    async fn what_nobody_waits_for_lets_others_pass() {
        let at_once = |limiter: &ConcurrencyLimiter| limiter.measure().busy_for().is_none();
        let limiter = ConcurrencyLimiter::default();
        assert!(at_once(&limiter));
        let high = limiter.acquire_high();
        assert!(!at_once(&limiter));
        drop(high);
        assert!(!at_once(&limiter), "another one is likely to follow");
        let begun = Instant::now();
        limiter.acquire_low().await;
        assert!(at_once(&limiter) && begun.elapsed() < LETS_PASS);
        let high = limiter.acquire_high();
        let (begun, slow) = (Instant::now(), limiter.acquire_low().await);
        assert!(begun.elapsed() >= LETS_PASS, "not for ever");
        drop((slow, high));
    }

    #[tokio::test(start_paused = true)]
    async fn hurried_requests_that_go_on_and_on_hold_up_nothing_for_longer_than_its_bound() {
        let limiter = ConcurrencyLimiter::default();
        let _hurried = limiter.acquire_high();
        let begun = tokio::time::Instant::now();
        let tell = || async {
            drop(limiter.acquire_low().await);
            begun.elapsed()
        };
        let told = futures::future::join_all((0..200).map(|_| tell())).await;
        assert!(told[..SLOW].iter().all(|after| *after >= LETS_PASS), "{told:?}");
        assert!(told.iter().all(|after| *after <= LETS_PASS_IN_ALL + LETS_PASS), "{told:?}");
    }

    #[tokio::test]
    async fn a_place_is_had_when_another_is_free() {
        let limiter = ConcurrencyLimiter::default();
        let mut passes = Vec::new();
        for _ in 0..USUAL {
            passes.push(limiter.acquire().await);
        }
        let waits = tokio::time::timeout(Duration::from_millis(20), limiter.acquire());
        assert!(waits.await.is_err());
        passes.pop();
        limiter.acquire().await;
    }
}
