//! How many workers may be unavailable at the same time while services restart.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of workers, or a percentage of the workers of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum MaxUnavailable {
    /// This many workers, at least 1.
    Workers(u32),
    /// This percentage of the workers, from 1 to 100, rounded down.
    Percent(u8),
}

/// A text that is neither a number of workers nor a percentage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a number of workers from 1 nor a percentage from 1% to 100%")]
pub struct MaxUnavailableError(String);

impl MaxUnavailable {
    /// The number of workers in a cluster with this many workers; at least 1.
    #[must_use]
    pub fn of(self, workers: usize) -> usize {
        let number = match self {
            Self::Workers(number) => usize::try_from(number).unwrap_or(usize::MAX),
            Self::Percent(percent) => workers * usize::from(percent) / 100,
        };
        number.max(1)
    }
}

impl Default for MaxUnavailable {
    fn default() -> Self {
        Self::Workers(1)
    }
}

impl FromStr for MaxUnavailable {
    type Err = MaxUnavailableError;
    fn from_str(text: &str) -> Result<Self, MaxUnavailableError> {
        let parsed = match text.strip_suffix('%') {
            Some(percent) => {
                percent.parse().ok().filter(|percent| (1..=100).contains(percent)).map(Self::Percent)
            }
            None => text.parse().ok().filter(|number| *number > 0).map(Self::Workers),
        };
        parsed.ok_or_else(|| MaxUnavailableError(text.to_owned()))
    }
}

impl fmt::Display for MaxUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workers(number) => write!(f, "{number}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl TryFrom<String> for MaxUnavailable {
    type Error = MaxUnavailableError;
    fn try_from(text: String) -> Result<Self, MaxUnavailableError> {
        text.parse()
    }
}

impl From<MaxUnavailable> for String {
    fn from(value: MaxUnavailable) -> Self {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_number_or_a_percentage() {
        for text in ["1", "7", "50%", "100%"] {
            assert_eq!(text.parse::<MaxUnavailable>().unwrap().to_string(), text);
        }
        for text in ["", "0", "0%", "101%", "-1", "50 %", "half"] {
            assert!(text.parse::<MaxUnavailable>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_percentage_is_rounded_down_to_at_least_one_worker() {
        let of = |text: &str, workers| text.parse::<MaxUnavailable>().unwrap().of(workers);
        assert_eq!([of("50%", 3), of("50%", 10), of("10%", 9), of("3", 2), of("100%", 0)], [1, 5, 1, 3, 1]);
    }
}
