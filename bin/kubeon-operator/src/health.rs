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
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::turn::Shared;

/// Connections at once; a further one waits.
const MOST_CONNECTIONS: usize = 64;
/// For the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// For a whole connection.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers at this address until the process ends. Where it listens.
pub(crate) async fn serve(shared: Arc<Shared>, address: SocketAddr) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))?;
    let bound = listener.local_addr()?;
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    tokio::spawn(async move {
        loop {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // Out of file descriptors: some connection has to end first.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                let answer = service_fn(move |request| answer(Arc::clone(&shared), request));
                let mut server = http1::Builder::new();
                server.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
                // Who hangs up early has no answer to lose.
                let _ = tokio::time::timeout(PATIENCE, server.serve_connection(TokioIo::new(stream), answer))
                    .await;
                drop(permit);
            });
        }
    });
    Ok(bound)
}

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, text) = match request.uri().path() {
        "/healthz" => (StatusCode::OK, "ok".to_owned()),
        "/readyz" if shared.listed.is_done() => (StatusCode::OK, "ok".to_owned()),
        "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, "watches are still listing".to_owned()),
        "/metrics" => match shared.metrics.text(&shared) {
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
