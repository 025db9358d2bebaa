//! Finished components, scratch folders and locks in the cache folder. A process may be killed at any moment: unfinished
//! files are in a scratch folder that the next run removes, and finished ones appear by one rename.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use kubeon_api::Digest;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempDir;

use crate::{Part, digest};

const PARTS_FILE: &str = "parts.json";
const LOCK_FILE: &str = "owner.lock";
/// A scratch folder younger than this may not have its lock file yet.
const MINIMUM_AGE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);

/// A folder of this process. It is removed when dropped, or by the next run if this process is killed.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: TempDir,
    _owner: File,
}

impl Scratch {
    /// Creates one below `parent`, so that a rename to a folder beside it is possible.
    pub(crate) fn new(parent: &Path, name: &str) -> io::Result<Self> {
        fs::create_dir_all(parent)?;
        let folder = tempfile::Builder::new().prefix(&format!(".{name}-")).tempdir_in(parent)?;
        // Another process removes a folder with a lock file that is not locked.
        let unlocked = folder.path().join("new.lock");
        let owner = File::create(&unlocked)?;
        owner.try_lock().map_err(io::Error::from)?;
        fs::rename(unlocked, folder.path().join(LOCK_FILE))?;
        Ok(Self { folder, _owner: owner })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Creates a folder inside.
    pub(crate) fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path().join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    }
}

/// Removes scratch folders whose process has ended. The next run tries again to remove a folder that cannot be removed
/// now.
pub(crate) fn sweep(parent: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(parent) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if hidden
            && path.is_dir()
            && is_abandoned(&path)
            && let Err(error) = fs::remove_dir_all(&path)
        {
            tracing::warn!(path = %path.display(), %error, "an abandoned folder cannot be removed");
        }
    }
    Ok(())
}

fn is_abandoned(folder: &Path) -> bool {
    match File::open(folder.join(LOCK_FILE)) {
        Ok(owner) => owner.try_lock().is_ok(),
        Err(_) => {
            let changed = folder.metadata().and_then(|metadata| metadata.modified());
            changed
                .is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age > MINIMUM_AGE))
        }
    }
}

/// Takes the lock of that name and waits up to `limit` for another process; `waiting` is called once before the first
/// wait. Dropping the file releases the lock, and so does the end of the process.
pub(crate) fn lock(cache: &Path, name: &str, limit: Duration, waiting: impl FnOnce()) -> io::Result<File> {
    let folder = cache.join("locks");
    fs::create_dir_all(&folder)?;
    let file =
        File::options().create(true).truncate(false).write(true).open(folder.join(format!("{name}.lock")))?;
    let start = Instant::now();
    let mut waiting = Some(waiting);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {}
        }
        if let Some(waiting) = waiting.take() {
            waiting();
        }
        if start.elapsed() >= limit {
            let text = format!("another process has been building {name} for {} s", limit.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        thread::sleep(POLL);
    }
}

/// A finished component: its parts and the folder with their blobs, named by digest.
#[derive(Debug, Clone)]
pub(crate) struct Finished {
    pub(crate) folder: PathBuf,
    pub(crate) parts: Vec<Part>,
}

impl Finished {
    pub(crate) fn blob(&self, digest: &Digest) -> PathBuf {
        self.folder.join(digest.as_str())
    }

    /// Reads a component from the cache and hashes its blobs again. `None` if the component is missing or damaged.
    pub(crate) fn load(folder: &Path) -> Option<Self> {
        let parts: Vec<Part> = serde_json::from_slice(&fs::read(folder.join(PARTS_FILE)).ok()?).ok()?;
        let finished = Self { folder: folder.to_owned(), parts };
        let is_intact = |part: &Part| {
            digest::of_file(&finished.blob(&part.digest)).is_ok_and(|(found, _)| found == part.digest)
        };
        if finished.parts.iter().all(is_intact) {
            return Some(finished);
        }
        tracing::warn!(folder = %folder.display(), "a cached component is damaged and is built again");
        None
    }

    /// Turns a folder with blobs into a cache entry.
    pub(crate) fn commit(built: &Path, folder: &Path, parts: Vec<Part>) -> io::Result<Self> {
        let file = File::create(built.join(PARTS_FILE))?;
        serde_json::to_writer(&file, &parts)?;
        file.sync_all()?;
        replace(built, folder)?;
        Ok(Self { folder: folder.to_owned(), parts })
    }
}

/// Moves the folder `built` to `target`. If `target` exists, exchanges the two folders in one step and removes the old
/// one, which is then at `built`.
pub(crate) fn replace(built: &Path, target: &Path) -> io::Result<()> {
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    match renameat_with(CWD, built, CWD, target, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(rustix::io::Errno::EXIST) => {
            renameat_with(CWD, built, CWD, target, RenameFlags::EXCHANGE)?;
            fs::remove_dir_all(built)?;
        }
        Err(error) => return Err(error.into()),
    }
    if let Some(parent) = target.parent() {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_only_scratch_folders_of_dead_processes() {
        let root = tempfile::tempdir().unwrap();
        let alive = Scratch::new(root.path(), "alive").unwrap();
        let dead = root.path().join(".dead-x");
        fs::create_dir(&dead).unwrap();
        File::create(dead.join(LOCK_FILE)).unwrap();
        let target = root.path().join("finished");
        fs::create_dir(&target).unwrap();
        sweep(root.path()).unwrap();
        assert!(alive.path().is_dir() && target.is_dir());
        assert!(!dead.exists());
    }

    #[test]
    fn replaces_a_whole_folder() {
        let root = tempfile::tempdir().unwrap();
        let (built, target) = (root.path().join("built"), root.path().join("target"));
        for text in ["old", "new"] {
            fs::create_dir(&built).unwrap();
            fs::write(built.join("file"), text).unwrap();
            replace(&built, &target).unwrap();
        }
        assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "new");
        assert!(!built.exists());
    }

    #[test]
    fn gives_up_waiting_for_a_lock() {
        let root = tempfile::tempdir().unwrap();
        let held = lock(root.path(), "etcd", Duration::ZERO, || {}).unwrap();
        let mut reported = false;
        let error = lock(root.path(), "etcd", Duration::from_millis(1), || reported = true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(reported);
        drop(held);
        // A child that another test starts owns a copy of the lock until its exec.
        lock(root.path(), "etcd", Duration::from_secs(10), || {}).unwrap();
    }
}
