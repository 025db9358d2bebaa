//! The identity of a step: a stage, what the step does, and the host whose journal remembers it.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use kubeon_api::HostName;
use serde::{Deserialize, Serialize};

use crate::stage_name::StageName;

/// Identifies a step within a plan, and stays the same from plan to plan: `STAGE/WHAT@HOST`. Ids are ordered
/// as their texts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StepId {
    text: String,
    stage: StageName,
}

/// A text that is no step id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a step id of the form STAGE/WHAT@HOST, or its stage does not exist")]
pub struct StepIdError(String);

impl StepId {
    /// The id of what a stage does on a host.
    #[must_use]
    pub fn new(stage: StageName, what: &str, host: &HostName) -> Self {
        Self { text: format!("{stage}/{what}@{host}"), stage }
    }

    /// The whole text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The stage's name.
    #[must_use]
    pub fn stage(&self) -> StageName {
        self.stage
    }

    /// What the step does, in a word.
    #[must_use]
    pub fn what(&self) -> &str {
        split(&self.text).map_or("", |(_, what, _)| what)
    }

    /// The name of the host whose journal remembers the step.
    #[must_use]
    pub fn host(&self) -> &str {
        split(&self.text).map_or("", |(_, _, host)| host)
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
        match split(&text).and_then(|(stage, _, _)| stage.parse().ok()) {
            Some(stage) => Ok(Self { text, stage }),
            None => Err(StepIdError(text)),
        }
    }
}

impl From<StepId> for String {
    fn from(id: StepId) -> Self {
        id.text
    }
}

/// An id is found, compared and searched by its text.
impl std::ops::Deref for StepId {
    type Target = str;
    fn deref(&self) -> &str {
        &self.text
    }
}

/// A map finds an id by its text, so both have the same hash.
impl Hash for StepId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Borrow<str> for StepId {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl PartialEq<str> for StepId {
    fn eq(&self, other: &str) -> bool {
        self.text == other
    }
}

impl PartialEq<&str> for StepId {
    fn eq(&self, other: &&str) -> bool {
        self.text == *other
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_and_read_as_its_text() {
        let id = StepId::new(StageName::Join, "image-pause", &"h1".parse().unwrap());
        assert_eq!(id, "join/image-pause@h1");
        assert_eq!((id.stage(), id.what(), id.host()), (StageName::Join, "image-pause", "h1"));
        assert_eq!(id.to_string().parse::<StepId>().unwrap(), id);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, "\"join/image-pause@h1\"");
        assert_eq!(serde_json::from_str::<StepId>(&json).unwrap(), id);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "join", "join/keys", "keys@h1", "/keys@h1", "join/@h1", "join/keys@", "test/keys@h1"]
        {
            assert!(text.parse::<StepId>().unwrap_err().to_string().contains("STAGE/WHAT@HOST"), "{text}");
        }
    }

    #[test]
    fn ids_are_ordered_as_their_texts() {
        let id = |text: &str| text.parse::<StepId>().unwrap();
        assert!(id("join/choose-kubelet@h1") < id("join/choose@h1"));
    }
}
