//! Why the local state could not be read or written.

use std::io;
use std::path::PathBuf;

use jiff::Timestamp;
use kubeon_api::ClusterName;

use crate::holder::Holder;

/// The local state could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Neither `$KUBEON_HOME` nor `$HOME` is set.
    #[error("neither KUBEON_HOME nor HOME is set: set KUBEON_HOME to the folder for the state")]
    NoHome,
    /// No cluster of that name exists here.
    #[error("Cluster[{0}] not exist, please create")]
    Missing(ClusterName),
    /// A cluster of that name exists here already.
    #[error("{0} exists on this machine already")]
    Exists(ClusterName),
    /// A state file cannot be parsed. A backup is never used silently.
    #[error("{path} is damaged: {why}")]
    Damaged {
        /// The state file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What a user can do about it.
        remedy: StoreRemedy,
    },
    /// A newer kubeon wrote the file.
    #[error(
        "{path} was written by a newer kubeon (schema {found}, this one reads up to {known}); use that one"
    )]
    Newer {
        /// The state file.
        path: PathBuf,
        /// The schema in the file.
        found: u64,
        /// The newest schema that this program knows.
        known: u32,
    },
    /// Another program of the same name wrote the file.
    #[error(
        "{path} was made by another kubeon; manage that cluster with it, or set KUBEON_HOME to another folder"
    )]
    Foreign {
        /// The state file.
        path: PathBuf,
    },
    /// Another process has the lock of the cluster.
    #[error("{cluster} is locked by {holder}")]
    Locked {
        /// The cluster.
        cluster: ClusterName,
        /// The process.
        holder: Holder,
    },
    /// Another process changed the cluster before this one took the lock.
    #[error("{0} was changed by another command a moment ago; nothing was changed: run the command again")]
    Changed(ClusterName),
    /// A lock of one cluster was used for another.
    #[error("the lock of {held} does not cover {wanted}")]
    WrongLock {
        /// The cluster of the lock.
        held: ClusterName,
        /// The cluster to be written.
        wanted: ClusterName,
    },
    /// The file is not an archive of a cluster's state.
    #[error("this is not an archive of the cluster's state: {0}")]
    Archive(String),
    /// An archive would replace a newer state.
    #[error("the state of {name} here (generation {generation}) is newer than the state in the archive")]
    NewerHere {
        /// The cluster.
        name: ClusterName,
        /// The generation here.
        generation: u64,
    },
    /// An archive would replace another cluster.
    #[error("another cluster named {name} exists here (identity {here})")]
    OtherCluster {
        /// The name of both.
        name: ClusterName,
        /// The identity of the cluster that is here.
        here: String,
    },
    /// A file operation failed.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// A verb: `read`, `write`, `lock`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// What a user can do about a damaged file of the state. The caller describes it in its own terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreRemedy {
    /// Check the previous state and restore it.
    RestorePrevious {
        /// The previous state.
        backup: PathBuf,
        /// The file to restore.
        path: PathBuf,
        /// When the previous state was saved.
        saved_at: Timestamp,
    },
    /// Restore the file from a backup; there is no previous state.
    RestoreFile,
    /// Choose the default cluster again.
    ChooseCluster,
}

impl StoreError {
    /// What a user can do about it, if something is known.
    #[must_use]
    pub fn remedy(&self) -> Option<&StoreRemedy> {
        match self {
            Self::Damaged { remedy, .. } => Some(remedy),
            _ => None,
        }
    }

    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}
