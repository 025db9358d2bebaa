//! `~/.kube/config` as a link to the kubeconfig of the chosen cluster.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::error::EngineError;

/// How many copies are kept beside the link before the user has to remove some.
const MAX_COPIES: u32 = 1000;

/// A link that was made.
#[derive(Debug)]
pub struct LinkedKubeconfig {
    /// The link.
    pub link: PathBuf,
    /// Where the file is now that was there before.
    pub backup: Option<PathBuf>,
}

/// Makes `~/.kube/config` a link to `kubeconfig`. A file that was there is kept beside it.
///
/// # Errors
/// When a file cannot be written.
pub fn link(home: &Path, kubeconfig: &Path) -> Result<LinkedKubeconfig, EngineError> {
    let link = path(home);
    if let Some(folder) = link.parent() {
        fs::create_dir_all(folder).map_err(|error| cannot("make", folder, &error))?;
    }
    let mut backup = None;
    if fs::symlink_metadata(&link).is_ok_and(|meta| !meta.is_symlink()) {
        let free = free_name(&link)?;
        fs::rename(&link, &free).map_err(|error| cannot("keep", &link, &error))?;
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

/// A name beside the file that is not used.
fn free_name(file: &Path) -> Result<PathBuf, EngineError> {
    let name = |n: u32| if n == 0 { "config.backup".to_owned() } else { format!("config.backup.{n}") };
    (0..MAX_COPIES)
        .map(|n| file.with_file_name(name(n)))
        .find(|path| fs::symlink_metadata(path).is_err())
        .ok_or_else(|| {
            let copies = format!("there are {MAX_COPIES} copies beside {}; remove some", file.display());
            EngineError::refused(copies)
        })
}

/// Makes or moves a link in one step.
pub(crate) fn point(link: &Path, target: &Path) -> Result<(), EngineError> {
    let mut name = link.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let new = link.with_file_name(name);
    if fs::symlink_metadata(&new).is_ok() {
        fs::remove_file(&new).map_err(|error| cannot("remove", &new, &error))?;
    }
    symlink(target, &new).map_err(|error| cannot("link", &new, &error))?;
    fs::rename(&new, link).map_err(|error| cannot("replace", link, &error))
}

pub(crate) fn cannot(action: &str, path: &Path, error: &std::io::Error) -> EngineError {
    EngineError::failed(format!("cannot {action} {}: {error}", path.display()))
}
