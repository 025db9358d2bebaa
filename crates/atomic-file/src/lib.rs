//! Replaces files atomically: a reader, or a machine that lost power, sees the old file or the new one, never a mix.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::NamedTempFile;

/// Prefix of the names of unfinished files.
const PREFIX: &str = ".new-";

/// A file that is written beside its place and put there by [`AtomicFile::commit`]. Without a commit nothing remains.
#[derive(Debug)]
pub struct AtomicFile {
    file: NamedTempFile,
}

impl AtomicFile {
    /// An empty file with this mode in `folder`, whatever the umask is.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn new_in(folder: &Path, mode: u32) -> io::Result<Self> {
        let file = tempfile::Builder::new().prefix(PREFIX).tempfile_in(folder)?;
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

    /// The same, but keeps what is at `place` already. Returns whether the new file is there now.
    ///
    /// # Errors
    /// When a step fails for another reason.
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
    fn without_a_commit_the_old_file_stays() {
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
    fn commit_if_absent_keeps_what_is_there() {
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
