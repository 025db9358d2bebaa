//! Secret files that are made once: complete and readable by their owner only, or not there at all.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use kubeon_atomic_file::AtomicFile;

/// Longest key file that is read, in bytes; ours have about 1 KiB.
const LIMIT: u64 = 64 * 1024;

/// Makes the folder with mode 0700, and narrows it when it exists with a wider one.
pub(crate) fn secret_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o700))
}

/// Reads the file, or makes it of `content` when it is missing. Of two makers at once, the first wins
/// and both read its content. A maker that is killed leaves either nothing or the whole file.
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
    // Another process may have been first.
    Ok(read(path)?)
}

/// Reads the file and takes away what rights others have on it.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    look(path)
}

/// Reads the file and leaves it as it is.
pub(crate) fn look(path: &Path) -> io::Result<String> {
    let length = fs::metadata(path)?.len();
    if length > LIMIT {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{length} bytes is no key")));
    }
    fs::read_to_string(path)
}
