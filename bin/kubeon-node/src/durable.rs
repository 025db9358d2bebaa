//! Writing so that a reader, or a host that lost power, sees the old state or the new one and nothing between.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use kubeon_wire::StepFailure;
use sha2::{Digest as _, Sha256};

use crate::failure::{Doing, failed};

/// A file that is complete beside its place, not yet in it. Dropped, it is gone.
#[derive(Debug)]
pub struct Staged {
    temporary: Option<PathBuf>,
    place: PathBuf,
    file: File,
}

impl Staged {
    /// Writes a file beside `place`; the permission bits are set before the content.
    ///
    /// # Errors
    /// When a folder or the file cannot be written.
    pub fn write(place: &Path, content: &[u8], mode: u32) -> Result<Self, StepFailure> {
        make_folders(folder_of(place)?)?;
        let temporary = beside(place)?;
        let mut open = OpenOptions::new();
        let file =
            open.write(true).create_new(true).mode(0o600).open(&temporary).doing("create", &temporary)?;
        let mut staged = Self { temporary: Some(temporary), place: place.to_owned(), file };
        let mode = fs::Permissions::from_mode(mode & 0o7777);
        staged.file.set_permissions(mode).doing("set the mode of", place)?;
        staged.file.write_all(content).doing("write", place)?;
        Ok(staged)
    }

    /// Makes the content durable. Of many files all are written before the first one is synced: one commit
    /// of the file system then serves them all.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn sync(&self) -> Result<(), StepFailure> {
        self.file.sync_all().doing("sync", &self.place)
    }

    /// Puts the synced file in its place. The folder is to be synced by the caller, once for many files.
    ///
    /// # Errors
    /// When the file cannot be renamed.
    pub fn commit(mut self) -> Result<(), io::Error> {
        if let Some(temporary) = &self.temporary {
            fs::rename(temporary, &self.place)?;
            self.temporary = None;
        }
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Nothing depends on it: the next write of the same file removes what is left.
            drop(fs::remove_file(temporary));
        }
    }
}

/// Replaces a file: temporary file, sync, rename, sync of the folder.
///
/// # Errors
/// When a folder or the file cannot be written.
pub fn write_file(place: &Path, content: &[u8], mode: u32) -> Result<(), StepFailure> {
    let staged = Staged::write(place, content, mode)?;
    staged.sync()?;
    staged.commit().doing("replace", place)?;
    sync_folder(folder_of(place)?)
}

/// As [`write_file`], where the content or the mode differs. Tells whether it did.
///
/// # Errors
/// When a folder or the file cannot be written.
pub fn write_if_different(place: &Path, content: &[u8], mode: u32) -> Result<bool, StepFailure> {
    if is_file_with(place, content, mode)? {
        return Ok(false);
    }
    write_file(place, content, mode)?;
    Ok(true)
}

/// Whether a regular file with this content and mode is in place.
///
/// # Errors
/// When the file is there and cannot be read.
pub fn is_file_with(place: &Path, content: &[u8], mode: u32) -> Result<bool, StepFailure> {
    let Some(found) = lstat(place)? else { return Ok(false) };
    let alike = found.is_file()
        && found.permissions().mode() & 0o7777 == mode & 0o7777
        && found.len() == content.len() as u64;
    Ok(alike && fs::read(place).doing("read", place)? == content)
}

/// Points a symbolic link at its target, atomically. Tells whether it had to be changed; the folder is then
/// to be synced by the caller.
///
/// # Errors
/// When the link cannot be made, or something that is not a link is in its place.
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
    let temporary = beside(place)?;
    symlink(target, &temporary).doing("link", &temporary)?;
    fs::rename(&temporary, place).doing("replace", place)?;
    Ok(true)
}

/// What is in place, links not followed; `None` when nothing is.
///
/// # Errors
/// When the folder cannot be looked into.
pub fn lstat(place: &Path) -> Result<Option<fs::Metadata>, StepFailure> {
    match fs::symlink_metadata(place) {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error).doing("look at", place),
    }
}

/// The text of a file; `None` when there is none.
///
/// # Errors
/// When the file is there and cannot be read.
pub fn read_text(place: &Path) -> Result<Option<String>, StepFailure> {
    match fs::read_to_string(place) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error).doing("read", place),
    }
}

/// Removes a file or link; that there is none is fine. Tells whether there was one.
///
/// # Errors
/// When it cannot be removed.
pub fn remove_file(place: &Path) -> Result<bool, StepFailure> {
    match fs::remove_file(place) {
        Ok(()) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error).doing("remove", place),
    }
}

/// Makes a folder and those above it, mode 755 as the umask allows.
///
/// # Errors
/// When one cannot be made.
pub fn make_folders(folder: &Path) -> Result<(), StepFailure> {
    fs::create_dir_all(folder).doing("make the folder", folder)
}

/// Makes renames within a folder durable.
///
/// # Errors
/// When the folder cannot be synced.
pub fn sync_folder(folder: &Path) -> Result<(), StepFailure> {
    File::open(folder).and_then(|folder| folder.sync_all()).doing("sync the folder", folder)
}

/// The same for the folders of several places, once for each folder.
///
/// # Errors
/// When a folder cannot be synced.
pub fn sync_folders_of(places: &[PathBuf]) -> Result<(), StepFailure> {
    let folders = places.iter().map(|place| folder_of(place)).collect::<Result<BTreeSet<_>, _>>()?;
    folders.into_iter().try_for_each(sync_folder)
}

/// SHA-256 in lower-case hexadecimal digits.
#[must_use]
pub fn sha256(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

/// The folder that a path lies in.
///
/// # Errors
/// When the path has none.
pub fn folder_of(place: &Path) -> Result<&Path, StepFailure> {
    place.parent().ok_or_else(|| failed(format!("{} has no folder", place.display())))
}

/// A name beside `place` that no other step uses; what a killed process left there for it is removed.
fn beside(place: &Path) -> Result<PathBuf, StepFailure> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = place.file_name().ok_or_else(|| failed(format!("{} has no name", place.display())))?;
    let prefix = format!(".{}.kubeon-tmp-", name.to_string_lossy());
    let own = format!("{prefix}{}-", std::process::id());
    for entry in fs::read_dir(folder_of(place)?).into_iter().flatten().flatten() {
        let left = entry.file_name().to_string_lossy().into_owned();
        if left.starts_with(&prefix) && !left.starts_with(&own) {
            remove_file(&entry.path())?;
        }
    }
    let free = place.with_file_name(format!("{own}{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    // A killed process may have had the same number.
    remove_file(&free)?;
    Ok(free)
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
        assert_eq!(fs::read_dir(place.parent().unwrap()).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn a_file_that_is_not_committed_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("x");
        write_file(&place, b"old", 0o600).unwrap();
        drop(Staged::write(&place, b"new", 0o600).unwrap());
        assert_eq!(fs::read(&place).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_replaces_a_link_and_does_not_follow_it() {
        let folder = tempfile::tempdir().unwrap();
        let (place, foreign) = (folder.path().join("x"), folder.path().join("foreign"));
        fs::write(&foreign, "keep").unwrap();
        symlink(&foreign, &place).unwrap();
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
