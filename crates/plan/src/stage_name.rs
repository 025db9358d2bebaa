//! The names of the stages.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The name of a stage, as used in step ids, plans and the output of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageName {
    /// Kernel modules, parameters and hosts entries.
    Prepare,
    /// Parts of the bundle.
    Artifacts,
    /// The members of etcd.
    Etcd,
    /// The control plane.
    Control,
    /// The nodes.
    Join,
    /// The network of pods and Services.
    Network,
    /// The renewal of certificates by the hosts.
    Certificates,
    /// The checks that the cluster works.
    Verify,
    /// The removal of workers from the cluster.
    Leave,
    /// The removal of the whole cluster.
    Reset,
}

/// A text that is not the name of a stage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a stage")]
pub struct StageNameError(String);

impl StageName {
    /// Every stage.
    pub const ALL: [Self; 10] = [
        Self::Prepare,
        Self::Artifacts,
        Self::Etcd,
        Self::Control,
        Self::Join,
        Self::Network,
        Self::Certificates,
        Self::Verify,
        Self::Leave,
        Self::Reset,
    ];

    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Artifacts => "artifacts",
            Self::Etcd => "etcd",
            Self::Control => "control",
            Self::Join => "join",
            Self::Network => "network",
            Self::Certificates => "certificates",
            Self::Verify => "verify",
            Self::Leave => "leave",
            Self::Reset => "reset",
        }
    }
}

impl FromStr for StageName {
    type Err = StageNameError;
    fn from_str(text: &str) -> Result<Self, StageNameError> {
        let found = Self::ALL.into_iter().find(|stage| stage.as_str() == text);
        found.ok_or_else(|| StageNameError(text.to_owned()))
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

    #[test]
    fn a_stage_has_one_name_in_json_and_in_text() {
        for stage in StageName::ALL {
            assert_eq!(serde_json::to_string(&stage).unwrap(), format!("\"{stage}\""));
            assert_eq!(stage.as_str().parse::<StageName>().unwrap(), stage);
        }
        assert!("test".parse::<StageName>().is_err());
    }
}
