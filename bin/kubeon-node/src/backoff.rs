//! The pauses between repeated calls to an API server.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};

/// The first pause; each one is twice as long as the one before, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Pauses without end: the deadline of the step ends the attempts.
pub(crate) fn pauses() -> impl Iterator<Item = Duration> {
    let builder = ExponentialBuilder::default().with_min_delay(FIRST_PAUSE).with_max_delay(LONGEST_PAUSE);
    builder.without_max_times().build().chain(std::iter::repeat(LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_longest_pause() {
        let milliseconds: Vec<u128> = pauses().take(7).map(|pause| pause.as_millis()).collect();
        assert_eq!(milliseconds, [100, 200, 400, 800, 1600, 2000, 2000]);
    }
}
