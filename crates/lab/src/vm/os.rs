//! The Debian releases that a virtual machine can run.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Operating system of a virtual machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum VmOs {
    /// Debian 11 with Linux 5.10.
    #[serde(rename = "debian-11")]
    Debian11,
    /// Debian 12 with Linux 6.1.
    #[default]
    #[serde(rename = "debian-12")]
    Debian12,
    /// Debian 13 with Linux 6.12.
    #[serde(rename = "debian-13")]
    Debian13,
}

impl VmOs {
    /// All of them, oldest first.
    pub const ALL: [Self; 3] = [Self::Debian11, Self::Debian12, Self::Debian13];

    /// The name on the command line and in the state.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Debian11 => "debian-11",
            Self::Debian12 => "debian-12",
            Self::Debian13 => "debian-13",
        }
    }

    /// Debian's name of the release.
    pub(crate) fn suite(self) -> &'static str {
        match self {
            Self::Debian11 => "bullseye",
            Self::Debian12 => "bookworm",
            Self::Debian13 => "trixie",
        }
    }
}

impl fmt::Display for VmOs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for VmOs {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|os| os.name() == name).ok_or_else(|| Error::Choice {
            what: "operating system",
            given: name.to_owned(),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_release_is_refused_with_the_known_ones() {
        let error = "debian-10".parse::<VmOs>().unwrap_err().to_string();
        assert!(error.contains("debian-10") && error.contains("debian-11, debian-12, debian-13"), "{error}");
    }

    #[test]
    fn the_state_uses_the_names_of_the_command_line() {
        for os in VmOs::ALL {
            assert_eq!(serde_json::to_string(&os).unwrap(), format!("\"{os}\""));
            assert_eq!(os.name().parse::<VmOs>().unwrap(), os);
        }
    }
}
