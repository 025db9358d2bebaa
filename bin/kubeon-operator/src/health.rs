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

/// The most parallel connections; others wait.
const MOST_CONNECTIONS: usize = 64;
/// The timeout for the head of a request.
const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout for a whole connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// The state behind the endpoints.
#[derive(Clone)]
pub(crate) struct HealthState {
    pub context: Arc<OperatorContext>,
    /// The readiness of the admission webhook, if it is enabled.
    pub admission: Option<Readiness>,
}

impl HealthState {
    /// The cause why the process is not ready; `None` when it is.
    fn waits_for(&self) -> Option<String> {
        let admission = || self.admission.as_ref().and_then(Readiness::waits_for).map(str::to_owned);
        self.context.listed.waits_for().or_else(admission)
    }

    /// The text when it is ready, with the namespaces that cannot be listed.
    fn ready_text(&self) -> String {
        let mut lines = vec!["ok".to_owned()];
        lines.extend(self.context.cache.unlistable());
        lines.join("\n")
    }
}

/// Listens on this address until the process ends. Returns the address with the actual port.
pub(crate) async fn serve(state: &HealthState, address: SocketAddr) -> anyhow::Result<SocketAddr> {
    let state = state.clone();
    let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))?;
    let bound = listener.local_addr()?;
    let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    tokio::spawn(async move {
        loop {
            let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // The usual cause is that no file descriptor is free: wait until a connection is closed.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let state = state.clone();
            tokio::spawn(async move {
                let answer = service_fn(move |request| answer(state.clone(), request));
                let mut server = http1::Builder::new();
                server.timer(TokioTimer::new()).header_read_timeout(REQUEST_HEAD_TIMEOUT);
                // An error means that the client closed the connection.
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

async fn answer(state: HealthState, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let context = &state.context;
    let (status, text) = match request.uri().path() {
        "/healthz" => (StatusCode::OK, "ok".to_owned()),
        "/readyz" => match state.waits_for() {
            None => (StatusCode::OK, state.ready_text()),
            Some(what) => (StatusCode::SERVICE_UNAVAILABLE, format!("waits for: {what}")),
        },
        "/metrics" => match context.metrics_text() {
            Ok(text) => (StatusCode::OK, text),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        },
        _ => {
            (StatusCode::NOT_FOUND, "not found; the endpoints are /metrics, /healthz and /readyz".to_owned())
        }
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
