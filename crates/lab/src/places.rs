//! The folders of labs.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::{Error, LabName, Result};

/// The folders of all labs of a user.
#[derive(Debug, Clone)]
pub struct Places {
    /// State: one folder per lab.
    pub(crate) labs: PathBuf,
    /// Base root file systems.
    pub(crate) cache: PathBuf,
}

impl Places {
    /// Labs in `home`/lab, base root file systems in `cache`/lab.
    pub fn new(home: &Path, cache: &Path) -> Self {
        Self { labs: home.join("lab"), cache: cache.join("lab") }
    }

    /// The folders that the environment names: `$KUBEON_HOME` (else `~/.kubeon`) and `$KUBEON_CACHE` (else
    /// `$XDG_CACHE_HOME/kubeon`, else `~/.cache/kubeon`). Fails if none of the variables, nor `HOME`, is set.
    pub fn from_env() -> Result<Self> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = set("KUBEON_HOME")
            .or_else(|| Some(set("HOME")?.join(".kubeon")))
            .ok_or(Error::NoPlace { variable: "KUBEON_HOME" })?;
        let cache = set("KUBEON_CACHE")
            .or_else(|| Some(set("XDG_CACHE_HOME")?.join("kubeon")))
            .or_else(|| Some(set("HOME")?.join(".cache/kubeon")))
            .ok_or(Error::NoPlace { variable: "KUBEON_CACHE" })?;
        let absolute = |path: PathBuf| std::path::absolute(&path).map_err(Error::file("resolve", path));
        Ok(Self::new(&absolute(home)?, &absolute(cache)?))
    }

    /// Folder of one lab.
    pub(crate) fn lab(&self, name: &LabName) -> PathBuf {
        self.labs.join(name.as_str())
    }
}
