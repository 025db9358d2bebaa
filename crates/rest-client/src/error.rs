//! Why a request to the REST server failed.

use std::time::Duration;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum RestError {
    /// Without TLS the token would be readable on the network.
    #[error("{0} does not begin with https://")]
    NotHttps(String),
    /// The file with authorities holds no certificate.
    #[error("the file with the authorities of the server holds no certificate in PEM")]
    NoCertificate,
    /// The server refused it.
    #[error("{detail}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The server's sentence.
        detail: String,
    },
    /// The server was not reached, or the answer was interrupted.
    #[error("the server was not reached: {0}")]
    Lost(#[source] Box<ureq::Error>),
    /// The answer has another form.
    #[error("the answer of the server cannot be read: {0}")]
    Unreadable(#[source] serde_json::Error),
    /// Nothing that was waited for happened.
    #[error("{what} did not happen within {} s", limit.as_secs())]
    TooLate {
        /// What was waited for.
        what: &'static str,
        /// The time limit.
        limit: Duration,
    },
    /// A stream of changes ended.
    #[error("the server ended the stream of changes: {0}")]
    Ended(String),
    /// The list does not end.
    #[error("the list has more than {0} pages")]
    TooManyPages(usize),
}

impl RestError {
    pub(crate) fn lost(error: ureq::Error) -> Self {
        Self::Lost(Box::new(error))
    }
}
