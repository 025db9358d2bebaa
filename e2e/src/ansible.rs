//! Installs ansible-playbook from PyPI, with the hashes in `images/runner/requirements.txt`, in the user's
//! cache.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use crate::program::must;

/// The folder of Ansible's programs, which are installed if they are missing.
///
/// # Errors
/// When Python cannot create a virtual environment, or pip cannot install the packages.
pub fn programs() -> Result<PathBuf> {
    let requirements = repository().join("images/runner/requirements.txt");
    let content = fs::read(&requirements).with_context(|| requirements.display().to_string())?;
    let version = must("python3", &["-c", "import sys; print(sys.version, sys.prefix)"], &[])?;
    let digest = hex::encode(Sha256::digest([content.as_slice(), version.as_bytes()].concat()));
    let folder = cache().join(format!("ansible-{}", &digest[..12]));
    let complete = folder.join("complete");
    if !complete.exists() {
        // A killed test may have left an incomplete folder.
        fs::remove_dir_all(&folder).ok();
        let path = folder.to_string_lossy();
        must("python3", &["-m", "venv", &path], &[])?;
        let requirements = requirements.to_string_lossy();
        let arguments = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--require-hashes",
            "--only-binary",
            ":all:",
            "-r",
            &requirements,
        ];
        must(folder.join("bin/python3"), &arguments, &[("PIP_DISABLE_PIP_VERSION_CHECK", "1")])?;
        fs::write(complete, "")?;
    }
    Ok(folder.join("bin"))
}

/// The folder of the playbooks.
#[must_use]
pub fn playbooks() -> PathBuf {
    repository().join("playbooks")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn cache() -> PathBuf {
    let path = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let default =
        || path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache"))).unwrap_or_default();
    path("KUBEON_CACHE").unwrap_or_else(|| default().join("kubeon"))
}
