//! `kubeon-runner copy`: the command of an image that contains only files.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// The deepest nesting of folders.
const DEEPEST: u32 = 32;

/// Copies the contents of a folder into another one, with modes and links. Existing files are replaced.
///
/// # Errors
/// When a file cannot be read or written; the text contains its path.
pub(crate) fn folder(from: &Path, to: &Path) -> io::Result<()> {
    copy(from, to, 0)
}

fn copy(from: &Path, to: &Path, depth: u32) -> io::Result<()> {
    let at = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"))
    };
    if depth > DEEPEST {
        return Err(at(from)(io::Error::other("folders are nested too deeply")));
    }
    fs::create_dir_all(to).map_err(at(to))?;
    for entry in fs::read_dir(from).map_err(at(from))? {
        let entry = entry.map_err(at(from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(at(&source))?;
        if kind.is_dir() {
            copy(&source, &target, depth + 1)?;
            continue;
        }
        // A read-only file cannot be overwritten.
        match fs::remove_file(&target) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&target)(error)),
            _ => {}
        }
        if kind.is_symlink() {
            let link = fs::read_link(&source).map_err(at(&source))?;
            symlink(link, &target).map_err(at(&target))?;
        } else {
            fs::copy(&source, &target).map_err(at(&target))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_files_folders_and_links_and_replaces_existing_files() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir_all(from.join("blobs/sha256")).unwrap();
        fs::write(from.join("blobs/sha256/a"), "content").unwrap();
        let read_only = std::os::unix::fs::PermissionsExt::from_mode(0o444);
        fs::set_permissions(from.join("blobs/sha256/a"), read_only).unwrap();
        symlink("blobs", from.join("link")).unwrap();
        for _ in 0..2 {
            folder(&from, &to).unwrap();
            assert_eq!(fs::read_to_string(to.join("link/sha256/a")).unwrap(), "content");
        }
        let missing = folder(&place.path().join("nothing"), &to).unwrap_err();
        assert!(missing.to_string().contains("nothing"));
    }
}
