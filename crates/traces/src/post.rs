//! The way to a collector: one request, one answer.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use parking_lot::Mutex;
use ureq::tls::{RootCerts, TlsConfig};

/// The timeout of one request. It equals the default of the SDK's own limit, `$OTEL_EXPORTER_OTLP_TIMEOUT`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an answer that are read.
const ANSWER: u64 = 64 * 1024;

/// Why a request was not taken, the last time that one was not.
pub(crate) type LastFailure = Arc<Mutex<Option<String>>>;

/// Sends requests on the thread that asks: the SDK has one for it.
#[derive(Debug)]
pub(crate) struct Post {
    agent: ureq::Agent,
    failure: LastFailure,
}

impl Post {
    /// Keeps in `failure` why the last request failed that did.
    pub(crate) fn new(failure: LastFailure) -> Self {
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::PlatformVerifier)
            .build();
        let config = ureq::Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            // Headers may hold a secret that is meant for this collector alone.
            .max_redirects(0)
            .timeout_global(Some(REQUEST_TIMEOUT))
            .build();
        Self { agent: config.into(), failure }
    }

    fn ask(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let (head, body) = self.agent.run(Request::from_parts(head, &body[..]))?.into_parts();
        let mut text = Vec::new();
        body.into_reader().take(ANSWER).read_to_end(&mut text)?;
        Ok(Response::from_parts(head, text.into()))
    }
}

#[async_trait::async_trait]
impl HttpClient for Post {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.ask(request);
        let failure = match &answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answered {}", answer.status())),
            Err(error) => Some(error.to_string()),
        };
        if failure.is_some() {
            *self.failure.lock() = failure;
        }
        answer
    }
}
