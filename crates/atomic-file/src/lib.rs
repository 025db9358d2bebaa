//! Replaces files and links atomically: a reader sees the old or the new one, never a mix, also after a power failure.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use tempfile::NamedTempFile;

/// Prefix of the names of unfinished files without a known destination.
const PREFIX: &str = ".new-";

/// Follows the name of the destination in the name of an unfinished file.
const SUFFIX: &str = ".kubeon-tmp-";

/// A temporary file beside its destination. [`AtomicFile::commit`] renames it; without a commit it is removed.
#[derive(Debug)]
pub struct AtomicFile {
    file: NamedTempFile,
}

impl AtomicFile {
    /// An empty file with this mode in `folder`, independent of the umask.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn new_in(folder: &Path, mode: u32) -> io::Result<Self> {
        let file = tempfile::Builder::new().prefix(PREFIX).tempfile_in(folder)?;
        file.as_file().set_permissions(Permissions::from_mode(mode))?;
        Ok(Self { file })
    }

    /// An empty file with this mode beside `place`, independent of the umask. If the process is killed,
    /// [`remove_leftovers`] finds the file.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn beside(place: &Path, mode: u32) -> io::Result<Self> {
        let file = tempfile::Builder::new().prefix(&own_prefix(place)?).tempfile_in(folder_of(place))?;
        file.as_file().set_permissions(Permissions::from_mode(mode))?;
        Ok(Self { file })
    }

    /// The file, to write to.
    #[must_use]
    pub fn as_file(&self) -> &File {
        self.file.as_file()
    }

    /// Replaces `place`, a file or a link, durably: syncs the file, renames it, syncs the folder.
    ///
    /// # Errors
    /// When one of these steps fails.
    pub fn commit(self, place: &Path) -> io::Result<()> {
        self.file.as_file().sync_all()?;
        self.file.persist(place).map_err(|failed| failed.error)?;
        sync_folder(folder_of(place))
    }

    /// Replaces `place` without a sync. To replace many files durably, sync all of them first, rename each, then sync
    /// each folder once.
    ///
    /// # Errors
    /// When the file cannot be renamed.
    pub fn commit_without_sync(self, place: &Path) -> io::Result<()> {
        self.file.persist(place).map(drop).map_err(|failed| failed.error)
    }

    /// Like [`Self::commit`], but keeps an existing file at `place`. Returns whether the new file was put there.
    ///
    /// # Errors
    /// When a step fails for a reason other than an existing file.
    pub fn commit_if_absent(self, place: &Path) -> io::Result<bool> {
        self.file.as_file().sync_all()?;
        match self.file.persist_noclobber(place) {
            Ok(_) => sync_folder(folder_of(place)).map(|()| true),
            Err(lost) if lost.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(failed) => Err(failed.error),
        }
    }
}

/// Replaces the file at `place` with `content`.
///
/// # Errors
/// When the folder is missing or a step fails.
pub fn write_atomically(place: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let file = AtomicFile::new_in(folder_of(place), mode)?;
    file.as_file().write_all(content)?;
    file.commit(place)
}

/// Creates or replaces a symbolic link. The caller syncs the folder if the link must be durable.
///
/// # Errors
/// When the link cannot be created, or `place` is a folder.
pub fn replace_link(place: &Path, target: &Path) -> io::Result<()> {
    let new = tempfile::Builder::new()
        .prefix(&own_prefix(place)?)
        .make_in(folder_of(place), |temporary| symlink(target, temporary))?;
    new.persist(place).map_err(|failed| failed.error)
}

/// Removes unfinished files and links for `place` that killed processes left. No other process may be writing to `place`.
///
/// # Errors
/// When one of them cannot be removed.
pub fn remove_leftovers(place: &Path) -> io::Result<()> {
    let (prefix, own) = (prefix(place)?, own_prefix(place)?);
    for entry in fs::read_dir(folder_of(place))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&prefix) && !name.starts_with(&own) {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// What the names of unfinished files for `place` begin with.
fn prefix(place: &Path) -> io::Result<String> {
    let name = place
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"))?;
    Ok(format!(".{}{SUFFIX}", name.to_string_lossy()))
}

/// The same for the files of this process.
fn own_prefix(place: &Path) -> io::Result<String> {
    Ok(format!("{}{}-", prefix(place)?, std::process::id()))
}

/// Makes renames within a folder durable.
///
/// # Errors
/// When the folder cannot be opened or synced.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The folder of a path; `.` for a bare name.
fn folder_of(place: &Path) -> &Path {
    place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn names(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn replaces_content_and_mode() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("x");
        write_atomically(&place, b"old", 0o600).unwrap();
        write_atomically(&place, b"new", 0o644).unwrap();
        assert_eq!(fs::read(&place).unwrap(), b"new");
        assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(names(folder.path()), 1);
    }

    #[test]
    fn without_a_commit_the_old_file_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("x");
        write_atomically(&place, b"old", 0o600).unwrap();
        let file = AtomicFile::new_in(folder.path(), 0o600).unwrap();
        file.as_file().write_all(b"new").unwrap();
        drop(file);
        assert_eq!((fs::read(&place).unwrap().as_slice(), names(folder.path())), (&b"old"[..], 1));
    }

    #[test]
    fn replaces_a_link_and_does_not_follow_it() {
        let folder = tempfile::tempdir().unwrap();
        let (place, target) = (folder.path().join("x"), folder.path().join("target"));
        fs::write(&target, "keep").unwrap();
        symlink(&target, &place).unwrap();
        write_atomically(&place, b"new", 0o600).unwrap();
        assert!(fs::symlink_metadata(&place).unwrap().is_file());
        assert_eq!(fs::read(&target).unwrap(), b"keep");
    }

    #[test]
    fn many_files_are_replaced_with_one_sync_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let places = ["x", "y"].map(|name| folder.path().join(name));
        let files = places.each_ref().map(|place| AtomicFile::beside(place, 0o640).unwrap());
        files.iter().for_each(|file| file.as_file().write_all(b"new").unwrap());
        assert!(places.iter().all(|place| !place.exists()));
        for (file, place) in files.into_iter().zip(&places) {
            file.as_file().sync_all().unwrap();
            file.commit_without_sync(place).unwrap();
            assert_eq!(fs::metadata(place).unwrap().permissions().mode() & 0o777, 0o640);
        }
        sync_folder(folder.path()).unwrap();
        assert_eq!(names(folder.path()), 2);
    }

    #[test]
    fn a_link_is_replaced_by_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("link");
        for target in ["/one", "/two"] {
            replace_link(&place, Path::new(target)).unwrap();
            assert_eq!(fs::read_link(&place).unwrap(), Path::new(target));
        }
        assert_eq!(names(folder.path()), 1);
        fs::create_dir(folder.path().join("folder")).unwrap();
        assert!(replace_link(&folder.path().join("folder"), Path::new("/one")).is_err());
        assert_eq!(names(folder.path()), 2, "no temporary link is left");
    }

    #[test]
    fn only_leftovers_of_other_processes_for_the_same_file_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("x");
        let own = AtomicFile::beside(&place, 0o600).unwrap();
        for name in [".x.kubeon-tmp-0-abc", ".xy.kubeon-tmp-0-abc", "x.kubeon-tmp-0-abc"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        remove_leftovers(&place).unwrap();
        assert!(!folder.path().join(".x.kubeon-tmp-0-abc").exists());
        assert_eq!(names(folder.path()), 3);
        own.commit(&place).unwrap();
        assert_eq!(names(folder.path()), 3);
    }

    #[test]
    fn commit_if_absent_keeps_an_existing_file() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("x");
        let commit = |text: &[u8]| {
            let file = AtomicFile::new_in(folder.path(), 0o600).unwrap();
            file.as_file().write_all(text).unwrap();
            file.commit_if_absent(&place).unwrap()
        };
        assert!(commit(b"first"));
        assert!(!commit(b"second"));
        assert_eq!((fs::read(&place).unwrap().as_slice(), names(folder.path())), (&b"first"[..], 1));
    }
}
