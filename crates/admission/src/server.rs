//! The webhook: HTTP/1.1 over TLS, two paths, with limits on size, time and connections.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use kubeon_install::names::{REQUESTER_PATH, WEBHOOK_PATH};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::certificate::WebhookCertificates;
use crate::certificate_store::{CertificateStore, maintain};
use crate::clients::{WebhookClients, follow_identity};
use crate::lookup::Lookup;
use crate::review::{answer, answer_with_requester};
use crate::tls::{CurrentTls, TlsSettings, WebhookTlsError};

/// Longest body in bytes. An API server accepts objects up to 3 MiB; a review has the new and the old one.
const BODY_LIMIT: usize = 8 * 1024 * 1024;
/// Parallel connections; an API server needs few. Others wait.
const CONNECTIONS: usize = 256;
/// Time limit for a handshake, for a request's head, and for its body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for running requests when the process shuts down.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Address, certificate and lookup of the webhook.
pub struct ServeOptions {
    /// The address to listen on.
    pub address: SocketAddr,
    /// Its certificate.
    pub certificate: CertificateSource,
    /// Who may ask for reviews.
    pub clients: WebhookClients,
    /// The lookup for the rules.
    pub lookup: Arc<dyn Lookup>,
}

/// Where the certificate comes from.
pub enum CertificateSource {
    /// A given certificate, which is not renewed.
    Given(Box<WebhookCertificates>),
    /// A certificate in a Secret, which is renewed in time and published to the API server.
    Stored(CertificateStore),
}

/// Why the webhook does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("listening on {address} for admission reviews")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The TLS settings.
    #[error(transparent)]
    Tls(#[from] WebhookTlsError),
}

impl ServeError {
    /// The error category for labels.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Listen { .. } => "listen",
            Self::Tls(error) => error.category(),
        }
    }
}

/// Listens and answers until `stop`; then waits at most five seconds for running requests.
///
/// # Errors
/// When it cannot start. Later errors are logged and retried.
pub async fn serve(options: ServeOptions, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
    WebhookServer::bind(options).await?.run(stop).await;
    Ok(())
}

/// A webhook that listens and does not answer yet.
pub struct WebhookServer {
    listener: TcpListener,
    address: SocketAddr,
    reviewer: Reviewer,
    certificate: CertificateSource,
    clients: WebhookClients,
}

/// What a connection needs.
#[derive(Clone)]
struct Reviewer {
    tls: Arc<TlsSettings>,
    lookup: Arc<dyn Lookup>,
}

/// Whether the webhook can answer; for the process's `/readyz`.
#[derive(Clone)]
pub struct Readiness {
    tls: Arc<TlsSettings>,
    lookup: Arc<dyn Lookup>,
}

impl Readiness {
    /// What it still waits for; `None` when it can answer.
    #[must_use]
    pub fn waits_for(&self) -> Option<&'static str> {
        self.tls.waits_for().or((!self.lookup.is_ready()).then_some("the addresses of all clusters"))
    }
}

impl WebhookServer {
    /// Listens.
    ///
    /// # Errors
    /// When the address is in use or a given certificate is invalid.
    pub async fn bind(options: ServeOptions) -> Result<Self, ServeError> {
        let tls = TlsSettings::new(matches!(options.clients, WebhookClients::ApiServers(_)));
        if let CertificateSource::Given(given) = &options.certificate {
            tls.show(given)?;
        }
        let failed = |source| ServeError::Listen { address: options.address, source };
        let listener = TcpListener::bind(options.address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            reviewer: Reviewer { tls: Arc::new(tls), lookup: options.lookup },
            certificate: options.certificate,
            clients: options.clients,
        })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A handle that reports whether it can answer.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        Readiness { tls: self.reviewer.tls.clone(), lookup: self.reviewer.lookup.clone() }
    }

    /// Answers until `stop`.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listener, address, reviewer, certificate, clients } = self;
        tracing::info!(%address, "the webhook answers admission reviews");
        let (ending, ended) = watch::channel(false);
        let maintaining = async {
            match certificate {
                CertificateSource::Given(_) => std::future::pending().await,
                CertificateSource::Stored(store) => {
                    maintain(store, |certificates| {
                        reviewer.tls.show(certificates).map_err(|error| error.to_string())
                    })
                    .await;
                }
            }
        };
        let following = async {
            match clients {
                WebhookClients::Everybody => std::future::pending().await,
                WebhookClients::ApiServers(client) => follow_identity(client, |identity| {
                    if let Err(error) = reviewer.tls.accept(identity) {
                        tracing::warn!(category = error.category(), %error, "the identity of API servers");
                    }
                })
                .await,
            }
        };
        let mut connections = JoinSet::new();
        tokio::select! {
            () = stop => {}
            () = maintaining => {}
            () = following => {}
            () = accept(&listener, &reviewer, &ended, &mut connections) => {}
        }
        drop(listener);
        ending.send_replace(true);
        while connections.join_next().await.is_some() {}
    }
}

/// Accepts connections until it is dropped.
async fn accept(
    listener: &TcpListener,
    reviewer: &Reviewer,
    ended: &watch::Receiver<bool>,
    connections: &mut JoinSet<()>,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // The usual cause is that no file descriptor is free: wait until other connections are closed.
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (reviewer, ended) = (reviewer.clone(), ended.clone());
        connections.spawn(async move {
            connection(stream, reviewer, ended).await;
            drop(permit);
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, reviewer: Reviewer, mut ended: watch::Receiver<bool>) {
    let Reviewer { tls, lookup } = reviewer;
    // A process that has just started has no certificate yet: the API server waits for it and does not fail.
    let handshake = async {
        let current: CurrentTls = tls.current().await.ok_or(std::io::ErrorKind::ConnectionAborted)?;
        let stream = current.acceptor.accept(stream).await?;
        let refusal = current.refuses(stream.get_ref().1.peer_certificates());
        std::io::Result::Ok((stream, refusal))
    };
    let (stream, refusal) = match tokio::time::timeout(REQUEST_TIMEOUT, handshake).await {
        Ok(Ok(accepted)) => accepted,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake"),
        Err(_) => return tracing::debug!("TLS handshake took too long"),
    };
    let service = service_fn(move |request| {
        let lookup = lookup.clone();
        async move {
            Ok::<_, Infallible>(match refusal {
                // An API server shows this answer to its user.
                Some(reason) => {
                    reply(StatusCode::FORBIDDEN, "text/plain", Bytes::from_static(reason.as_bytes()))
                }
                None => respond(request, lookup.as_ref()).await,
            })
        }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    let result = tokio::select! {
        result = serving.as_mut() => result,
        () = shutdown(&mut ended) => {
            serving.as_mut().graceful_shutdown();
            match tokio::time::timeout(SHUTDOWN_TIMEOUT, serving).await {
                Ok(result) => result,
                Err(_) => return tracing::warn!("running reviews did not end before the timeout of the shutdown"),
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Waits until the server ends.
async fn shutdown(ended: &mut watch::Receiver<bool>) {
    // An error means that the server has already ended.
    drop(ended.wait_for(|ended| *ended).await);
}

async fn respond(request: Request<Incoming>, lookup: &dyn Lookup) -> Response<Full<Bytes>> {
    let text =
        |code: StatusCode, text: &'static str| reply(code, "text/plain", Bytes::from_static(text.as_bytes()));
    let records_requester = match request.uri().path() {
        WEBHOOK_PATH => false,
        REQUESTER_PATH => true,
        _ => return text(StatusCode::NOT_FOUND, "reviews are POSTed to /validate and /record-requester\n"),
    };
    if request.method() != Method::POST {
        return text(StatusCode::METHOD_NOT_ALLOWED, "reviews are POSTed\n");
    }
    let body = Limited::new(request.into_body(), BODY_LIMIT).collect();
    let body = match tokio::time::timeout(REQUEST_TIMEOUT, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            return text(StatusCode::PAYLOAD_TOO_LARGE, "a review has at most 8 MiB\n");
        }
        Ok(Err(_)) => return text(StatusCode::BAD_REQUEST, "the body ended early\n"),
        Err(_) => return text(StatusCode::REQUEST_TIMEOUT, "the body took too long\n"),
    };
    let (code, body) = if records_requester { answer_with_requester(&body) } else { answer(&body, lookup) };
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = if code == StatusCode::OK { "application/json" } else { "text/plain" };
    reply(code, kind, Bytes::from(body))
}

fn reply(code: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = code;
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use time::OffsetDateTime;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::AddressBook;

    #[tokio::test]
    async fn a_connection_waits_for_the_first_certificate() {
        let name = "webhook.example";
        let certificates = WebhookCertificates::make(&[name.to_owned()], OffsetDateTime::now_utc()).unwrap();
        let reviewer = Reviewer {
            tls: Arc::new(TlsSettings::new(false)),
            lookup: Arc::new(AddressBook::new(Vec::new())),
        };
        let tls = reviewer.tls.clone();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_ending, ended) = watch::channel(false);
        let serving = tokio::spawn(async move {
            connection(listener.accept().await.unwrap().0, reviewer, ended).await;
        });

        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from(name).unwrap();
        let mut handshake = std::pin::pin!(connector(&certificates).connect(name, stream));
        let early = tokio::time::timeout(Duration::from_millis(200), handshake.as_mut()).await;
        assert!(early.is_err(), "the handshake ended without a certificate");
        assert_eq!(tls.waits_for(), Some("the webhook's certificate"));
        tls.show(&certificates).unwrap();
        handshake.await.unwrap();
        assert_eq!(tls.waits_for(), None);
        serving.abort();
    }

    fn connector(certificates: &WebhookCertificates) -> TlsConnector {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificates.authorities.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
    }
}
