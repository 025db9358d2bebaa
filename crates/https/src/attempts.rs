//! Requests that are tried again.

use std::thread;
use std::time::Duration;

use backon::{BlockingRetryable as _, ExponentialBuilder};

/// The wait before the second attempt; it doubles with each further one.
pub const FIRST_WAIT: Duration = Duration::from_millis(500);

/// Why one attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptFailure<E> {
    /// Another attempt may succeed.
    Again(String),
    /// No attempt can succeed.
    Never(E),
}

/// Tries until an attempt succeeds, or cannot succeed, or was the last one. `exhausted` makes an error out of the reason of that one.
/// Blocks the thread between attempts.
///
/// # Errors
/// That of [`AttemptFailure::Never`], or of `exhausted`.
pub fn repeated<T, E>(
    attempts: usize,
    attempt: impl FnMut() -> Result<T, AttemptFailure<E>>,
    exhausted: impl FnOnce(String) -> E,
) -> Result<T, E> {
    let waits =
        ExponentialBuilder::default().with_min_delay(FIRST_WAIT).with_max_times(attempts.saturating_sub(1));
    let may_pass = |failure: &AttemptFailure<E>| matches!(failure, AttemptFailure::Again(_));
    let result = attempt.retry(waits).sleep(thread::sleep).when(may_pass).call();
    result.map_err(|failure| match failure {
        AttemptFailure::Again(why) => exhausted(why),
        AttemptFailure::Never(error) => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of two attempts at most, and how many were made.
    fn tried(failure: &AttemptFailure<String>) -> (Result<(), String>, u32) {
        let mut count = 0;
        let attempt = || {
            count += 1;
            Err(failure.clone())
        };
        let result = repeated(2, attempt, |why| format!("at last {why}"));
        (result, count)
    }

    #[test]
    fn only_what_may_succeed_is_tried_again() {
        assert_eq!(tried(&AttemptFailure::Again("cut".to_owned())), (Err("at last cut".to_owned()), 2));
        assert_eq!(tried(&AttemptFailure::Never("absent".to_owned())), (Err("absent".to_owned()), 1));
    }
}
