//! `~/.kube/config` as a link to the kubeconfig of the chosen cluster.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::EngineError;

/// Maximum number of backups next to the link.
const MAX_BACKUPS: u32 = 1000;

/// A created link.
#[derive(Debug)]
pub struct LinkedKubeconfig {
    /// The link.
    pub link: PathBuf,
    /// The backup of the previous file.
    pub backup: Option<PathBuf>,
}

/// Makes `~/.kube/config` a link to `kubeconfig`. Renames a previous file to a backup next to it.
///
/// # Errors
/// When a file cannot be written.
pub fn link(home: &Path, kubeconfig: &Path) -> Result<LinkedKubeconfig, EngineError> {
    let link = path(home);
    if let Some(folder) = link.parent() {
        fs::create_dir_all(folder).map_err(|error| cannot("create", folder, &error))?;
    }
    let mut backup = None;
    if fs::symlink_metadata(&link).is_ok_and(|meta| !meta.is_symlink()) {
        let free = free_name(&link)?;
        fs::rename(&link, &free).map_err(|error| cannot("rename", &link, &error))?;
        backup = Some(free);
    }
    point(&link, kubeconfig)?;
    Ok(LinkedKubeconfig { link, backup })
}

/// Removes the link if it points to `kubeconfig`.
pub(crate) fn unlink(home: &Path, kubeconfig: &Path) -> Result<(), EngineError> {
    let link = path(home);
    if fs::read_link(&link).is_ok_and(|target| target == kubeconfig) {
        fs::remove_file(&link).map_err(|error| cannot("remove", &link, &error))?;
    }
    Ok(())
}

fn path(home: &Path) -> PathBuf {
    home.join(".kube/config")
}

/// An unused name for a backup next to the file.
fn free_name(file: &Path) -> Result<PathBuf, EngineError> {
    let name = |n: u32| if n == 0 { "config.backup".to_owned() } else { format!("config.backup.{n}") };
    (0..MAX_BACKUPS)
        .map(|n| file.with_file_name(name(n)))
        .find(|path| fs::symlink_metadata(path).is_err())
        .ok_or_else(|| {
            EngineError::refused(format!(
                "there are {MAX_BACKUPS} backups of {}; delete some of them",
                file.display()
            ))
        })
}

/// Creates or replaces a link atomically.
pub(crate) fn point(link: &Path, target: &Path) -> Result<(), EngineError> {
    kubeon_atomic_file::replace_link(link, target).map_err(|error| cannot("link", link, &error))
}

pub(crate) fn cannot(action: &str, path: &Path, error: &std::io::Error) -> EngineError {
    EngineError::failed(format!("cannot {action} {}: {error}", path.display()))
}
