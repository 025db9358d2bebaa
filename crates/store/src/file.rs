//! Private files, written whole.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use kubeon_atomic_file::write_atomically;
use rustix::fs::RenameFlags;

use crate::error::StoreError;

/// Makes the folder and its parents with mode 0700; an existing one is narrowed to it.
pub(crate) fn private_folder(path: &Path) -> Result<(), StoreError> {
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o700)));
    made.map_err(StoreError::file("make folder", path))
}

/// Replaces the file with `content`, mode 0600. After a crash it is the old or the new one, never a mix.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    private_folder(folder)?;
    write_atomically(path, content, 0o600).map_err(StoreError::file("write", path))
}

/// Makes `copy` a second name of what `path` holds now, replacing an older copy in one step.
pub(crate) fn keep_as(path: &Path, copy: &Path) -> io::Result<()> {
    let new = copy.with_extension("bak.new");
    remove(&new)?;
    fs::hard_link(path, &new)?;
    fs::rename(&new, copy)
}

/// Two folders change places in one step.
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    rustix::fs::renameat_with(rustix::fs::CWD, one, rustix::fs::CWD, other, RenameFlags::EXCHANGE)?;
    Ok(())
}

/// Removes a file that may be missing.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a folder, with all in it, that may be missing.
pub(crate) fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
