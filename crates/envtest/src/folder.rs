//! A folder for one API server, in memory if possible. It is removed when its owner is dropped.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use kubeon_atomic_file::write_atomically;
use tempfile::TempDir;

use crate::EnvtestError;

const PREFIX: &str = "kubeon-envtest-";
const LOCK: &str = "owner.lock";
/// A folder younger than this may not have its lock file yet.
const MINIMUM_AGE: Duration = Duration::from_secs(60);

/// The folder. Its lock shows to other processes that its owner runs.
#[derive(Debug)]
pub(crate) struct Folder {
    folder: TempDir,
    _owner: File,
}

impl Folder {
    /// Creates a folder, on disk if requested, and removes those whose owners were killed.
    pub(crate) fn new(on_disk: bool) -> Result<Self, EnvtestError> {
        let memory = Path::new("/dev/shm");
        let parent = if !on_disk && memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let make = || -> io::Result<Self> {
            sweep(&parent)?;
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent)?;
            // Another process removes a folder with a lock file that is not locked.
            let unlocked = folder.path().join("new.lock");
            let owner = File::create(&unlocked)?;
            owner.try_lock().map_err(io::Error::from)?;
            fs::rename(unlocked, folder.path().join(LOCK))?;
            Ok(Self { folder, _owner: owner })
        };
        make().map_err(EnvtestError::file(&parent))
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file with mode 0600.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, EnvtestError> {
        let path = self.path().join(name);
        write_atomically(&path, text.as_bytes(), 0o600).map_err(EnvtestError::file(&path))?;
        Ok(path)
    }
}

/// Removes folders whose owner has ended. A folder that cannot be removed belongs to another user.
fn sweep(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_abandoned(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

fn is_abandoned(folder: &Path) -> bool {
    match File::open(folder.join(LOCK)) {
        Ok(owner) => owner.try_lock().is_ok(),
        Err(_) => {
            let changed = folder.metadata().and_then(|metadata| metadata.modified());
            changed
                .is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age > MINIMUM_AGE))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn removes_the_folders_of_killed_owners() {
        let root = tempfile::tempdir().unwrap();
        let (dead, alive) =
            (root.path().join("kubeon-envtest-dead"), root.path().join("kubeon-envtest-alive"));
        for folder in [&dead, &alive] {
            fs::create_dir(folder).unwrap();
        }
        File::create(dead.join(LOCK)).unwrap();
        let owner = File::create(alive.join(LOCK)).unwrap();
        owner.try_lock().unwrap();
        sweep(root.path()).unwrap();
        assert!(alive.is_dir() && !dead.exists());
    }

    #[test]
    fn files_are_readable_only_by_their_owner() {
        let folder = Folder::new(false).unwrap();
        let path = folder.write("kubeconfig", "secret").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
