//! Errors of servers of published files.

use std::io;
use std::path::{Path, PathBuf};

use kubeon_api::Digest;

use crate::BundleRemedy;

/// The reason why a published file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PublishedError {
    /// No answer, an interrupted answer or an error of the server, after all attempts.
    #[error("{url}: {why}")]
    Server {
        /// The address.
        url: String,
        /// The cause.
        why: String,
    },
    /// The server has no such file.
    #[error("{url} does not exist (HTTP {status})")]
    Absent {
        /// The address.
        url: String,
        /// The status of the answer.
        status: u16,
    },
    /// A document of sums without the file's digest: also an error page that is served with the status 200.
    #[error("{sums} names no SHA-256 of {file}")]
    NoDigest {
        /// The address of the document.
        sums: String,
        /// The name of the file.
        file: String,
    },
    /// The bytes are not those that their authors published.
    #[error("{url} has the SHA-256 {found}, but {expected} is published")]
    WrongDigest {
        /// The address.
        url: String,
        /// The published digest.
        expected: Digest,
        /// The digest of the received bytes.
        found: Digest,
    },
    /// A document of a registry is not what it should be.
    #[error("{url}: {why}")]
    Registry {
        /// The address.
        url: String,
        /// The cause.
        why: String,
    },
    /// A file of the cache cannot be written or read.
    #[error("cannot write {path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The address of a mirror is not one.
    #[error("{0:?} is not the address of a mirror: https://HOST/PATH is expected")]
    Mirror(String),
}

impl PublishedError {
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }

    /// What a user can do about it.
    pub(crate) fn remedy(&self) -> Option<BundleRemedy> {
        match self {
            Self::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some(BundleRemedy::MoveCache)
            }
            Self::File { .. } => None,
            _ => Some(BundleRemedy::UseAnotherSource),
        }
    }
}
