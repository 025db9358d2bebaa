//! Options of a build.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use kubeon_api::Version;

use super::error::BuildError;
use crate::{Arch, BundleStore};

/// The source of the parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Built from the Go module proxy and the distribution's packages.
    GoModules,
    /// Downloaded from the servers of the authors of each component.
    Official,
    /// Downloaded from a mirror, below whose address each of those servers is a folder.
    Mirror(String),
    /// Taken from a folder: programs as `NAME` or `bin/NAME`, root file systems as `PART/`.
    Directory(PathBuf),
}

impl Origin {
    /// Its name in the bundle's manifest.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::GoModules => "go-modules",
            Self::Official => "official",
            Self::Mirror(_) => "mirror",
            Self::Directory(_) => "directory",
        }
    }
}

/// The server that is asked whether official releases can be reached.
const OFFICIAL_SERVER: (&str, u16) = ("dl.k8s.io", 443);
/// Time limit of that question.
const REACH_TIMEOUT: Duration = Duration::from_secs(3);

impl Origin {
    /// The source when none was given: that of the existing bundle, else the official releases if their server can be
    /// reached, else the module proxy.
    #[must_use]
    pub fn usual(store: &BundleStore, version: Version, arch: Arch) -> Self {
        let existing = store.find(version, arch).ok();
        match existing.as_ref().map(|bundle| bundle.manifest().created_from.as_str()) {
            Some("go-modules") => Self::GoModules,
            Some("official") => Self::Official,
            _ if is_reachable() => Self::Official,
            _ => Self::GoModules,
        }
    }
}

fn is_reachable() -> bool {
    let addresses = OFFICIAL_SERVER.to_socket_addrs().map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    addresses.iter().take(2).any(|address| TcpStream::connect_timeout(address, REACH_TIMEOUT).is_ok())
}

impl FromStr for Origin {
    type Err = BuildError;
    fn from_str(text: &str) -> Result<Self, BuildError> {
        match text {
            "go-modules" => Ok(Self::GoModules),
            "official" => Ok(Self::Official),
            mirror if mirror.contains("://") => Ok(Self::Mirror(mirror.to_owned())),
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
    /// The architecture of the hosts.
    pub arch: Arch,
    /// The folders of the result and of the cache.
    pub store: BundleStore,
    /// Whether to look for newer packages of the distribution when the bundle exists.
    pub refresh: bool,
    /// The folder of what the compiler made, for the next build; `None`: it is removed after this one. It has gigabytes.
    pub compile_cache: Option<PathBuf>,
}
