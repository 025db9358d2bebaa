//! Which keys of a cluster sign, and which are trusted, while they are replaced.
//!
//! ```text
//!                  signs   trusted   from which a node gets its own certificates
//!   keys 1           1       1         1
//!   ► trust          1       1, 2      1     every program learns the new keys
//!   ► reissue        2       2, 1      1     every certificate is made again
//!   ► renew          2       2, 1      2     kubelets, tokens of pods and Secrets change to the new keys
//!   ► drop           2       2         2     nobody trusts the old keys any more
//!   keys 2           2       2         2
//! ```
//!
//! In each phase everything that hosts use is trusted by hosts that are still in the phase before, and the other way round.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a set of keys: 1 for those with which a cluster was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyNumber(u32);

impl KeyNumber {
    /// The keys with which a cluster was made.
    pub const FIRST: Self = Self(1);

    /// The keys after these.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The keys before these; `None` for the first keys.
    #[must_use]
    pub const fn previous(self) -> Option<Self> {
        if self.0 <= 1 { None } else { Some(Self(self.0 - 1)) }
    }
}

impl fmt::Display for KeyNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A phase of a rotation. All hosts complete a phase before the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RotationPhase {
    /// The new keys are trusted beside the old keys.
    Trust,
    /// The new keys sign. The old keys are still trusted.
    Reissue,
    /// Kubelets, tokens of pods and Secrets change to the new keys.
    Renew,
    /// Only the new keys are trusted.
    Drop,
}

impl RotationPhase {
    /// All phases, in order.
    pub const ALL: [Self; 4] = [Self::Trust, Self::Reissue, Self::Renew, Self::Drop];

    /// The phase after this one; `None` after the last.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match self {
            Self::Trust => Some(Self::Reissue),
            Self::Reissue => Some(Self::Renew),
            Self::Renew => Some(Self::Drop),
            Self::Drop => None,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trust => "trust",
            Self::Reissue => "reissue",
            Self::Renew => "renew",
            Self::Drop => "drop",
        }
    }
}

impl fmt::Display for RotationPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The keys of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterKeys {
    newest: KeyNumber,
    /// The phase of the rotation from the keys before to the newest; `None` when no rotation is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rotation: Option<RotationPhase>,
}

impl Default for ClusterKeys {
    fn default() -> Self {
        Self { newest: KeyNumber::FIRST, rotation: None }
    }
}

impl ClusterKeys {
    /// The keys with this number, while no rotation is open.
    #[must_use]
    pub const fn settled(newest: KeyNumber) -> Self {
        Self { newest, rotation: None }
    }

    /// The newest keys.
    #[must_use]
    pub const fn newest(self) -> KeyNumber {
        self.newest
    }

    /// The phase of the open rotation.
    #[must_use]
    pub const fn rotation(self) -> Option<RotationPhase> {
        self.rotation
    }

    /// The keys that sign.
    #[must_use]
    pub fn signing(self) -> KeyNumber {
        if self.rotation == Some(RotationPhase::Trust) { self.previous() } else { self.newest }
    }

    /// The keys that are trusted beside those that sign.
    #[must_use]
    pub fn also_trusted(self) -> Option<KeyNumber> {
        match self.rotation? {
            RotationPhase::Trust => Some(self.newest),
            RotationPhase::Reissue | RotationPhase::Renew => Some(self.previous()),
            RotationPhase::Drop => None,
        }
    }

    /// The keys from which a node must have its own certificates.
    #[must_use]
    pub fn of_nodes(self) -> KeyNumber {
        match self.rotation {
            Some(RotationPhase::Trust | RotationPhase::Reissue) => self.previous(),
            Some(RotationPhase::Renew | RotationPhase::Drop) | None => self.newest,
        }
    }

    /// Whether these are the keys with which the cluster was made, and no rotation is open.
    #[must_use]
    pub fn is_first(&self) -> bool {
        *self == Self::default()
    }

    /// The state after this one: the first phase of a rotation, its next phase, or its end.
    #[must_use]
    pub fn advanced(self) -> Self {
        match self.rotation {
            None => Self { newest: self.newest.next(), rotation: Some(RotationPhase::Trust) },
            Some(phase) => Self { newest: self.newest, rotation: phase.next() },
        }
    }

    fn previous(self) -> KeyNumber {
        self.newest.previous().unwrap_or(KeyNumber::FIRST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trusted(keys: ClusterKeys) -> Vec<KeyNumber> {
        [keys.signing()].into_iter().chain(keys.also_trusted()).collect()
    }

    #[test]
    fn hosts_in_neighbouring_phases_trust_each_other() {
        let mut keys = ClusterKeys::default();
        for _ in 0..15 {
            let next = keys.advanced();
            for (user, judge) in [(keys, next), (next, keys)] {
                assert!(trusted(judge).contains(&user.signing()), "{user:?} at {judge:?}");
                assert!(trusted(judge).contains(&user.of_nodes()), "{user:?} at {judge:?}");
            }
            keys = next;
        }
        assert_eq!((keys.newest(), keys.rotation()), (KeyNumber(4), None));
        assert_eq!(keys, ClusterKeys::settled(keys.newest()));
    }

    #[test]
    fn old_keys_are_dropped_only_after_nodes_use_the_new_ones() {
        let renewed = ClusterKeys { newest: KeyNumber(2), rotation: Some(RotationPhase::Renew) };
        assert_eq!((renewed.signing(), renewed.of_nodes()), (KeyNumber(2), KeyNumber(2)));
        assert_eq!(renewed.also_trusted(), Some(KeyNumber(1)));
        assert_eq!(trusted(renewed.advanced()), [KeyNumber(2)]);
        assert_eq!(trusted(renewed.advanced().advanced()), [KeyNumber(2)]);
    }

    #[test]
    fn a_state_survives_the_file() {
        let mut keys = ClusterKeys::default();
        for _ in 0..6 {
            let text = serde_json::to_string(&keys).unwrap();
            assert_eq!(serde_json::from_str::<ClusterKeys>(&text).unwrap(), keys);
            keys = keys.advanced();
        }
    }
}
