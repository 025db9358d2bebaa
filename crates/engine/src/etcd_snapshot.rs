//! Snapshots of etcd on this machine.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use kubeon_api::Version;
use kubeon_atomic_file::AtomicFile;
use kubeon_store::SavedSnapshot;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, StoredCluster};
use crate::error::EngineError;
use crate::ready_master::ReadyMaster;
use crate::snapshot_space;

/// Bytes of the checksum at the end of a snapshot that etcdctl wrote.
const CHECKSUM: u64 = 32;
/// The size of a page of the database, in bytes; a snapshot is a number of pages and the checksum.
const PAGE: u64 = 512;

/// A snapshot on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotFile {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// SHA-256 of the whole file.
    pub sha256: String,
}

/// The file beside a snapshot that holds the state and the keys of its cluster.
#[must_use]
pub fn state_file(snapshot: &Path) -> PathBuf {
    let mut name = snapshot.as_os_str().to_owned();
    name.push(".state");
    PathBuf::from(name)
}

/// Takes a snapshot through a master and writes it to a file, 0600, and the state and the keys of the cluster to a file
/// beside it. The state remembers the snapshot. It stays on the master too as the one before the upgrade to the version `kept`.
///
/// # Errors
/// When another command holds the lock, the master or this machine has too little disk space, a file cannot be written, etcdctl
/// fails, or the snapshot arrives damaged.
pub async fn save(
    engine: &Engine<'_>,
    state: &StoredCluster,
    master: &ReadyMaster,
    path: &Path,
    kept: Option<Version>,
) -> Result<SnapshotFile, EngineError> {
    let lock = engine.lock(state, true, "kubeon etcd save")?;
    let mut state = engine.load(&state.name)?;
    let snapshot = download(master, path, kept).await?;
    let version = state.version.unwrap_or(state.spec.version);
    let taken_at = jiff::Timestamp::now();
    state.remember_snapshot(snapshot.sha256.clone(), SavedSnapshot { taken_at, version });
    engine.store.save(&lock, &mut state)?;
    let beside = state_file(path);
    let unwritable = |error: io::Error| {
        EngineError::failed(format!("cannot write {}", beside.display())).row("cause", error.to_string())
    };
    let file = AtomicFile::beside(&beside, 0o600).map_err(unwritable)?;
    engine.store.export(&state.name, file.as_file())?;
    file.commit(&beside).map_err(unwritable)?;
    Ok(snapshot)
}

/// Writes a snapshot to a file. The file is complete or does not change. It ends with the first write that fails.
async fn download(
    master: &ReadyMaster,
    path: &Path,
    kept: Option<Version>,
) -> Result<SnapshotFile, EngineError> {
    let unwritable = |error: io::Error| {
        EngineError::failed(format!("cannot write {}", path.display())).row("cause", error.to_string())
    };
    snapshot_space::require_here(path, master.database_size().await?)?;
    let file = AtomicFile::beside(path, 0o600).map_err(unwritable)?;
    let failed: Mutex<Option<io::Error>> = Mutex::new(None);
    let ended = CancellationToken::new();
    let on_bytes = |bytes: &[u8]| {
        let mut failed = failed.lock();
        if failed.is_none() {
            *failed = file.as_file().write_all(bytes).err();
        }
        if failed.is_some() {
            ended.cancel();
        }
    };
    let streamed = tokio::select! {
        streamed = master.stream_snapshot(kept, &on_bytes) => streamed,
        () = ended.cancelled() => Ok(()),
    };
    if let Some(error) = failed.into_inner() {
        return Err(unwritable(error));
    }
    streamed?;
    let temporary = file.as_file().try_clone().map_err(unwritable)?;
    let snapshot = read(temporary, path)?;
    file.commit(path).map_err(unwritable)?;
    Ok(snapshot)
}

/// Checks that a snapshot is complete: its end is the checksum of the rest.
///
/// # Errors
/// When the file cannot be read, is not a snapshot, or is damaged.
pub fn check(path: &Path) -> Result<SnapshotFile, EngineError> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    read(file, path)
}

fn unreadable(path: &Path, error: &io::Error) -> EngineError {
    EngineError::failed(format!("cannot read {}", path.display())).row("cause", error.to_string())
}

fn read(mut file: File, path: &Path) -> Result<SnapshotFile, EngineError> {
    use std::io::Seek as _;
    let failed = |error: io::Error| unreadable(path, &error);
    let bytes = file.metadata().map_err(failed)?.len();
    file.rewind().map_err(failed)?;
    let damaged = |why: String| {
        EngineError::refused(format!("{} is not a complete snapshot of etcd", path.display()))
            .row("cause", why)
    };
    if bytes <= CHECKSUM || bytes % PAGE != CHECKSUM {
        return Err(damaged(format!("{bytes} bytes are no whole number of pages and a checksum")));
    }
    let (mut whole, mut content) = (Sha256::new(), Sha256::new());
    let mut buffer = vec![0_u8; 1 << 20];
    let mut left = bytes - CHECKSUM;
    while left > 0 {
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        file.read_exact(&mut buffer[..wanted]).map_err(failed)?;
        whole.update(&buffer[..wanted]);
        content.update(&buffer[..wanted]);
        left -= wanted as u64;
    }
    let mut recorded = [0_u8; CHECKSUM as usize];
    file.read_exact(&mut recorded).map_err(failed)?;
    whole.update(recorded);
    let found = content.finalize();
    if found[..] != recorded {
        let (expected, found) = (hex::encode(recorded), hex::encode(found));
        return Err(damaged(format!("its checksum is {expected}, its content has {found}")));
    }
    Ok(SnapshotFile { path: path.to_owned(), bytes, sha256: hex::encode(whole.finalize()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(pages: usize, change: impl FnOnce(&mut Vec<u8>)) -> Result<SnapshotFile, EngineError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("snapshot.db");
        let mut bytes = vec![7_u8; pages * 512];
        let checksum = Sha256::digest(&bytes);
        bytes.extend_from_slice(&checksum);
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        check(&path)
    }

    #[test]
    fn a_snapshot_ends_with_the_checksum_of_its_content() {
        assert_eq!(snapshot(3, |_| ()).unwrap().bytes, 3 * 512 + 32);
        let cause = |result: Result<SnapshotFile, EngineError>| result.unwrap_err().rows[0].1.clone();
        assert!(cause(snapshot(3, |bytes| bytes[700] ^= 1)).contains("its content has"));
        assert!(cause(snapshot(3, |bytes| bytes.truncate(900))).contains("900 bytes are no whole number"));
        assert!(cause(snapshot(0, Vec::clear)).contains("0 bytes"));
        assert!(cause(snapshot(3, |bytes| bytes.truncate(1024 + 32))).contains("its content has"));
    }

    #[test]
    fn the_state_is_beside_the_snapshot() {
        assert_eq!(state_file(Path::new("/b/demo.db")), Path::new("/b/demo.db.state"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = check(Path::new("/nowhere/snapshot.db")).unwrap_err();
        assert_eq!(error.title, "cannot read /nowhere/snapshot.db");
    }
}
