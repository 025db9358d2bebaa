//! Atomic and durable writes: a reader, or a host after a power loss, has the old state or the new one.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use kubeon_atomic_file::{AtomicFile, remove_leftovers, replace_link};
use kubeon_wire::StepFailure;
use sha2::{Digest as _, Sha256};

use crate::failure::{Doing, failed};

/// A complete temporary file next to `place`, not synced yet. Write all files before the first sync: the file
/// system then commits them together. Leftovers of killed processes for the same file are removed.
///
/// # Errors
/// If a folder or the file cannot be written.
pub fn stage_file(place: &Path, content: &[u8], mode: u32) -> Result<AtomicFile, StepFailure> {
    make_folders(folder_of(place)?)?;
    remove_leftovers(place).doing("remove leftovers of", place)?;
    let file = AtomicFile::beside(place, mode & 0o7777).doing("create", place)?;
    file.as_file().write_all(content).doing("write", place)?;
    Ok(file)
}

/// Replaces a file: temporary file, sync, rename, sync of the folder.
///
/// # Errors
/// If a folder or the file cannot be written.
pub fn write_file(place: &Path, content: &[u8], mode: u32) -> Result<(), StepFailure> {
    stage_file(place, content, mode)?.commit(place).doing("replace", place)
}

/// Calls [`write_file`] if the content or the mode differs. Returns whether it did.
///
/// # Errors
/// If a folder or the file cannot be written.
pub fn write_if_different(place: &Path, content: &[u8], mode: u32) -> Result<bool, StepFailure> {
    if is_file_with(place, content, mode)? {
        return Ok(false);
    }
    write_file(place, content, mode)?;
    Ok(true)
}

/// Whether `place` is a regular file with this content and mode.
///
/// # Errors
/// If the file exists and cannot be read.
pub fn is_file_with(place: &Path, content: &[u8], mode: u32) -> Result<bool, StepFailure> {
    let Some(found) = lstat(place)? else { return Ok(false) };
    let alike = found.is_file()
        && found.permissions().mode() & 0o7777 == mode & 0o7777
        && found.len() == content.len() as u64;
    Ok(alike && fs::read(place).doing("read", place)? == content)
}

/// Points a symbolic link at its target, atomically. Returns whether it changed; the caller then syncs the
/// folder.
///
/// # Errors
/// If the link cannot be created, or its path is a folder.
pub fn point_link(place: &Path, target: &str) -> Result<bool, StepFailure> {
    match lstat(place)? {
        Some(found) if found.is_symlink() => {
            if fs::read_link(place).doing("read", place)? == Path::new(target) {
                return Ok(false);
            }
        }
        Some(found) if found.is_dir() => {
            return Err(failed(format!("cannot link {}: a folder is in its place", place.display())));
        }
        Some(_) | None => {}
    }
    make_folders(folder_of(place)?)?;
    remove_leftovers(place).doing("remove leftovers of", place)?;
    replace_link(place, Path::new(target)).doing("link", place)?;
    Ok(true)
}

/// The metadata of a path, without following links; `None` if it does not exist.
///
/// # Errors
/// If the metadata cannot be read.
pub fn lstat(place: &Path) -> Result<Option<fs::Metadata>, StepFailure> {
    match fs::symlink_metadata(place) {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error).doing("read the metadata of", place),
    }
}

/// The text of a file; `None` if it does not exist.
///
/// # Errors
/// If the file exists and cannot be read.
pub fn read_text(place: &Path) -> Result<Option<String>, StepFailure> {
    match fs::read_to_string(place) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error).doing("read", place),
    }
}

/// Removes a file or link, if it exists. Returns whether it existed.
///
/// # Errors
/// If it cannot be removed.
pub fn remove_file(place: &Path) -> Result<bool, StepFailure> {
    match fs::remove_file(place) {
        Ok(()) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error).doing("remove", place),
    }
}

/// Creates a folder and its parents with mode 755, limited by the umask.
///
/// # Errors
/// If a folder cannot be created.
pub fn make_folders(folder: &Path) -> Result<(), StepFailure> {
    fs::create_dir_all(folder).doing("create the folder", folder)
}

/// Makes renames within a folder durable.
///
/// # Errors
/// If the folder cannot be synced.
pub fn sync_folder(folder: &Path) -> Result<(), StepFailure> {
    kubeon_atomic_file::sync_folder(folder).doing("sync the folder", folder)
}

/// Syncs the parent folders of several paths, each folder once.
///
/// # Errors
/// If a folder cannot be synced.
pub fn sync_folders_of(places: &[PathBuf]) -> Result<(), StepFailure> {
    let folders = places.iter().map(|place| folder_of(place)).collect::<Result<BTreeSet<_>, _>>()?;
    folders.into_iter().try_for_each(sync_folder)
}

/// The SHA-256 digest in lowercase hexadecimal digits.
#[must_use]
pub fn sha256(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

/// The parent folder of a path.
///
/// # Errors
/// If the path has none.
pub fn folder_of(place: &Path) -> Result<&Path, StepFailure> {
    place.parent().ok_or_else(|| failed(format!("{} has no folder", place.display())))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_only_what_differs() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a/b");
        assert!(write_if_different(&place, b"one", 0o600).unwrap());
        assert!(!write_if_different(&place, b"one", 0o600).unwrap());
        assert!(write_if_different(&place, b"one", 0o644).unwrap(), "the mode counts");
        assert!(write_if_different(&place, b"two", 0o644).unwrap());
        assert_eq!(fs::read_dir(place.parent().unwrap()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn an_uncommitted_file_does_not_replace_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("x");
        write_file(&place, b"old", 0o600).unwrap();
        drop(stage_file(&place, b"new", 0o600).unwrap());
        assert_eq!(fs::read(&place).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_replaces_a_link_and_does_not_follow_it() {
        let folder = tempfile::tempdir().unwrap();
        let (place, foreign) = (folder.path().join("x"), folder.path().join("foreign"));
        fs::write(&foreign, "keep").unwrap();
        std::os::unix::fs::symlink(&foreign, &place).unwrap();
        assert!(write_if_different(&place, b"keep", 0o644).unwrap());
        assert!(fs::symlink_metadata(&place).unwrap().is_file());
        assert_eq!(fs::read(&foreign).unwrap(), b"keep");
    }

    #[test]
    fn points_links_once() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("bin/kubelet");
        assert!(point_link(&place, "/parts/1/kubelet").unwrap());
        assert!(!point_link(&place, "/parts/1/kubelet").unwrap());
        assert!(point_link(&place, "/parts/2/kubelet").unwrap());
        assert_eq!(fs::read_link(&place).unwrap(), Path::new("/parts/2/kubelet"));
        fs::create_dir(folder.path().join("folder")).unwrap();
        assert!(point_link(&folder.path().join("folder"), "/x").is_err());
    }
}
