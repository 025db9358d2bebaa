//! `/metrics`, `/healthz`, `/readyz`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use kubeon_admission::Readiness;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::context::OperatorContext;

/// Connections at once; a further one waits.
const MOST_CONNECTIONS: usize = 64;
/// The timeout for the head of a request.
const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout for a whole connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// What is asked about.
#[derive(Clone)]
pub(crate) struct HealthState {
    pub context: Arc<OperatorContext>,
    /// Whether admission reviews can be answered, when they are.
    pub admission: Option<Readiness>,
}

impl HealthState {
    /// What the process still waits for before it is of use.
    fn waits_for(&self) -> Option<String> {
        let admission = || self.admission.as_ref().and_then(Readiness::waits_for).map(str::to_owned);
        self.context.listed.waits_for().or_else(admission)
    }

    /// That it is of use, and for whom it is not.
    fn well(&self) -> String {
        let mut lines = vec!["ok".to_owned()];
        lines.extend(self.context.cache.unlistable());
        lines.join("\n")
    }
}

/// Answers at this address until the process ends. Where it listens.
pub(crate) async fn serve(subject: &HealthState, address: SocketAddr) -> anyhow::Result<SocketAddr> {
    let subject = subject.clone();
    let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))?;
    let bound = listener.local_addr()?;
    let objects_of = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    tokio::spawn(async move {
        loop {
            let Ok(permit) = Arc::clone(&objects_of).acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // Out of file descriptors: some connection has to end first.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let subject = subject.clone();
            tokio::spawn(async move {
                let answer = service_fn(move |request| answer(subject.clone(), request));
                let mut server = http1::Builder::new();
                server.timer(TokioTimer::new()).header_read_timeout(REQUEST_HEAD_TIMEOUT);
                // Who hangs up early has no answer to lose.
                let _ = tokio::time::timeout(
                    CONNECTION_TIMEOUT,
                    server.serve_connection(TokioIo::new(stream), answer),
                )
                .await;
                drop(permit);
            });
        }
    });
    Ok(bound)
}

async fn answer(
    subject: HealthState,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let context = &subject.context;
    let (status, text) = match request.uri().path() {
        "/healthz" => (StatusCode::OK, "ok".to_owned()),
        "/readyz" => match subject.waits_for() {
            None => (StatusCode::OK, subject.well()),
            Some(what) => (StatusCode::SERVICE_UNAVAILABLE, format!("waits for: {what}")),
        },
        "/metrics" => match context.metrics_text() {
            Ok(text) => (StatusCode::OK, text),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        },
        _ => (StatusCode::NOT_FOUND, "there is /metrics, /healthz and /readyz".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind =
        hyper::header::HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    if request.uri().path() == "/metrics" {
        response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    }
    Ok(response)
}
