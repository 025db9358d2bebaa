//! Feature gates of the Kubernetes programs.

use std::collections::BTreeSet;
use std::str::FromStr;

use crate::names::{NameError, text_newtype};

text_newtype! {
    /// Feature gates: `Name=true` or `Name=false`, joined by commas, each name once.
    FeatureGates
}

impl FromStr for FeatureGates {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut names = BTreeSet::new();
        let is_gate = |pair: &str| {
            let Some((name, value)) = pair.split_once('=') else { return false };
            name.starts_with(|c: char| c.is_ascii_uppercase())
                && name.chars().all(|c| c.is_ascii_alphanumeric())
                && ["true", "false"].contains(&value)
                && names.insert(name.to_owned())
        };
        if text.split(',').all(is_gate) {
            return Ok(Self(text.to_owned()));
        }
        Err(NameError::Malformed {
            expected: "feature gates such as InPlacePodVerticalScaling=true,AllAlpha=false, each name once",
            value: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_a_gate() {
        for good in ["A=true", "InPlacePodVerticalScaling=true,AllAlpha=false"] {
            assert_eq!(good.parse::<FeatureGates>().unwrap().as_str(), good);
        }
        for bad in ["", "A", "A=yes", "a=true", "A=true,", "A=true,A=false", "A B=true"] {
            assert!(bad.parse::<FeatureGates>().is_err(), "{bad}");
        }
    }
}
