//! Quantiles.

/// Seconds, sorted.
#[derive(Debug, Clone, Default)]
pub(super) struct Times(Vec<f64>);

impl Times {
    pub(super) fn new(seconds: impl IntoIterator<Item = f64>) -> Self {
        let mut seconds: Vec<_> = seconds.into_iter().collect();
        seconds.sort_by(f64::total_cmp);
        Self(seconds)
    }

    /// The smallest time that at least `share` of all times do not exceed; none without times.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the length"
        )]
        let rank = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.max(1) - 1).copied()
    }

    /// p50, p99 and max: `12 / 30 / 41 ms`.
    pub(super) fn text(&self) -> String {
        let Some(max) = self.0.last() else { return "–".to_owned() };
        let quantile = |share| self.quantile(share).unwrap_or(*max);
        let (scale, unit) = if *max < 10.0 { (1000.0, "ms") } else { (1.0, "s") };
        let number = |seconds: f64| {
            let value = seconds * scale;
            if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
        };
        format!("{} / {} / {} {unit}", number(quantile(0.5)), number(quantile(0.99)), number(*max))
    }
}

/// `1 cluster`, `10 clusters`.
pub(super) fn many(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let times = Times::new((1..=100).rev().map(f64::from));
        assert_eq!(
            [0.5, 0.99, 1.0].map(|share| times.quantile(share)),
            [Some(50.0), Some(99.0), Some(100.0)]
        );
        assert_eq!(Times::new([7.0]).quantile(0.99), Some(7.0));
        assert_eq!(Times::new([3.0, 1.0]).quantile(0.5), Some(1.0));
        assert_eq!(Times::default().quantile(0.5), None);
    }

    #[test]
    fn the_longest_time_decides_the_unit_of_the_text() {
        assert_eq!(Times::new([0.001, 0.002, 0.0315]).text(), "2.0 / 32 / 32 ms");
        assert_eq!(Times::new([1.0, 263.2]).text(), "1.0 / 263 / 263 s");
        assert_eq!(Times::default().text(), "–");
    }
}
