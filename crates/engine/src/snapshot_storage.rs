//! Writes snapshots to their places and reads them: encrypted with a key, in files or in an object store.
//!
//! ```text
//!   save:   etcd ─► a private folder ─► encrypted ─► the place
//!   fetch:  the place ─► a private folder ─► decrypted ─► a plain file
//! ```

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kubeon_api::Version;
use kubeon_atomic_file::AtomicFile;
use kubeon_s3::{S3Address, S3Bucket, S3Error, S3Settings};
use tempfile::TempDir;

use crate::encrypted_file::{EncryptionKey, is_encrypted};
use crate::engine::{Engine, StoredCluster};
use crate::error::EngineError;
use crate::etcd_snapshot::{self, SnapshotFile, state_file};
use crate::ready_master::ReadyMaster;
use crate::snapshot_folder;
use crate::snapshot_place::SnapshotPlace;

/// The name of a snapshot in a private folder.
const NAME: &str = "snapshot.db";
/// The beginning of the names of private folders.
const PRIVATE: &str = ".new-";
/// A private folder of this age is not in use any more.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// How snapshots are kept.
#[derive(Clone)]
pub struct SnapshotStorage {
    settings: S3Settings,
    key: Option<Arc<EncryptionKey>>,
    /// The folder of private folders.
    base: PathBuf,
}

/// A snapshot as a plain file on this machine, with its state beside it if its place has one.
#[derive(Debug)]
pub struct FetchedSnapshot {
    /// The plain file.
    pub file: PathBuf,
    /// Where it comes from.
    pub place: SnapshotPlace,
    /// Removed with the value.
    _folder: Option<TempDir>,
}

impl FetchedSnapshot {
    /// A plain file on this machine.
    #[must_use]
    pub fn plain(file: PathBuf) -> Self {
        Self { place: SnapshotPlace::File(file.clone()), file, _folder: None }
    }

    /// Checks that the snapshot is complete.
    ///
    /// # Errors
    /// When it cannot be read, is no snapshot, or is damaged. The error names its place.
    pub fn check(&self) -> Result<SnapshotFile, EngineError> {
        etcd_snapshot::check(&self.file).map_err(|error| self.named(error))
    }

    /// The error with the place instead of the file.
    pub(crate) fn named(&self, mut error: EngineError) -> EngineError {
        let (file, place) = (self.file.display().to_string(), self.place.to_string());
        error.title = error.title.replace(&file, &place);
        for (_, text) in &mut error.rows {
            *text = text.replace(&file, &place);
        }
        error
    }
}

impl From<S3Error> for EngineError {
    fn from(error: S3Error) -> Self {
        let is_refused =
            matches!(error, S3Error::Settings(_) | S3Error::Denied { .. } | S3Error::Absent { .. });
        if is_refused { Self::refused(error.to_string()) } else { Self::failed(error.to_string()) }
    }
}

impl SnapshotStorage {
    /// Snapshots that are encrypted with the key in the file, if there is one.
    ///
    /// # Errors
    /// When the key cannot be read.
    pub fn new(engine: &Engine<'_>, key: Option<&Path>) -> Result<Self, EngineError> {
        let key = key.map(EncryptionKey::read).transpose()?.map(Arc::new);
        let base = engine.store.base().join("snapshots");
        Ok(Self { settings: engine.environment.s3.clone(), key, base })
    }

    /// Takes a snapshot through a master, and writes it and the state of the cluster to a place. The state comes first: a
    /// snapshot that is listed is complete. It stays on the master too as the one before the upgrade to the version `kept`.
    ///
    /// # Errors
    /// Refuses an object store without a key. As for [`etcd_snapshot::save`]; fails when the place cannot be written.
    pub async fn save(
        &self,
        engine: &Engine<'_>,
        state: &StoredCluster,
        master: &ReadyMaster,
        place: &SnapshotPlace,
        kept: Option<Version>,
    ) -> Result<SnapshotFile, EngineError> {
        if let (SnapshotPlace::File(path), None) = (place, &self.key) {
            return etcd_snapshot::save(engine, state, master, path, kept).await;
        }
        let folder = self.private_folder()?;
        let plain = folder.path().join(NAME);
        let saved = etcd_snapshot::save(engine, state, master, &plain, kept).await?;
        for (file, place) in [(state_file(&plain), place.state()), (plain, place.clone())] {
            let storage = self.clone();
            blocking(move || storage.put(&file, &place)).await?;
        }
        Ok(saved)
    }

    /// Refuses what [`Self::save`] would refuse, before a snapshot is taken.
    ///
    /// # Errors
    /// The reason.
    pub fn require_writable(&self, place: &SnapshotPlace) -> Result<(), EngineError> {
        let SnapshotPlace::Object(address) = place else { return Ok(()) };
        S3Bucket::new(&self.settings, address)?;
        if self.key.is_some() {
            return Ok(());
        }
        let error = EngineError::refused(format!("{place} would hold the keys of the cluster unencrypted"));
        Err(error.row("encrypt", "--key FILE; kubeon etcd new-key FILE makes one"))
    }

    /// The snapshot as a plain file, with the state beside it.
    ///
    /// # Errors
    /// When there is none, it cannot be read or decrypted, or a folder on this machine cannot be written.
    pub async fn fetch(&self, place: SnapshotPlace) -> Result<FetchedSnapshot, EngineError> {
        if let SnapshotPlace::File(path) = &place
            && !is_encrypted(path).map_err(unreadable(&place))?
        {
            return Ok(FetchedSnapshot::plain(path.clone()));
        }
        let folder = self.private_folder()?;
        let file = folder.path().join(NAME);
        let (storage, from, plain) = (self.clone(), place.clone(), file.clone());
        blocking(move || {
            storage.get(&from, &plain)?;
            // A snapshot without its state serves a machine that knows the cluster.
            let absent = matches!(&from, SnapshotPlace::File(path) if !state_file(path).exists());
            if absent { Ok(()) } else { storage.get_if_any(&from.state(), &state_file(&plain)) }
        })
        .await?;
        Ok(FetchedSnapshot { file, place, _folder: Some(folder) })
    }

    /// Removes the oldest snapshots of a folder, with their states, until `keep` are left. Other files and objects stay. Returns
    /// how many were removed.
    ///
    /// # Errors
    /// When the folder cannot be read, or one cannot be removed.
    pub async fn prune(&self, folder: &SnapshotPlace, keep: usize) -> Result<usize, EngineError> {
        let prefix = match folder {
            SnapshotPlace::File(path) => return snapshot_folder::prune(path, keep),
            SnapshotPlace::Object(prefix) => prefix.clone(),
        };
        let settings = self.settings.clone();
        blocking(move || {
            let bucket = S3Bucket::new(&settings, &prefix)?;
            let mut snapshots = bucket.list(&prefix)?;
            snapshots.retain(|one| one.key() == format!("{}{}", prefix.key(), one.file_name()));
            snapshots.retain(|one| snapshot_folder::is_name(one.file_name()));
            let old = &snapshots[..snapshots.len().saturating_sub(keep)];
            for address in old {
                // The keys go first: without its snapshot, a state is of no use.
                bucket.remove(&state_address(address))?;
                bucket.remove(address)?;
            }
            Ok(old.len())
        })
        .await
    }

    /// A folder for one snapshot. Those that killed programs left are removed after a day.
    fn private_folder(&self) -> Result<TempDir, EngineError> {
        let owner_only = Permissions::from_mode(0o700);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.base).and_then(|()| {
            remove_abandoned(&self.base)?;
            tempfile::Builder::new().prefix(PRIVATE).permissions(owner_only).tempdir_in(&self.base)
        });
        made.map_err(|error| {
            EngineError::failed(format!("cannot write to {}", self.base.display()))
                .row("cause", error.to_string())
        })
    }

    /// Writes a plain file to its place.
    fn put(&self, plain: &Path, place: &SnapshotPlace) -> Result<(), EngineError> {
        let failed = |error: io::Error| {
            EngineError::failed(format!("cannot write {place}")).row("cause", error.to_string())
        };
        let key = self.key.as_ref().ok_or_else(|| EngineError::failed(format!("no key for {place}")))?;
        let beside = match place {
            SnapshotPlace::File(path) => path.clone(),
            SnapshotPlace::Object(_) => plain.with_extension("encrypted"),
        };
        let file = AtomicFile::beside(&beside, 0o600).map_err(failed)?;
        File::open(plain).and_then(|from| key.encrypt(from, file.as_file())).map_err(failed)?;
        file.commit(&beside).map_err(failed)?;
        match place {
            SnapshotPlace::File(_) => Ok(()),
            SnapshotPlace::Object(address) => {
                Ok(S3Bucket::new(&self.settings, address)?.upload(&beside, address)?)
            }
        }
    }

    /// Like [`Self::get`], and nothing when there is no such object.
    fn get_if_any(&self, place: &SnapshotPlace, plain: &Path) -> Result<(), EngineError> {
        if let SnapshotPlace::Object(address) = place
            && S3Bucket::new(&self.settings, address)?.list(address)?.iter().all(|found| found != address)
        {
            return Ok(());
        }
        self.get(place, plain)
    }

    /// Reads a place into a plain file.
    fn get(&self, place: &SnapshotPlace, plain: &Path) -> Result<(), EngineError> {
        let from = match place {
            SnapshotPlace::File(path) => path.clone(),
            SnapshotPlace::Object(address) => {
                let received = plain.with_extension("received");
                S3Bucket::new(&self.settings, address)?.download(address, &received)?;
                received
            }
        };
        if !is_encrypted(&from).map_err(unreadable(place))? {
            return fs::copy(&from, plain).map(drop).map_err(unreadable(place));
        }
        let Some(key) = &self.key else {
            let error = EngineError::refused(format!("{place} is encrypted"));
            return Err(error.row("decrypt", "--key FILE, with the key that it was saved with"));
        };
        let out = File::options().write(true).create_new(true).open(plain).map_err(unreadable(place))?;
        let decrypted = File::open(&from).and_then(|from| key.decrypt(from, out));
        decrypted.map_err(|error| {
            EngineError::refused(format!("{place} cannot be decrypted")).row("cause", error.to_string())
        })
    }
}

fn remove_abandoned(base: &Path) -> io::Result<()> {
    for entry in fs::read_dir(base)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(PRIVATE) {
            continue;
        }
        match entry.metadata().and_then(|metadata| metadata.modified()) {
            Ok(modified) if modified.elapsed().unwrap_or_default() > ABANDONED => {
                fs::remove_dir_all(entry.path())?;
            }
            // Another program has just completed its snapshot.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn state_address(address: &S3Address) -> S3Address {
    match SnapshotPlace::Object(address.clone()).state() {
        SnapshotPlace::Object(state) => state,
        SnapshotPlace::File(_) => address.clone(),
    }
}

fn unreadable(place: &SnapshotPlace) -> impl Fn(io::Error) -> EngineError {
    let title = format!("cannot read {place}");
    move |error| EngineError::failed(title.clone()).row("cause", error.to_string())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
) -> Result<T, EngineError> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|error| {
        Err(EngineError::failed(format!("the transfer of the snapshot ended: {error}")))
    })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_old_private_folders_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let long_ago = SystemTime::now() - 2 * ABANDONED;
        for (name, is_old) in [(".new-old", true), (".new-young", false), ("demo", true)] {
            let path = base.path().join(name);
            fs::create_dir(&path).unwrap();
            if is_old {
                File::open(&path).unwrap().set_modified(long_ago).unwrap();
            }
        }
        remove_abandoned(base.path()).unwrap();
        let exists = |name: &str| base.path().join(name).exists();
        assert_eq!((exists(".new-old"), exists(".new-young"), exists("demo")), (false, true, true));
    }
}
