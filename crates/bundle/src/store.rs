//! The folders of bundles and of unfinished builds on this machine.
//!
//! ```text
//!   CACHE/components/<name>-<version>-<key>/   finished components: parts.json and blobs, hashed again before use
//!   CACHE/work/                                running builds; folders of dead builds are removed
//!   CACHE/locks/
//!   BUNDLES/<version>-<arch>/                  finished bundles (by default CACHE/bundles)
//! ```

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use kubeon_api::Version;

use crate::bundle::error::shape;
use crate::{Arch, Bundle, BundleError};

/// The folders of the bundle store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleStore {
    bundles: PathBuf,
    cache: PathBuf,
}

/// No folder can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no folder for bundles: HOME is not set; set KUBEON_CACHE to a folder")]
pub struct NoHome;

impl BundleStore {
    /// A store with the cache in `cache` and the bundles in `cache/bundles`.
    #[must_use]
    pub fn at(cache: &Path) -> Self {
        Self { bundles: cache.join("bundles"), cache: cache.to_owned() }
    }

    /// The same store with another folder for bundles.
    #[must_use]
    pub fn with_bundles(mut self, bundles: &Path) -> Self {
        bundles.clone_into(&mut self.bundles);
        self
    }

    /// The user's store: `$KUBEON_BUNDLES`, `$KUBEON_CACHE`, `$XDG_CACHE_HOME/kubeon` or `~/.cache/kubeon`.
    ///
    /// # Errors
    /// None of the variables is set and `HOME` is not set either.
    pub fn from_env() -> Result<Self, NoHome> {
        let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = folder("KUBEON_CACHE")
            .or_else(|| folder("XDG_CACHE_HOME").map(|path| path.join("kubeon")))
            .or_else(|| folder("HOME").map(|path| path.join(".cache/kubeon")))
            .ok_or(NoHome)?;
        let store = Self::at(&cache);
        Ok(match folder("KUBEON_BUNDLES") {
            Some(bundles) => store.with_bundles(&bundles),
            None => store,
        })
    }

    /// The folder of all bundles.
    #[must_use]
    pub fn bundles(&self) -> &Path {
        &self.bundles
    }

    /// The folder of everything that can be built again.
    #[must_use]
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// The folder of the bundle of a version, whether it exists or not.
    #[must_use]
    pub fn folder(&self, version: Version, arch: Arch) -> PathBuf {
        self.bundles.join(format!("{version}-{arch}"))
    }

    /// Opens the bundle of a version.
    ///
    /// # Errors
    /// The bundle does not exist or is damaged.
    pub fn find(&self, version: Version, arch: Arch) -> Result<Bundle, BundleError> {
        let folder = self.folder(version, arch);
        if !folder.is_dir() {
            return Err(BundleError::Absent { version, arch, folder });
        }
        Bundle::open(&folder)
    }

    /// Opens the bundle of a version for this machine's architecture in the user's store.
    ///
    /// # Errors
    /// The bundle does not exist or is damaged, or there is no store.
    pub fn find_native(version: Version) -> Result<Bundle, BundleError> {
        let no_home = |error| shape(Path::new("~/.cache/kubeon"), error);
        Self::from_env().map_err(no_home)?.find(version, Arch::native())
    }

    /// Every bundle, sorted by folder name. A bundle that cannot be opened does not hide the others. Hidden folders are
    /// unfinished bundles.
    ///
    /// # Errors
    /// The store's folder exists and cannot be read.
    pub fn list(&self) -> io::Result<Vec<(PathBuf, Result<Bundle, BundleError>)>> {
        let entries = match fs::read_dir(&self.bundles) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut folders = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.path().is_dir() && !entry.file_name().to_string_lossy().starts_with('.') {
                folders.push(entry.path());
            }
        }
        folders.sort();
        Ok(folders.into_iter().map(|folder| (folder.clone(), Bundle::open(&folder))).collect())
    }
}
