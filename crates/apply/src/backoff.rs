//! The pauses between attempts.

use std::time::Duration;

use backon::ExponentialBuilder;

/// Pauses of 0.5, 1, 2, 4, 8, 8 … seconds. The caller sets their number.
pub(crate) fn pauses() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(500))
        .with_max_delay(Duration::from_secs(8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use backon::BackoffBuilder as _;

    #[test]
    fn doubles_up_to_eight_seconds_as_often_as_asked() {
        let milliseconds: Vec<u128> =
            pauses().with_max_times(7).build().map(|pause| pause.as_millis()).collect();
        assert_eq!(milliseconds, [500, 1000, 2000, 4000, 8000, 8000, 8000]);
        assert_eq!(pauses().with_max_times(0).build().count(), 0);
    }
}
