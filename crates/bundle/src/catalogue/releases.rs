//! The releases of Kubernetes: which version a channel names, and how long a minor version gets fixes.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use kubeon_api::Version;
use serde::Deserialize;

use super::error::CatalogueError;

/// A name for a version that moves on with the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Channel {
    /// The version for clusters that matter.
    Stable,
    /// The newest version.
    Latest,
}

impl Channel {
    /// All channels.
    pub const ALL: [Self; 2] = [Self::Stable, Self::Latest];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Latest => "latest",
        }
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is no channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a channel; the channels are stable and latest")]
pub struct NotAChannel;

impl FromStr for Channel {
    type Err = NotAChannel;

    fn from_str(text: &str) -> Result<Self, NotAChannel> {
        Self::ALL.into_iter().find(|channel| channel.as_str() == text).ok_or(NotAChannel)
    }
}

/// `releases.yaml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Releases {
    channels: BTreeMap<Channel, Version>,
    /// By minor version, such as `1.36`.
    end_of_life: BTreeMap<String, Date>,
}

impl Releases {
    /// Checks that every channel names one of the versions, and that the end of every version is known.
    ///
    /// # Errors
    /// [`CatalogueError::Contradiction`].
    pub(super) fn check(&self, versions: &[Version]) -> Result<(), CatalogueError> {
        for channel in Channel::ALL {
            let named = self.channel(channel).filter(|version| versions.contains(version));
            named.ok_or_else(|| {
                CatalogueError::Contradiction(format!("channel {channel} names no version of the catalogue"))
            })?;
        }
        match versions.iter().find(|version| self.end_of_life(**version).is_none()) {
            Some(version) => Err(CatalogueError::Contradiction(format!("{version} has no end of life"))),
            None => Ok(()),
        }
    }

    pub(super) fn channel(&self, channel: Channel) -> Option<Version> {
        self.channels.get(&channel).copied()
    }

    pub(super) fn end_of_life(&self, version: Version) -> Option<Date> {
        self.end_of_life.get(&format!("{}.{}", version.major, version.minor)).copied()
    }
}
