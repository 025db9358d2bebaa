//! Why a request failed.

use std::io;
use std::path::PathBuf;

/// A failed request to the store.
#[derive(Debug, thiserror::Error)]
pub enum S3Error {
    /// A setting is missing or invalid.
    #[error("{0}")]
    Settings(String),
    /// The store does not accept the keys, or they do not permit the request.
    #[error("{store} refuses {address}: {code}{message}")]
    Denied {
        /// The address of the store.
        store: String,
        /// The object.
        address: String,
        /// The code of S3, such as `SignatureDoesNotMatch`.
        code: String,
        /// What the store says about it, after a colon, or nothing.
        message: String,
    },
    /// There is no such object, or no such bucket.
    #[error("{store} has no {address}: {code}")]
    Absent {
        /// The address of the store.
        store: String,
        /// The object.
        address: String,
        /// The code of S3, such as `NoSuchBucket`.
        code: String,
    },
    /// The store does not answer, or answers with an error of its own.
    #[error("{store} does not serve {address}: {why}")]
    Server {
        /// The address of the store.
        store: String,
        /// The object.
        address: String,
        /// The reason of the last attempt.
        why: String,
    },
    /// A file on this machine cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}
