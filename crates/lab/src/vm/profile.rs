//! What differs from a plain Debian: one profile per habit of real hosts.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::os::VmOs;
use crate::{Error, Result};

/// A way in which a virtual machine differs from a plain Debian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VmProfile {
    /// systemd-resolved runs, and /etc/resolv.conf names its stub resolver 127.0.0.53.
    Resolved,
    /// firewalld runs and refuses everything but SSH.
    Firewalld,
    /// ufw runs and refuses everything but SSH.
    Ufw,
    /// NetworkManager sets up the network instead of systemd-networkd.
    NetworkManager,
    /// cloud-init runs at every boot and writes /etc/hosts (`manage_etc_hosts: true`).
    CloudInit,
    /// Two network cards: the login address on the first, a subnet for cluster traffic on the second.
    TwoNics,
    /// The login address belongs to the switch, which translates it to the host's only address.
    Nat,
}

/// Profiles that exclude each other, and why.
const CONFLICTS: [(VmProfile, VmProfile, &str); 2] = [
    (VmProfile::Firewalld, VmProfile::Ufw, "both replace the same packet filter rules"),
    (
        VmProfile::TwoNics,
        VmProfile::Nat,
        "with nat a host does not own the address that its first card would have",
    ),
];

impl VmProfile {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Resolved,
        Self::Firewalld,
        Self::Ufw,
        Self::NetworkManager,
        Self::CloudInit,
        Self::TwoNics,
        Self::Nat,
    ];

    /// The name on the command line and in the state.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resolved => "resolved",
            Self::Firewalld => "firewalld",
            Self::Ufw => "ufw",
            Self::NetworkManager => "network-manager",
            Self::CloudInit => "cloud-init",
            Self::TwoNics => "two-nics",
            Self::Nat => "nat",
        }
    }

    /// The packages that the profile adds; `None` if it changes nothing in the base root file system.
    pub(crate) fn packages(self, os: VmOs) -> Option<&'static [&'static str]> {
        match self {
            // In Debian 11 the package systemd contains it.
            Self::Resolved if os == VmOs::Debian11 => Some(&[]),
            Self::Resolved => Some(&["systemd-resolved"]),
            Self::Firewalld => Some(&["firewalld"]),
            Self::Ufw => Some(&["ufw"]),
            Self::NetworkManager => Some(&["network-manager"]),
            Self::CloudInit => Some(&["cloud-init"]),
            Self::TwoNics | Self::Nat => None,
        }
    }
}

/// Refuses profiles that exclude each other.
pub(crate) fn check(profiles: &BTreeSet<VmProfile>) -> Result<()> {
    let conflict = CONFLICTS.iter().find(|(a, b, _)| profiles.contains(a) && profiles.contains(b));
    conflict.map_or(Ok(()), |&(first, second, reason)| {
        Err(Error::Profiles { first: first.name(), second: second.name(), reason })
    })
}

impl fmt::Display for VmProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for VmProfile {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name).ok_or_else(|| Error::Choice {
            what: "profile",
            given: name.to_owned(),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_firewalls_are_refused_by_name() {
        let both = BTreeSet::from([VmProfile::Ufw, VmProfile::Resolved, VmProfile::Firewalld]);
        let error = check(&both).unwrap_err().to_string();
        assert!(error.contains("firewalld") && error.contains("ufw"), "{error}");
        check(&BTreeSet::from([VmProfile::Ufw, VmProfile::Resolved])).unwrap();
    }

    #[test]
    fn two_nics_and_nat_are_refused() {
        assert!(check(&BTreeSet::from([VmProfile::Nat, VmProfile::TwoNics])).is_err());
    }

    #[test]
    fn everything_else_combines() {
        let most = VmProfile::ALL.into_iter().filter(|p| !matches!(p, VmProfile::Ufw | VmProfile::Nat));
        check(&most.collect()).unwrap();
    }

    #[test]
    fn the_state_uses_the_names_of_the_command_line() {
        for profile in VmProfile::ALL {
            assert_eq!(serde_json::to_string(&profile).unwrap(), format!("\"{profile}\""));
            assert_eq!(profile.name().parse::<VmProfile>().unwrap(), profile);
        }
    }
}
