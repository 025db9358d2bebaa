//! The local state of a cluster as one archive, for export and import, and as files that are read from the cluster.
//!
//! ```text
//!   state.json · known_hosts · kubeconfig · secret/…   ◄── export, import ──►   tar, zstd
//! ```
//!
//! An archive is not trusted: its file names are compared with the allowed ones and never used as paths directly.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use kubeon_api::ClusterName;
use serde::Serialize;
use serde_json::Value;
use tar::{Archive, Builder, EntryType, Header};

use crate::error::StoreError;
use crate::file;
use crate::lock::ClusterLock;
use crate::state::ClusterState;
use crate::store::Store;

/// The largest accepted archive in bytes before compression. A state has some tens of KiB, one of 5,000 hosts some MiB.
const LIMIT: u64 = 64 << 20;
/// The most accepted files.
const MOST_FILES: usize = 1000;

const STATE: &str = "state.json";
const KNOWN_HOSTS: &str = "known_hosts";
const KUBECONFIG: &str = "kubeconfig";
const SECRET: &str = "secret/";

/// The result of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imported {
    /// The state was imported: the store had none, or an older one.
    Taken,
    /// The store already had the same state.
    Equal,
}

impl Store {
    /// Writes the state of the cluster as an archive. It takes no lock, so that it works while another program has the lock:
    /// every file in it is complete, and the state is read first.
    ///
    /// # Errors
    /// When there is no such cluster, its state cannot be parsed, or a file cannot be read or written.
    pub fn export(&self, cluster: &ClusterName, out: impl Write) -> Result<(), StoreError> {
        self.load::<Value>(cluster)?;
        let mut files = vec![(STATE.to_owned(), self.read(&self.state_path(cluster))?)];
        for (name, path) in
            [(KNOWN_HOSTS, self.known_hosts_path(cluster)), (KUBECONFIG, self.kubeconfig_path(cluster))]
        {
            if path.exists() {
                files.push((name.to_owned(), self.read(&path)?));
            }
        }
        self.secrets(&self.secret_folder(cluster), SECRET, &mut files)?;
        pack(&files, out).map_err(StoreError::file("write", "the archive"))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, StoreError> {
        fs::read(path).map_err(StoreError::file("read", path))
    }

    /// Every complete file below the folder, sorted. Names of unfinished files start with a dot.
    fn secrets(
        &self,
        folder: &Path,
        prefix: &str,
        files: &mut Vec<(String, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries.collect::<Result<Vec<_>, _>>(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => Err(error),
        };
        let mut entries = entries.map_err(StoreError::file("read", folder))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| is_plain(name)) else { continue };
            if entry.path().is_dir() {
                self.secrets(&entry.path(), &format!("{prefix}{name}/"), files)?;
            } else {
                files.push((format!("{prefix}{name}"), self.read(&entry.path())?));
            }
        }
        Ok(())
    }

    /// Replaces the state of the cluster by an archive of [`Store::export`]: files with mode 0600, folders with mode 0700. The
    /// keys are replaced atomically and the state last, so that an interrupted import can be repeated.
    ///
    /// # Errors
    /// When the archive is invalid or of another cluster, when the store has a newer state, or a file cannot be written.
    pub fn import(&self, lock: &ClusterLock, archive: impl Read) -> Result<Imported, StoreError> {
        let cluster = lock.cluster();
        let files = unpack(archive).map_err(StoreError::Archive)?;
        let state = files.get(STATE).ok_or_else(|| StoreError::Archive("it contains no state".to_owned()))?;
        let new = self.parse::<Value>(cluster, Path::new(STATE), state).map_err(|error| match error {
            StoreError::Damaged { why, .. } => {
                StoreError::Archive(format!("its state cannot be read: {why}"))
            }
            StoreError::Foreign { .. } => StoreError::Archive("another program wrote its state".to_owned()),
            other => other,
        })?;
        if new.name != *cluster {
            return Err(StoreError::Archive(format!("it belongs to {}, not to {cluster}", new.name)));
        }
        if self.exists(cluster) {
            let path = self.state_path(cluster);
            let current = self.read(&path)?;
            let known = self.parse::<Value>(cluster, &path, &current)?;
            if known.uid != new.uid {
                return Err(StoreError::OtherCluster { name: cluster.clone(), here: known.uid });
            }
            if current == *state && self.has_all(cluster, &files) {
                return Ok(Imported::Equal);
            }
            if (known.generation, known.updated_at) > (new.generation, new.updated_at) {
                return Err(StoreError::NewerHere { name: cluster.clone(), generation: known.generation });
            }
        }
        self.put(cluster, &files)?;
        Ok(Imported::Taken)
    }

    /// Stores a cluster that this machine did not know: its keys by the names of their files, then its state. What is left of the
    /// keys of another cluster with this name is replaced.
    ///
    /// # Errors
    /// [`StoreError::Exists`] when there is a state of that name. When the lock is another cluster's, or a file cannot be
    /// written.
    pub fn adopt<S: Serialize>(
        &self,
        lock: &ClusterLock,
        state: &mut ClusterState<S>,
        keys: &BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        let cluster = lock.cluster();
        if self.exists(cluster) {
            return Err(StoreError::Exists(cluster.clone()));
        }
        let files = keys.iter().map(|(name, text)| (format!("{SECRET}{name}"), text.clone().into_bytes()));
        file::private_folder(self.base())?;
        self.put_secrets(cluster, &files.collect())?;
        self.save(lock, state)
    }

    fn has_all(&self, cluster: &ClusterName, files: &BTreeMap<String, Vec<u8>>) -> bool {
        files.iter().all(|(name, content)| {
            let path = match name.as_str() {
                STATE => self.state_path(cluster),
                KNOWN_HOSTS => self.known_hosts_path(cluster),
                KUBECONFIG => self.kubeconfig_path(cluster),
                secret => self.secret_folder(cluster).join(secret.trim_start_matches(SECRET)),
            };
            fs::read(path).is_ok_and(|current| current == *content)
        })
    }

    fn put(&self, cluster: &ClusterName, files: &BTreeMap<String, Vec<u8>>) -> Result<(), StoreError> {
        file::private_folder(self.base())?;
        self.put_secrets(cluster, files)?;
        for (name, path) in
            [(KNOWN_HOSTS, self.known_hosts_path(cluster)), (KUBECONFIG, self.kubeconfig_path(cluster))]
        {
            match files.get(name) {
                Some(content) => {
                    if let Some(parent) =
                        path.parent().and_then(Path::parent).filter(|folder| *folder != self.base())
                    {
                        file::private_folder(parent)?;
                    }
                    file::write_private(&path, content)?;
                }
                None => file::remove(&path).map_err(StoreError::file("remove", path))?,
            }
        }
        file::write_private(&self.state_path(cluster), &files[STATE])
    }

    /// Exchanges the complete new folder with the old one.
    fn put_secrets(
        &self,
        cluster: &ClusterName,
        files: &BTreeMap<String, Vec<u8>>,
    ) -> Result<(), StoreError> {
        let folder = self.secret_folder(cluster);
        let parent = self.base().join("secret");
        file::private_folder(&parent)?;
        let new = tempfile::Builder::new()
            .prefix(".new-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&parent)
            .map_err(StoreError::file("make folder", &parent))?;
        let secrets = files.iter().filter_map(|(name, content)| Some((name.strip_prefix(SECRET)?, content)));
        let mut any = false;
        for (name, content) in secrets {
            file::write_private(&new.path().join(name), content)?;
            any = true;
        }
        if !any {
            return file::remove_folder(&folder).map_err(StoreError::file("remove", folder));
        }
        if folder.exists() {
            // After the exchange the old folder has this name.
            return file::swap_folders(new.path(), &folder).map_err(StoreError::file("write", folder));
        }
        fs::rename(new.keep(), &folder).map_err(StoreError::file("write", folder))
    }
}

fn pack(files: &[(String, Vec<u8>)], out: impl Write) -> io::Result<()> {
    let mut archive = Builder::new(zstd::Encoder::new(out, 3)?);
    for (name, content) in files {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(0);
        archive.append_data(&mut header, name, content.as_slice())?;
    }
    archive.into_inner()?.finish()?.flush()
}

/// The files of an archive by name.
fn unpack(archive: impl Read) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let unreadable = |error: io::Error| format!("it cannot be read: {error}");
    let stream = zstd::Decoder::new(archive).map_err(unreadable)?.take(LIMIT);
    let mut archive = Archive::new(stream);
    let mut files = BTreeMap::new();
    for entry in archive.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if entry.header().entry_type() != EntryType::Regular || !is_known(&name) {
            return Err(format!("it contains {name:?}, which is not part of a state"));
        }
        if files.len() >= MOST_FILES {
            return Err(format!("it contains more than {MOST_FILES} files"));
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(unreadable)?;
        if files.insert(name.clone(), content).is_some() {
            return Err(format!("it contains {name:?} twice"));
        }
    }
    Ok(files)
}

fn is_known(name: &str) -> bool {
    match name.strip_prefix(SECRET) {
        Some(rest) => rest.split('/').all(is_plain),
        None => [STATE, KNOWN_HOSTS, KUBECONFIG].contains(&name),
    }
}

/// Whether a text is a plain file name: no separators, and no dot at the start.
fn is_plain(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.len() <= 128 && !name.starts_with('.') && name.chars().all(good)
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
