//! Private files and folders.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use kubeon_atomic_file::write_atomically;
use rustix::fs::RenameFlags;

use crate::error::StoreError;

/// Creates the folder and its parents with mode 0700, or sets that mode.
pub(crate) fn private_folder(path: &Path) -> Result<(), StoreError> {
    let created = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o700)));
    created.map_err(StoreError::file("make folder", path))
}

/// Replaces the file atomically, with mode 0600.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    private_folder(folder)?;
    write_atomically(path, content, 0o600).map_err(StoreError::file("write", path))
}

/// Hard-links the present file at `path` to `copy` and replaces an older copy atomically.
pub(crate) fn link_backup(path: &Path, copy: &Path) -> io::Result<()> {
    let new = copy.with_extension("bak.new");
    remove(&new)?;
    fs::hard_link(path, &new)?;
    fs::rename(&new, copy)
}

/// Exchanges two folders atomically.
pub(crate) fn swap_folders(left: &Path, right: &Path) -> io::Result<()> {
    rustix::fs::renameat_with(rustix::fs::CWD, left, rustix::fs::CWD, right, RenameFlags::EXCHANGE)?;
    Ok(())
}

/// Removes a file that may be missing.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a folder that may be missing, with its contents.
pub(crate) fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
