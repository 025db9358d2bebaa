//! The HTTP client for the collector.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use parking_lot::Mutex;
use ureq::tls::RootCerts;

/// The timeout of one request. It equals the default of the SDK's own limit, `$OTEL_EXPORTER_OTLP_TIMEOUT`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of a response that are read.
const RESPONSE_LIMIT: u64 = 64 * 1024;

/// The cause of the last failed request; `None` when no request failed.
pub(crate) type LastFailure = Arc<Mutex<Option<String>>>;

/// Sends requests on the calling thread, which is a thread of the SDK.
#[derive(Debug)]
pub(crate) struct Post {
    agent: ureq::Agent,
    failure: LastFailure,
}

impl Post {
    /// A client that stores the cause of each failed request in `failure`.
    pub(crate) fn new(failure: LastFailure) -> Self {
        let config = ureq::Agent::config_builder()
            .tls_config(kubeon_https::tls(RootCerts::PlatformVerifier).build())
            .http_status_as_error(false)
            // Headers may contain a secret for this collector only.
            .max_redirects(0)
            .timeout_global(Some(REQUEST_TIMEOUT))
            .build();
        Self { agent: config.into(), failure }
    }

    fn execute(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let (head, body) = self.agent.run(Request::from_parts(head, &body[..]))?.into_parts();
        let mut text = Vec::new();
        body.into_reader().take(RESPONSE_LIMIT).read_to_end(&mut text)?;
        Ok(Response::from_parts(head, text.into()))
    }
}

#[async_trait::async_trait]
impl HttpClient for Post {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let response = self.execute(request);
        let failure = match &response {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("the collector responded with {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        if failure.is_some() {
            *self.failure.lock() = failure;
        }
        response
    }
}
