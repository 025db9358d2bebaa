//! The id of a step: its stage, its action, and the host that it concerns unless it concerns the whole cluster.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use kubeon_api::HostName;
use serde::{Deserialize, Serialize};

use crate::stage_name::StageName;

/// The id of a step within a plan. It is the same in every plan. As text it is `STAGE/WHAT@HOST`, or
/// `STAGE/WHAT` for a step about the whole cluster, which any master may execute. Ids are ordered as their
/// texts.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StepId {
    stage: StageName,
    /// One word; constant for most steps, so that an id needs no memory for it.
    what: Cow<'static, str>,
    /// `None` for a step about the whole cluster.
    host: Option<HostName>,
}

/// A text that is not a step id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a step id of the form STAGE/WHAT@HOST or STAGE/WHAT, or its stage does not exist")]
pub struct StepIdError(String);

impl StepId {
    /// The id of the action `what` of a stage on a host.
    #[must_use]
    pub fn new(stage: StageName, what: impl Into<Cow<'static, str>>, host: &HostName) -> Self {
        Self { stage, what: what.into(), host: Some(host.clone()) }
    }

    /// The id of the action `what` of a stage about the whole cluster.
    #[must_use]
    pub fn of_cluster(stage: StageName, what: impl Into<Cow<'static, str>>) -> Self {
        Self { stage, what: what.into(), host: None }
    }

    /// The stage.
    #[must_use]
    pub fn stage(&self) -> StageName {
        self.stage
    }

    /// The action of the step, one word.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The name of the host that the step concerns; `None` for a step about the whole cluster.
    #[must_use]
    pub fn host(&self) -> Option<&HostName> {
        self.host.as_ref()
    }

    /// The parts of the text after the stage.
    fn after_stage(&self) -> [&str; 3] {
        match &self.host {
            Some(host) => [&self.what, "@", host.as_str()],
            None => [&self.what, "", ""],
        }
    }

    fn bytes_after_stage(&self) -> impl Iterator<Item = u8> {
        self.after_stage().into_iter().flat_map(str::bytes)
    }

    /// Replaces the content of the buffer by the text of the id.
    pub(crate) fn write_to(&self, text: &mut String) {
        text.clear();
        for part in [self.stage.as_str(), "/"].into_iter().chain(self.after_stage()) {
            text.push_str(part);
        }
    }
}

fn split(text: &str) -> Option<(&str, &str, Option<&str>)> {
    let (stage, rest) = text.split_once('/')?;
    let (what, host) = rest.rsplit_once('@').map_or((rest, None), |(what, host)| (what, Some(host)));
    (!what.is_empty()).then_some((stage, what, host))
}

impl FromStr for StepId {
    type Err = StepIdError;
    fn from_str(text: &str) -> Result<Self, StepIdError> {
        let parsed = split(text).and_then(|(stage, what, host)| {
            Some(Self {
                stage: stage.parse().ok()?,
                what: Cow::Owned(what.to_owned()),
                host: host.map(str::parse).transpose().ok()?,
            })
        });
        parsed.ok_or_else(|| StepIdError(text.to_owned()))
    }
}

impl TryFrom<String> for StepId {
    type Error = StepIdError;
    fn try_from(text: String) -> Result<Self, StepIdError> {
        text.parse()
    }
}

impl From<StepId> for String {
    fn from(id: StepId) -> Self {
        id.to_string()
    }
}

/// The order of the texts. `@` comes after `-` and the digits, so `choose-kubelet` comes before `choose`.
impl Ord for StepId {
    fn cmp(&self, other: &Self) -> Ordering {
        // No stage name is the beginning of another.
        let stages = self.stage.as_str().cmp(other.stage.as_str());
        stages.then_with(|| {
            if self.what == other.what {
                return self.host.cmp(&other.host);
            }
            self.bytes_after_stage().cmp(other.bytes_after_stage())
        })
    }
}

impl PartialOrd for StepId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write_to(&mut text);
        f.pad(&text)
    }
}

impl fmt::Debug for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> StepId {
        text.parse().unwrap()
    }

    #[test]
    fn an_id_is_written_and_read_as_its_text() {
        let id = StepId::new(StageName::new("join"), "image-pause", &"h1".parse().unwrap());
        assert_eq!(id.to_string(), "join/image-pause@h1");
        assert_eq!((id.stage(), id.what()), (StageName::new("join"), "image-pause"));
        assert_eq!(id.host().map(HostName::as_str), Some("h1"));
        assert_eq!(id.to_string().parse::<StepId>().unwrap(), id);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, "\"join/image-pause@h1\"");
        assert_eq!(serde_json::from_str::<StepId>(&json).unwrap(), id);
        assert_eq!(format!("{id:<22}|{id:?}"), "join/image-pause@h1   |\"join/image-pause@h1\"");
    }

    #[test]
    fn a_step_about_the_whole_cluster_names_no_host() {
        let id = StepId::of_cluster(StageName::new("join"), "ready-h4");
        assert_eq!(id.to_string(), "join/ready-h4");
        assert_eq!(id.to_string().parse::<StepId>().unwrap(), id);
        assert_eq!(id.host(), None);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "join",
            "join/",
            "keys@h1",
            "/keys@h1",
            "join/@h1",
            "join/keys@",
            "test/keys@h1",
            "join/keys@H 1",
        ] {
            assert!(text.parse::<StepId>().unwrap_err().to_string().contains("STAGE/WHAT@HOST"), "{text}");
        }
    }

    #[test]
    fn ids_are_ordered_as_their_texts() {
        let texts = [
            "artifacts/etcd@h1",
            "control/keys@h1",
            "join/choose-kubelet@h1",
            "join/choose@h1",
            "join/choose@h10",
            "join/choose@h2",
            "join/ready-h1",
            "join/ready-h10",
            "reset/host@h1",
        ];
        for (one, other) in texts.iter().flat_map(|one| texts.iter().map(move |other| (one, other))) {
            assert_eq!(id(one).cmp(&id(other)), one.cmp(other), "{one} {other}");
        }
    }
}
