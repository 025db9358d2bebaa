//! The programs, unpacked from the bundle that `kubeon bundle build` wrote to the user's cache.
//!
//! ```text
//!   BUNDLES/v1.36.3-amd64/blobs/sha256/<digest>   tar + zstd     unpacked once into
//!   CACHE/programs/<digest>/bin/etcd              and used again by every test and benchmark
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use kubeon_bundle::{Arch, Bundle, BundleStore, Version};

use crate::EnvtestError;

/// The version of the bundle with the programs.
pub(crate) const VERSION: Version = Version { major: 1, minor: 36, patch: 3 };

/// The paths of the programs.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) etcd: PathBuf,
    pub(crate) api_server: PathBuf,
    pub(crate) controller_manager: PathBuf,
}

impl Programs {
    /// Finds them in the user's store and unpacks them on first use.
    pub(crate) fn find(version: Version) -> Result<Self, EnvtestError> {
        Self::of(&store()?, version)
    }

    fn of(store: &BundleStore, version: Version) -> Result<Self, EnvtestError> {
        let bundle = store.find(version, Arch::native())?;
        let folder = store.cache().join("programs");
        let program = |part: &str| of_bundle(&bundle, part, &folder);
        Ok(Self {
            etcd: program("etcd")?,
            api_server: program("kube-apiserver")?,
            controller_manager: program("kube-controller-manager")?,
        })
    }
}

/// A program of the API server's bundle, such as `kubectl`, unpacked on first use.
///
/// # Errors
/// The bundle is not built (the message contains the command), or does not contain the program.
pub fn program(name: &str) -> Result<PathBuf, EnvtestError> {
    program_of(VERSION, name)
}

/// A program of the bundle of any version.
///
/// # Errors
/// The bundle is not built (the message contains the command), or does not contain the program.
pub fn program_of(version: Version, name: &str) -> Result<PathBuf, EnvtestError> {
    let store = store()?;
    of_bundle(&store.find(version, Arch::native())?, name, &store.cache().join("programs"))
}

pub(crate) fn store() -> Result<BundleStore, EnvtestError> {
    let no_home =
        |error| EnvtestError::File { path: "~/.cache/kubeon".into(), source: io::Error::other(error) };
    BundleStore::from_env().map_err(no_home)
}

/// The program of a part that has the part's name.
fn of_bundle(bundle: &Bundle, name: &str, folder: &Path) -> Result<PathBuf, EnvtestError> {
    let digest = bundle.part(name)?.digest.clone();
    let place = folder.join(digest.as_str());
    let path = place.join("bin").join(name);
    if !path.is_file() {
        bundle.verify_parts(&BTreeSet::from([digest.clone()]))?;
        unpack(&bundle.blob(&digest), folder, &place).map_err(EnvtestError::file(&place))?;
    }
    Ok(path)
}

/// Unpacks into a temporary folder and renames it, so that the folder is complete or missing. If two processes
/// unpack, the first rename wins.
fn unpack(blob: &Path, folder: &Path, place: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let unpacked = tempfile::Builder::new().prefix(".unpack-").tempdir_in(folder)?;
    tar::Archive::new(zstd::Decoder::new(File::open(blob)?)?).unpack(unpacked.path())?;
    match fs::rename(unpacked.path(), place) {
        Err(_) if place.is_dir() => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_bundle_is_named_with_the_script_that_builds_it() {
        let cache = tempfile::tempdir().unwrap();
        let version = "v1.36.3".parse().unwrap();
        let error = Programs::of(&BundleStore::at(cache.path()), version).unwrap_err().to_string();
        assert!(error.contains("no bundle for v1.36.3") && error.contains("./test"), "{error}");
    }
}
