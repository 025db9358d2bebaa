//! Secret files: created once, complete, with mode 0600.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use kubeon_atomic_file::AtomicFile;

/// The largest key file that is read, in bytes; usual ones have about 1 KiB.
const LIMIT: u64 = 64 * 1024;

/// Creates the folder with mode 0700, or sets that mode.
pub(crate) fn secret_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o700))
}

/// Reads the file, or writes `content` to it when it is missing. Of two processes the first wins and both read its
/// content. A killed process leaves no file or the complete file.
pub(crate) fn read_or_create<E: From<io::Error>>(
    path: &Path,
    content: impl FnOnce() -> Result<String, E>,
) -> Result<String, E> {
    match read(path) {
        Ok(text) => return Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let text = content()?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let file = AtomicFile::new_in(folder, 0o600)?;
    file.as_file().write_all(text.as_bytes())?;
    file.commit_if_absent(path)?;
    // Another process may have written it first.
    Ok(read(path)?)
}

/// Reads the file and removes the permissions of group and others.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    read_unchanged(path)
}

/// Reads the file without changing its mode.
pub(crate) fn read_unchanged(path: &Path) -> io::Result<String> {
    let length = fs::metadata(path)?.len();
    if length > LIMIT {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the file has {length} bytes, which is too large for a key"),
        ));
    }
    fs::read_to_string(path)
}
