//! The name of a stage.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tinystr::TinyAsciiStr;

/// The name of a stage, as used in step ids, plans and the output of programs: 1 to 16 lowercase letters.
/// Every stage defines its own name, see [`crate::stages::STAGES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StageName(TinyAsciiStr<16>);

/// A text that cannot be the name of a stage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a stage: a stage has 1 to 16 lowercase letters")]
pub struct StageNameError(String);

impl StageName {
    /// The name of a stage that is known when this program is compiled.
    ///
    /// # Panics
    /// When the text is not a name: a constant does not compile.
    #[must_use]
    #[allow(clippy::panic, reason = "evaluated by the compiler")]
    pub const fn new(name: &'static str) -> Self {
        match Self::of(name) {
            Some(name) => name,
            None => panic!("a stage has 1 to 16 lowercase letters"),
        }
    }

    const fn of(text: &str) -> Option<Self> {
        match TinyAsciiStr::try_from_str(text) {
            Ok(name) if !name.is_empty() && name.is_ascii_alphabetic_lowercase() => Some(Self(name)),
            _ => None,
        }
    }

    /// The name.
    #[must_use]
    pub const fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl FromStr for StageName {
    type Err = StageNameError;
    fn from_str(text: &str) -> Result<Self, StageNameError> {
        Self::of(text).ok_or_else(|| StageNameError(text.to_owned()))
    }
}

impl TryFrom<String> for StageName {
    type Error = StageNameError;
    fn try_from(text: String) -> Result<Self, StageNameError> {
        text.parse()
    }
}

impl From<StageName> for String {
    fn from(name: StageName) -> Self {
        name.as_str().to_owned()
    }
}

impl fmt::Display for StageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::STAGES;

    #[test]
    fn a_stage_has_one_name_in_json_and_in_text() {
        for stage in STAGES.iter().map(|stage| stage.name) {
            assert_eq!(serde_json::to_string(&stage).unwrap(), format!("\"{stage}\""));
            assert_eq!(stage.as_str().parse::<StageName>().unwrap(), stage);
        }
    }

    #[test]
    fn a_name_has_only_lowercase_letters() {
        for text in ["", "Join", "join/", "join-1", "a-name-of-more-than-16-letters"] {
            assert!(text.parse::<StageName>().is_err(), "{text}");
        }
    }
}
