//! Errors of signatures.

use std::io;
use std::path::{Path, PathBuf};

/// What a signature is for: a signature of something else with the same key is not accepted.
pub const NAMESPACE: &str = "kubeon-bundle";

/// The reason why a bundle is not signed, or its signature is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The key is not a private key of OpenSSH, or cannot sign.
    #[error("{path} is not a private key of OpenSSH that can sign: {why}", path = path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The private key is encrypted.
    #[error("{path} is protected by a passphrase", path = path.display())]
    Encrypted {
        /// The file.
        path: PathBuf,
    },
    /// The bundle has no signature.
    #[error("the bundle in {bundle} is not signed", bundle = bundle.display())]
    Unsigned {
        /// The folder.
        bundle: PathBuf,
    },
    /// The signature is not a signature of OpenSSH for a bundle.
    #[error("{path} is not a signature of a bundle: {why}", path = path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The signature is not of this content.
    #[error("the signature of the bundle in {bundle} is not of its content; the key is {key}", bundle = bundle.display())]
    Mismatch {
        /// The folder.
        bundle: PathBuf,
        /// The fingerprint of the key.
        key: String,
    },
    /// The key is none of the trusted ones.
    #[error(
        "the bundle in {bundle} is signed by {found}, which is not trusted; trusted: {trusted}",
        bundle = bundle.display()
    )]
    NotTrusted {
        /// The folder.
        bundle: PathBuf,
        /// The fingerprint of the key.
        found: String,
        /// The fingerprints of the trusted keys, as one text.
        trusted: String,
    },
    /// The key is trusted at other times only.
    #[error("the key {key} that signed the bundle in {bundle} is not trusted now: {why}", bundle = bundle.display())]
    NotNow {
        /// The folder.
        bundle: PathBuf,
        /// The fingerprint of the key.
        key: String,
        /// The limit.
        why: String,
    },
    /// A line of the file of trusted keys cannot be read.
    #[error("{path}, line {line}: {why}", path = path.display())]
    Signers {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The reason.
        why: String,
    },
}

impl SignatureError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}
