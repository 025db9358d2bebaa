//! Options of a build.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::error::BuildError;
use crate::{Arch, BundleStore};

/// The source of the parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Built from the Go module proxy and the distribution's packages.
    GoModules,
    /// Taken from a folder: programs as `NAME` or `bin/NAME`, root file systems as `PART/`.
    Directory(PathBuf),
}

impl Origin {
    /// Its name in the bundle's manifest.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::GoModules => "go-modules",
            Self::Directory(_) => "directory",
        }
    }
}

impl FromStr for Origin {
    type Err = BuildError;
    fn from_str(text: &str) -> Result<Self, BuildError> {
        match text {
            "go-modules" => Ok(Self::GoModules),
            "official" | "mirror" => Err(BuildError::UnsupportedSource(text.to_owned())),
            folder if Path::new(folder).is_dir() => Ok(Self::Directory(PathBuf::from(folder))),
            other => Err(BuildError::UnknownSource(other.to_owned())),
        }
    }
}

/// Options of a build.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// The source of the parts.
    pub from: Origin,
    /// The architecture. Only the architecture of this machine is supported.
    pub arch: Arch,
    /// The folders of the result and of the cache.
    pub store: BundleStore,
    /// Whether to look for newer packages of the distribution when the bundle exists.
    pub refresh: bool,
}
