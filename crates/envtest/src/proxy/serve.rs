//! Connections and requests of the proxy.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::Arc;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::fault::ProxyFault;
use super::request::ProxyRequest;
use super::state::{LinkState, ProxyState};
use crate::EnvtestError;
use crate::credentials::Identity;

/// The proxy closes the connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("closed by a rule")]
struct Closed;

/// Offers TLS with HTTP/1.1, so that closing the connection of a request does not affect other requests.
pub(super) fn acceptor(identity: &Identity) -> Result<TlsAcceptor, EnvtestError> {
    let invalid = |error: rustls::pki_types::pem::Error| rustls::Error::General(error.to_string());
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).map_err(invalid)?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(invalid)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts connections until it is aborted.
pub(super) async fn serve(listener: TcpListener, tls: TlsAcceptor, upstream: Client, state: Arc<ProxyState>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // An error is a connection that its client has already reset.
                if let Ok((stream, _)) = accepted {
                    connections.spawn(connection(stream, tls.clone(), upstream.clone(), Arc::clone(&state)));
                }
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, upstream: Client, state: Arc<ProxyState>) {
    let mut link = state.link();
    let begin = *link.borrow_and_update();
    if begin.down {
        return;
    }
    let served = async {
        stream.set_nodelay(true)?;
        let stream = TokioIo::new(tls.accept(stream).await?);
        let service = service_fn(|request| answer(request, upstream.clone(), Arc::clone(&state)));
        hyper::server::conn::http1::Builder::new()
            .serve_connection(stream, service)
            .await
            .map_err(io::Error::other)
    };
    // Dropping the future closes the socket. Errors of a connection concern only its client.
    tokio::select! {
        _ = served => {}
        () = cut(&mut link, begin.cuts) => {}
    }
}

async fn cut(link: &mut watch::Receiver<LinkState>, since: u64) {
    if link.wait_for(|link| link.cuts != since).await.is_err() {
        pending::<()>().await;
    }
}

type Answer = Response<Body>;

async fn answer(
    incoming: hyper::Request<Incoming>,
    upstream: Client,
    state: Arc<ProxyState>,
) -> Result<Answer, Closed> {
    let (parts, body) = incoming.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes().to_vec(),
        Err(error) => {
            return Ok(status_object(400, "BadRequest", &format!("the request body is incomplete: {error}")));
        }
    };
    let (number, fault) = record(&parts, &body, &state);
    let forward = || forward(parts, body, &upstream);
    let done = |answer: Answer| {
        let mut records = state.records();
        if let Some(request) = records.requests.get_mut(number) {
            request.status = Some(answer.status().as_u16());
        }
        Ok(answer)
    };
    match fault {
        None => done(forward().await),
        Some(ProxyFault::Status(code)) => done(refusal(code, None)),
        Some(ProxyFault::RetryAfter(seconds)) => done(refusal(429, Some(seconds))),
        Some(ProxyFault::Delay(time)) => {
            tokio::time::sleep(time).await;
            done(forward().await)
        }
        Some(ProxyFault::Hang) => hang().await,
        Some(ProxyFault::HangAfter) => {
            done(forward().await)?;
            hang().await
        }
        Some(ProxyFault::Refuse) => Err(Closed),
        Some(ProxyFault::LoseAnswer) => {
            done(forward().await)?;
            Err(Closed)
        }
        Some(ProxyFault::CutBefore) => {
            state.cut(true);
            hang().await
        }
        Some(ProxyFault::CutAfter) => {
            done(forward().await)?;
            state.cut(true);
            hang().await
        }
    }
}

async fn hang() -> Result<Answer, Closed> {
    pending::<Infallible>().await;
    Err(Closed)
}

/// Records the request. Returns its index and the fault of the oldest rule that affects it.
fn record(parts: &Parts, body: &[u8], state: &ProxyState) -> (usize, Option<ProxyFault>) {
    let mut request = ProxyRequest::read(&parts.method, &parts.uri, &parts.headers);
    let text = format!("{} {}", parts.uri.path(), String::from_utf8_lossy(body));
    let mut records = state.records();
    let faults: Vec<_> =
        records.rules.iter_mut().filter_map(|(id, rule)| Some((*id, rule.count(&request, &text)?))).collect();
    let fault = faults.into_iter().next().map(|(id, fault)| {
        if let Some(rule) = records.rules.get_mut(&id) {
            rule.failed(&request);
        }
        fault
    });
    request.fault.clone_from(&fault);
    records.requests.push(request);
    (records.requests.len() - 1, fault)
}

async fn forward(mut parts: Parts, body: Vec<u8>, upstream: &Client) -> Answer {
    parts.headers.remove(HOST);
    parts.headers.remove(CONNECTION);
    match upstream.send(hyper::Request::from_parts(parts, Body::from(body))).await {
        Ok(answer) => answer,
        Err(error) => status_object(502, "BadGateway", &format!("the API server cannot be reached: {error}")),
    }
}

fn refusal(code: u16, retry_after: Option<u32>) -> Answer {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    let mut answer = status_object(code, reason, "refused by a rule of the test's proxy");
    if let Some(seconds) = retry_after {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

fn status_object(code: u16, reason: &str, message: &str) -> Answer {
    let object = json!({ "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message });
    let mut answer = Response::new(Body::from(object.to_string().into_bytes()));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
