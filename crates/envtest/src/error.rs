//! Errors of test API servers and proxies.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use kubeon_bundle::{BundleError, VerifyError};

/// The reason why an API server or a proxy cannot be started or prepared.
#[derive(Debug, thiserror::Error)]
pub enum EnvtestError {
    /// The bundle with the programs is missing or cannot be read.
    #[error("{0}; ./test builds it")]
    Bundle(#[from] BundleError),
    /// A part of the bundle is damaged.
    #[error(transparent)]
    Damaged(#[from] VerifyError),
    /// A file or folder cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A certificate cannot be created.
    #[error("a certificate cannot be created: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The proxy cannot offer TLS.
    #[error("the proxy's certificate cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    /// No port is free.
    #[error("no port on loopback is free: {0}")]
    Port(#[source] io::Error),
    /// A program cannot be started.
    #[error("{program} cannot be started: {source}")]
    Start {
        /// The program.
        program: &'static str,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A program ended before it was ready.
    #[error("{program} ended ({status}) before it was ready; the end of its log:\n{log}")]
    Ended {
        /// The program.
        program: &'static str,
        /// Its exit status.
        status: String,
        /// The end of its log.
        log: String,
    },
    /// A condition was not met in time.
    #[error("{what} did not happen within {} s; the end of the log:\n{log}", limit.as_secs())]
    TooLate {
        /// The condition, as a noun.
        what: String,
        /// The time limit.
        limit: Duration,
        /// The end of the log.
        log: String,
    },
    /// A generated kubeconfig cannot be parsed.
    #[error(transparent)]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// The API server refuses the request or cannot be reached.
    #[error("{what}: {source}")]
    Api {
        /// The request.
        what: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// etcd cannot be read.
    #[error("the keys in etcd cannot be read: {0}")]
    Etcd(#[source] io::Error),
    /// The API server's answer has no token.
    #[error("the API server returned no token for service account {0}")]
    NoToken(String),
    /// A manifest cannot be parsed.
    #[error("{path}: {why}", path = path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
}

impl EnvtestError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    pub(crate) fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Api { what, source: Box::new(source) }
    }
}
