//! The file of an export.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use kubeon_atomic_file::AtomicFile;

use super::content::{FORMAT, MetaExport};
use crate::encrypted_file::{EncryptionKey, is_encrypted};
use crate::error::EngineError;
use crate::output::EngineOutput;

/// Refuses a place that is no file: the content must reach nobody else. A link, such as `/dev/stdout`, is none.
///
/// # Errors
/// The reason.
pub fn require_writable(path: &Path) -> Result<(), EngineError> {
    let is_other = fs::symlink_metadata(path).is_ok_and(|found| !found.is_file());
    if path.as_os_str() != "-" && !is_other {
        return Ok(());
    }
    let title = format!("an export is not written to {}", path.display());
    Err(EngineError::refused(title)
        .row("cause", "it contains the keys of all clusters")
        .row("instead", "name a file, which only its owner may read"))
}

/// Writes the export to a file that only its owner may read, and replaces one that exists. Others see the old or the new
/// file, never a part of it.
///
/// # Errors
/// Refuses a place that is no file. Fails when the file cannot be written.
pub fn write_export(
    path: &Path,
    export: &MetaExport,
    key: Option<&EncryptionKey>,
) -> Result<(), EngineError> {
    require_writable(path)?;
    let failed = |error: io::Error| {
        EngineError::failed(format!("cannot write {}", path.display())).row("cause", error.to_string())
    };
    let content = serde_json::to_vec(export).map_err(|error| failed(error.into()))?;
    let file = AtomicFile::beside(path, 0o600).map_err(failed)?;
    let written = match key {
        Some(key) => key.encrypt(content.as_slice(), file.as_file()),
        None => file.as_file().write_all(&content),
    };
    written.map_err(failed)?;
    file.commit(path).map_err(failed)
}

/// Reads an export. Warns about a file that others may read.
///
/// # Errors
/// Refuses an encrypted file without its key, and a file that is no export. Fails when it cannot be read.
pub fn read_export(
    path: &Path,
    key: Option<&EncryptionKey>,
    output: &dyn EngineOutput,
) -> Result<MetaExport, EngineError> {
    let shown = path.display();
    let failed = |error: io::Error| {
        EngineError::failed(format!("cannot read {shown}")).row("cause", error.to_string())
    };
    let content = if is_encrypted(path).map_err(failed)? {
        decrypted(path, key)?
    } else {
        let mode = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            output.warn(&format!("others may read {shown}, which contains keys (mode {mode:o})"));
        }
        fs::read(path).map_err(failed)?
    };
    let export: MetaExport = serde_json::from_slice(&content).map_err(|error| {
        EngineError::refused(format!("{shown} is no export of kubeon")).row("cause", error.to_string())
    })?;
    if export.format == FORMAT {
        return Ok(export);
    }
    let cause = format!("it has format {}, and this program reads format {FORMAT}", export.format);
    Err(EngineError::refused(format!("{shown} was written by kubeon {}", export.kubeon_version))
        .row("cause", cause))
}

fn decrypted(path: &Path, key: Option<&EncryptionKey>) -> Result<Vec<u8>, EngineError> {
    let shown = path.display();
    let Some(key) = key else {
        return Err(EngineError::refused(format!("{shown} is encrypted"))
            .row("decrypt", "--key FILE, with the key that it was written with"));
    };
    let mut content = Vec::new();
    File::open(path).and_then(|from| key.decrypt(from, &mut content)).map_err(|error| {
        EngineError::refused(format!("{shown} cannot be decrypted")).row("cause", error.to_string())
    })?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;
    use crate::encrypted_file::write_new_key;
    use crate::output::SilentOutput;

    fn export() -> MetaExport {
        MetaExport {
            format: FORMAT,
            kubeon_version: "1.2.3".to_owned(),
            exported_at: "2026-01-31T12:00:00Z".parse().unwrap(),
            operator_namespace: "kubeon-system".to_owned(),
            objects: vec![json!({"kind": "Secret", "metadata": {"name": "a"}})],
            notes: Vec::new(),
        }
    }

    #[test]
    fn only_the_owner_may_read_the_file_and_it_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let (path, key) = (folder.path().join("meta.json"), folder.path().join("key"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write_export(&path, &export(), None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read_export(&path, None, &SilentOutput).unwrap(), export());

        write_new_key(&key).unwrap();
        let key = EncryptionKey::read(&key).unwrap();
        write_export(&path, &export(), Some(&key)).unwrap();
        assert!(!String::from_utf8_lossy(&fs::read(&path).unwrap()).contains("kubeon-system"));
        assert_eq!(read_export(&path, Some(&key), &SilentOutput).unwrap(), export());
        assert!(read_export(&path, None, &SilentOutput).unwrap_err().title.ends_with("is encrypted"));
    }

    #[test]
    fn a_place_that_others_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink("/dev/null", &link).unwrap();
        for place in
            ["-", "/dev/stdout", "/dev/null", link.to_str().unwrap(), folder.path().to_str().unwrap()]
        {
            let refused = write_export(Path::new(place), &export(), None).unwrap_err();
            assert!(refused.to_string().contains("keys of all clusters"), "{refused}");
        }
    }

    #[test]
    fn other_files_and_formats_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("meta.json");
        fs::write(&path, "{}").unwrap();
        assert!(
            read_export(&path, None, &SilentOutput).unwrap_err().title.ends_with("is no export of kubeon")
        );
        write_export(&path, &MetaExport { format: FORMAT + 1, ..export() }, None).unwrap();
        let refused = read_export(&path, None, &SilentOutput).unwrap_err();
        assert!(refused.title.ends_with("was written by kubeon 1.2.3"), "{refused}");
    }
}
