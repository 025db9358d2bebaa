//! Why a key or a certificate could not be read or created.

use std::io;
use std::path::{Path, PathBuf};

/// A key or certificate could not be read or created. The message never contains key material.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file or folder could not be read or written.
    #[error("cannot read or write {path}: {source}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file exists but is damaged.
    #[error(
        "{path} is damaged: {reason}; restore the file from a backup: a new key does not match the cluster"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Keys of an existing cluster are missing.
    #[error("missing: {}; restore it from a backup: a new key does not match the cluster", listed(.paths))]
    Missing {
        /// The files, or their folder.
        paths: Vec<PathBuf>,
    },
    /// The cluster has no key for Secrets in etcd.
    #[error("the cluster has no key for Secrets in etcd")]
    NoEncryptionKey,
    /// A certificate authority has expired.
    #[error("the authority in {path} expired on {since}; it cannot sign certificates any more")]
    Expired {
        /// The file of the authority.
        path: PathBuf,
        /// The date, UTC.
        since: String,
    },
    /// The clock of this machine is before the start of a certificate authority.
    #[error(
        "the authority in {path} begins on {begins}, so the clock of this machine is wrong: set it and try again"
    )]
    ClockBehind {
        /// The file of the authority.
        path: PathBuf,
        /// The date, UTC.
        begins: String,
    },
    /// A leaf certificate has content that a renewal cannot repeat.
    #[error("{path} cannot be renewed: {reason}")]
    NotRenewable {
        /// The file of the certificate.
        path: PathBuf,
        /// What prevents it.
        reason: String,
    },
    /// More than one organization in a leaf's subject.
    #[error("{0} has several organizations; a certificate of kubeon has at most one")]
    ManyOrganizations(String),
    /// A certificate could not be created.
    #[error("cannot make the certificate of {what}: {source}")]
    Sign {
        /// Its subject or file.
        what: String,
        /// The cause.
        source: rcgen::Error,
    },
}

/// Why a key file could not be read or created; the caller adds its path.
pub(crate) enum KeyFileError {
    Io(io::Error),
    Sign(rcgen::Error),
}

impl From<io::Error> for KeyFileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl KeyFileError {
    pub(crate) fn at(self, path: &Path) -> PkiError {
        match self {
            Self::Io(source) => PkiError::File { path: path.to_owned(), source },
            Self::Sign(source) => PkiError::Sign { what: path.display().to_string(), source },
        }
    }
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
