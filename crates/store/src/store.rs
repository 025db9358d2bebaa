//! The folder of the local state.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use kubeon_api::ClusterName;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use crate::error::{StoreError, StoreRemedy};
use crate::file;
use crate::lock::ClusterLock;
use crate::state::{ClusterState, SCHEMA};

/// The folder of the state: `kubeon_home` (`$KUBEON_HOME`), or else `.kubeon` in `home` (`$HOME`).
///
/// # Errors
/// [`StoreError::NoHome`] when neither is set.
pub fn base_folder(kubeon_home: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, StoreError> {
    let set = |value: Option<OsString>| value.filter(|text| !text.is_empty()).map(PathBuf::from);
    set(kubeon_home).or_else(|| set(home).map(|home| home.join(".kubeon"))).ok_or(StoreError::NoHome)
}

/// The files in the folder of the state that are named like states.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreContents {
    /// The clusters, sorted.
    pub clusters: Vec<ClusterName>,
    /// Files that are no states, sorted. Another program wrote them.
    pub others: Vec<PathBuf>,
}

/// The local state. Reading needs no lock; every change needs the cluster's [`ClusterLock`].
#[derive(Debug, Clone)]
pub struct Store {
    base: PathBuf,
}

impl Store {
    /// The state in the folder `base`, which is created by the first change.
    #[must_use]
    pub fn new(base: PathBuf) -> Self {
        Self { base }
    }

    /// The folder itself.
    #[must_use]
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// The state file of a cluster.
    #[must_use]
    pub fn state_path(&self, cluster: &ClusterName) -> PathBuf {
        self.base.join(format!("{cluster}.json"))
    }

    /// The previous state.
    #[must_use]
    pub fn backup_path(&self, cluster: &ClusterName) -> PathBuf {
        self.base.join(format!("{cluster}.json.bak"))
    }

    /// The folder of a cluster's keys.
    #[must_use]
    pub fn secret_folder(&self, cluster: &ClusterName) -> PathBuf {
        self.base.join("secret").join(cluster.as_str())
    }

    /// The admin's kubeconfig.
    #[must_use]
    pub fn kubeconfig_path(&self, cluster: &ClusterName) -> PathBuf {
        self.base.join("conf/cluster").join(format!("{cluster}.yaml"))
    }

    /// The folder of the snapshot out of which a cluster is being made.
    #[must_use]
    pub fn restore_folder(&self, cluster: &ClusterName) -> PathBuf {
        self.base.join("restore").join(cluster.as_str())
    }

    /// The pinned SSH keys of a cluster's hosts.
    #[must_use]
    pub fn known_hosts_path(&self, cluster: &ClusterName) -> PathBuf {
        self.base.join("known_hosts").join(cluster.as_str())
    }

    /// Names of the clusters, sorted. Other files are ignored. A cluster whose state cannot be read has a name too.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn list(&self) -> Result<Vec<ClusterName>, StoreError> {
        Ok(self.contents()?.clusters)
    }

    /// As [`Store::list`], with the files that have the name of a state and are none.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn contents(&self) -> Result<StoreContents, StoreError> {
        let mut contents = StoreContents::default();
        let entries = match fs::read_dir(&self.base) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(contents),
            Err(error) => return Err(StoreError::file("read", &self.base)(error)),
        };
        for entry in entries {
            let entry = entry.map_err(StoreError::file("read", &self.base))?;
            let name = entry.file_name();
            let cluster = name.to_str().and_then(|name| name.strip_suffix(".json"));
            let Some(cluster) = cluster.and_then(|name| name.parse::<ClusterName>().ok()) else { continue };
            if may_be_state(&entry.path()) {
                contents.clusters.push(cluster);
            } else {
                contents.others.push(entry.path());
            }
        }
        contents.clusters.sort();
        contents.others.sort();
        Ok(contents)
    }

    /// Whether a state file of that name exists, readable or not.
    #[must_use]
    pub fn exists(&self, cluster: &ClusterName) -> bool {
        self.state_path(cluster).exists()
    }

    /// Reads the state of a cluster.
    ///
    /// # Errors
    /// When there is none, or the file is damaged, from a newer kubeon, or from another program.
    pub fn load<S: DeserializeOwned>(&self, cluster: &ClusterName) -> Result<ClusterState<S>, StoreError> {
        let path = self.state_path(cluster);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::Missing(cluster.clone()));
            }
            Err(error) => return Err(StoreError::file("read", path)(error)),
        };
        let state = self.parse::<S>(cluster, &path, &text)?;
        if state.name != *cluster {
            return Err(self.damaged(cluster, path, format!("it is the state of {}", state.name)));
        }
        Ok(state)
    }

    pub(crate) fn parse<S: DeserializeOwned>(
        &self,
        cluster: &ClusterName,
        path: &Path,
        text: &[u8],
    ) -> Result<ClusterState<S>, StoreError> {
        let damaged = |why: serde_json::Error| self.damaged(cluster, path.to_owned(), why.to_string());
        let value: Value = serde_json::from_slice(text).map_err(damaged)?;
        match value.get("schema") {
            None if value.is_object() => return Err(StoreError::Foreign { path: path.to_owned() }),
            Some(schema) => {
                if let Some(found) = schema.as_u64().filter(|found| *found > u64::from(SCHEMA)) {
                    return Err(StoreError::Newer { path: path.to_owned(), found, known: SCHEMA });
                }
            }
            None => {}
        }
        serde_json::from_value(value).map_err(damaged)
    }

    fn damaged(&self, cluster: &ClusterName, path: PathBuf, why: String) -> StoreError {
        let backup = self.backup_path(cluster);
        let remedy = match fs::metadata(&backup).and_then(|meta| meta.modified()) {
            Ok(time) => {
                let saved_at = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
                StoreRemedy::RestorePrevious { backup, path: path.clone(), saved_at }
            }
            Err(_) => StoreRemedy::RestoreFile,
        };
        StoreError::Damaged { path, why, remedy }
    }

    /// Takes the lock of a cluster without waiting. `command` is shown to others, such as `kubeon create`.
    ///
    /// # Errors
    /// [`StoreError::Locked`] with the holder when another process has it.
    pub fn lock(&self, cluster: &ClusterName, command: &str) -> Result<ClusterLock, StoreError> {
        let folder = self.base.join("lock");
        file::private_folder(&self.base)?;
        file::private_folder(&folder)?;
        ClusterLock::take(&folder.join(cluster.as_str()), cluster, command)
    }

    /// As [`Store::lock`], for a caller that has already `read` the state (`None` when there was none). Fails when another
    /// process has saved the state since, so that it is not overwritten.
    ///
    /// # Errors
    /// [`StoreError::Locked`] with the holder when another process has it; [`StoreError::Changed`] when the state has
    /// changed.
    pub fn lock_as_read<S>(
        &self,
        cluster: &ClusterName,
        command: &str,
        read: Option<&ClusterState<S>>,
    ) -> Result<ClusterLock, StoreError> {
        let lock = self.lock(cluster, command)?;
        let now = match self.load::<IgnoredAny>(cluster) {
            Ok(state) => Some(state),
            Err(StoreError::Missing(_)) => None,
            Err(error) => return Err(error),
        };
        if read.map(ClusterState::saving) == now.as_ref().map(ClusterState::saving) {
            return Ok(lock);
        }
        Err(StoreError::Changed(cluster.clone()))
    }

    /// Writes the state and sets its `updated_at`. The previous state becomes the backup if it is readable.
    ///
    /// # Errors
    /// When the lock is another cluster's, or a file cannot be written.
    pub fn save<S: Serialize>(
        &self,
        lock: &ClusterLock,
        state: &mut ClusterState<S>,
    ) -> Result<(), StoreError> {
        check_lock(lock, &state.name)?;
        let path = self.state_path(&state.name);
        state.updated_at = Timestamp::now();
        let mut text =
            serde_json::to_vec_pretty(state).map_err(|e| StoreError::file("write", &path)(e.into()))?;
        text.push(b'\n');
        if let Ok(old) = fs::read(&path)
            && self.parse::<Value>(&state.name, &path, &old).is_ok()
        {
            let backup = self.backup_path(&state.name);
            file::link_backup(&path, &backup).map_err(StoreError::file("write", backup))?;
        }
        file::private_folder(&self.base)?;
        file::write_private(&path, &text)
    }

    /// Removes a cluster: kubeconfig, keys, pinned SSH keys, backup, and finally the state, so that an interrupted removal
    /// can be repeated. Missing files are ignored.
    ///
    /// # Errors
    /// When the lock is another cluster's, or a file cannot be removed.
    pub fn remove(&self, lock: &ClusterLock, cluster: &ClusterName) -> Result<(), StoreError> {
        check_lock(lock, cluster)?;
        if self.current()?.as_ref() == Some(cluster) {
            let path = self.base.join("current");
            file::remove(&path).map_err(StoreError::file("remove", path))?;
        }
        let secrets = self.secret_folder(cluster);
        file::remove_folder(&secrets).map_err(StoreError::file("remove", secrets))?;
        let restored = self.restore_folder(cluster);
        file::remove_folder(&restored).map_err(StoreError::file("remove", restored))?;
        for path in [
            self.kubeconfig_path(cluster),
            self.known_hosts_path(cluster),
            self.backup_path(cluster),
            self.state_path(cluster),
        ] {
            file::remove(&path).map_err(StoreError::file("remove", path))?;
        }
        Ok(())
    }

    /// The cluster that `use` chose, if one is chosen.
    ///
    /// # Errors
    /// When the file cannot be read or holds no cluster name.
    pub fn current(&self) -> Result<Option<ClusterName>, StoreError> {
        let path = self.base.join("current");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::file("read", path)(error)),
        };
        text.trim().parse().map(Some).map_err(|error: kubeon_api::NameError| StoreError::Damaged {
            path,
            why: error.to_string(),
            remedy: StoreRemedy::ChooseCluster,
        })
    }

    /// Chooses the cluster for commands without a name.
    ///
    /// # Errors
    /// When there is no such cluster here, or the file cannot be written.
    pub fn set_current(&self, cluster: &ClusterName) -> Result<(), StoreError> {
        if !self.exists(cluster) {
            return Err(StoreError::Missing(cluster.clone()));
        }
        file::write_private(&self.base.join("current"), format!("{cluster}\n").as_bytes())
    }

    /// Writes the admin's kubeconfig with mode 0600 and returns its path.
    ///
    /// # Errors
    /// When the lock is another cluster's, or the file cannot be written.
    pub fn save_kubeconfig(&self, lock: &ClusterLock, text: &str) -> Result<PathBuf, StoreError> {
        let path = self.kubeconfig_path(lock.cluster());
        file::private_folder(&self.base.join("conf"))?;
        file::write_private(&path, text.as_bytes())?;
        Ok(path)
    }

    /// Writes the pinned SSH keys of the cluster's hosts, 0600.
    ///
    /// # Errors
    /// When the lock is another cluster's, or the file cannot be written.
    pub fn save_known_hosts(&self, lock: &ClusterLock, text: &str) -> Result<PathBuf, StoreError> {
        let path = self.known_hosts_path(lock.cluster());
        file::write_private(&path, text.as_bytes())?;
        Ok(path)
    }
}

/// Whether the file is a state, perhaps a damaged one. JSON without a schema version is none.
fn may_be_state(path: &Path) -> bool {
    let json = fs::read(path).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    json.is_none_or(|value| value.get("schema").is_some())
}

fn check_lock(lock: &ClusterLock, cluster: &ClusterName) -> Result<(), StoreError> {
    if lock.cluster() == cluster {
        return Ok(());
    }
    Err(StoreError::WrongLock { held: lock.cluster().clone(), wanted: cluster.clone() })
}
