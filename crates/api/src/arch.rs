//! The processor architectures of bundles, and the names that differ between them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A processor architecture, named as in Go, Debian and OCI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// x86-64.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

/// The text is not the name of a supported architecture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an architecture; use amd64 or arm64")]
pub struct NotAnArch(String);

impl Arch {
    /// Every supported architecture.
    pub const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// The architecture of this program and of the machine that it runs on.
    #[must_use]
    pub const fn native() -> Self {
        if cfg!(target_arch = "aarch64") { Self::Arm64 } else { Self::Amd64 }
    }

    /// `amd64` or `arm64`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The name that `uname -m` prints, such as `x86_64`.
    #[must_use]
    pub const fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// The name of the folder of Debian's libraries, such as `x86_64-linux-gnu`.
    #[must_use]
    pub const fn triplet(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-linux-gnu",
            Self::Arm64 => "aarch64-linux-gnu",
        }
    }

    /// The file of the program loader in a Debian root file system, without the leading slash. It is not the well-known
    /// path: that is a link, which outside of such a root leads to the loader of another system.
    #[must_use]
    pub const fn loader(self) -> &'static str {
        match self {
            Self::Amd64 => "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
            Self::Arm64 => "lib/aarch64-linux-gnu/ld-linux-aarch64.so.1",
        }
    }

    /// The field `e_machine` of an ELF header.
    #[must_use]
    pub const fn elf_machine(self) -> u16 {
        match self {
            Self::Amd64 => 62,
            Self::Arm64 => 183,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Arch {
    type Err = NotAnArch;
    fn from_str(text: &str) -> Result<Self, NotAnArch> {
        match text {
            "amd64" | "x86_64" => Ok(Self::Amd64),
            "arm64" | "aarch64" => Ok(Self::Arm64),
            other => Err(NotAnArch(other.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_names_of_go_and_of_the_kernel() {
        for arch in [Arch::Amd64, Arch::Arm64] {
            assert_eq!(arch.name().parse(), Ok(arch));
            assert_eq!(arch.machine().parse(), Ok(arch));
            assert!(arch.loader().starts_with(&format!("lib/{}/ld-linux-", arch.triplet())));
        }
        assert!("riscv64".parse::<Arch>().is_err());
    }
}
