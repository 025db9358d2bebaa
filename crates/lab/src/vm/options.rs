//! Kind of a virtual machine: its operating system and profiles.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use super::{
    os::VmOs,
    profile::{self, VmProfile},
};
use crate::Result;

/// Operating system and profiles of all virtual machines of a lab.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmOptions {
    os: VmOs,
    profiles: BTreeSet<VmProfile>,
}

impl VmOptions {
    /// Fails if two profiles exclude each other. Order and repetition of the profiles do not matter.
    pub fn new(os: VmOs, profiles: impl IntoIterator<Item = VmProfile>) -> Result<Self> {
        let profiles = profiles.into_iter().collect();
        profile::check(&profiles)?;
        Ok(Self { os, profiles })
    }

    /// The operating system.
    pub fn os(&self) -> VmOs {
        self.os
    }

    /// Whether the profile applies.
    pub fn has(&self, profile: VmProfile) -> bool {
        self.profiles.contains(&profile)
    }

    /// The profiles that change the base root file system, with the packages that they add.
    pub(crate) fn base_profiles(&self) -> impl Iterator<Item = (VmProfile, &'static [&'static str])> {
        self.profiles.iter().filter_map(|&profile| Some((profile, profile.packages(self.os)?)))
    }
}

impl fmt::Display for VmOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.os)?;
        self.profiles.iter().try_for_each(|profile| write!(f, " {profile}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_that_of_the_flags() {
        let profiles = [VmProfile::Nat, VmProfile::Resolved, VmProfile::Nat];
        let options = VmOptions::new(VmOs::Debian13, profiles).unwrap();
        assert_eq!(options.to_string(), "debian-13 resolved nat");
    }

    #[test]
    fn profiles_of_the_network_share_a_base() {
        let options = VmOptions::new(VmOs::Debian11, [VmProfile::TwoNics, VmProfile::Resolved]).unwrap();
        let names: Vec<_> = options.base_profiles().map(|(profile, _)| profile).collect();
        assert_eq!(names, [VmProfile::Resolved]);
    }
}
