//! The identity of a step: a stage, what the step does, and the host whose journal remembers it.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use kubeon_api::HostName;
use serde::{Deserialize, Serialize};

/// The name of a stage, written once: beside the stage's steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageName(&'static str);

impl StageName {
    /// The stage of that name: lower case letters, neither `/` nor `@`.
    #[must_use]
    pub const fn of(name: &'static str) -> Self {
        Self(name)
    }

    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for StageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Identifies a step within a plan, and stays the same from plan to plan: `STAGE/WHAT@HOST`. Ids are ordered
/// as their texts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StepId(String);

/// A text that is no step id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a step id of the form STAGE/WHAT@HOST")]
pub struct StepIdError(String);

impl StepId {
    /// The id of what a stage does on a host.
    #[must_use]
    pub fn new(stage: StageName, what: &str, host: &HostName) -> Self {
        Self(format!("{stage}/{what}@{host}"))
    }

    /// The whole text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The stage's name.
    #[must_use]
    pub fn stage(&self) -> &str {
        split(&self.0).map_or("", |(stage, _, _)| stage)
    }

    /// What the step does, in a word.
    #[must_use]
    pub fn what(&self) -> &str {
        split(&self.0).map_or("", |(_, what, _)| what)
    }

    /// The name of the host whose journal remembers the step.
    #[must_use]
    pub fn host(&self) -> &str {
        split(&self.0).map_or("", |(_, _, host)| host)
    }
}

fn split(text: &str) -> Option<(&str, &str, &str)> {
    let (stage, rest) = text.split_once('/')?;
    let (what, host) = rest.rsplit_once('@')?;
    (!stage.is_empty() && !what.is_empty() && !host.is_empty()).then_some((stage, what, host))
}

impl FromStr for StepId {
    type Err = StepIdError;
    fn from_str(text: &str) -> Result<Self, StepIdError> {
        text.to_owned().try_into()
    }
}

impl TryFrom<String> for StepId {
    type Error = StepIdError;
    fn try_from(text: String) -> Result<Self, StepIdError> {
        if split(&text).is_some() { Ok(Self(text)) } else { Err(StepIdError(text)) }
    }
}

impl From<StepId> for String {
    fn from(id: StepId) -> Self {
        id.0
    }
}

/// An id is found, compared and searched by its text.
impl std::ops::Deref for StepId {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for StepId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for StepId {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for StepId {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_and_read_as_its_text() {
        let id = StepId::new(StageName::of("join"), "image-pause", &"h1".parse().unwrap());
        assert_eq!(id, "join/image-pause@h1");
        assert_eq!((id.stage(), id.what(), id.host()), ("join", "image-pause", "h1"));
        assert_eq!(id.to_string().parse::<StepId>().unwrap(), id);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, "\"join/image-pause@h1\"");
        assert_eq!(serde_json::from_str::<StepId>(&json).unwrap(), id);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "join", "join/keys", "keys@h1", "/keys@h1", "join/@h1", "join/keys@"] {
            assert!(text.parse::<StepId>().unwrap_err().to_string().contains("STAGE/WHAT@HOST"), "{text}");
        }
    }

    #[test]
    fn ids_are_ordered_as_their_texts() {
        let id = |text: &str| text.parse::<StepId>().unwrap();
        assert!(id("join/choose-kubelet@h1") < id("join/choose@h1"));
    }
}
