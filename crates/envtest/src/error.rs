//! Why an API server cannot be started or prepared for a test.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use kubeon_bundle::{BundleError, VerifyError};

/// Why an API server cannot be started or prepared.
#[derive(Debug, thiserror::Error)]
pub enum EnvtestError {
    /// The bundle with the programs is missing; the text says how to build it.
    #[error(transparent)]
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
    /// A certificate cannot be made.
    #[error("a certificate cannot be made: {0}")]
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
    /// A program ended before it served.
    #[error("{program} ended ({status}) before it served; the end of its log:\n{words}")]
    Ended {
        /// The program.
        program: &'static str,
        /// How it ended.
        status: String,
        /// The end of its log.
        words: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {} s; the end of the log:\n{words}", limit.as_secs())]
    TooLate {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
        /// The end of the log.
        words: String,
    },
    /// A generated kubeconfig cannot be parsed.
    #[error(transparent)]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// The API server refuses the request or cannot be reached.
    #[error("{what}: {source}")]
    Api {
        /// The request.
        what: String,
        /// Its answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server's answer has no token.
    #[error("the API server gave service account {0} no token")]
    NoToken(String),
    /// A manifest cannot be parsed.
    #[error("{path}: {why}", path = path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong.
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
