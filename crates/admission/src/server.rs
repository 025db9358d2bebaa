//! The webhook: HTTP/1.1 over TLS, one path, bounded in everything.

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
use kubeon_install::names::WEBHOOK_PATH;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::certificate::Certificates;
use crate::keeper::{Keeping, keep};
use crate::lookup::Lookup;
use crate::review::answer;

/// Longest body in bytes. An API server takes objects of 3 MiB at most; a review holds the new and the old one.
const BODY_LIMIT: usize = 8 * 1024 * 1024;
/// Connections at once; an API server needs few. More wait.
const CONNECTIONS: usize = 256;
/// For a handshake, for a request's head, and for its body.
const PATIENCE: Duration = Duration::from_secs(10);
/// For requests that are being answered when the process is told to end.
const FAREWELL: Duration = Duration::from_secs(5);

/// What the webhook is made of.
pub struct ServeOptions {
    /// Where it listens.
    pub address: SocketAddr,
    /// What it shows.
    pub certificate: CertificateSource,
    /// What the rules ask.
    pub lookup: Arc<dyn Lookup>,
}

/// Where the certificate comes from.
pub enum CertificateSource {
    /// It is given; nobody renews it.
    Given(Box<Certificates>),
    /// It is kept in a Secret, renewed in time, and made known to the API server.
    Kept(Keeping),
}

/// Why the webhook does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("listening on {address} for admission reviews")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The TLS library refuses its settings.
    #[error("setting up TLS")]
    Tls(#[source] rustls::Error),
    /// A given certificate is none.
    #[error("the certificate cannot be used: {0}")]
    Certificate(String),
}

impl ServeError {
    /// A word for labels and machines.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Listen { .. } => "listen",
            Self::Tls(_) => "tls",
            Self::Certificate(_) => "certificate",
        }
    }
}

/// Listens and answers until `stop`; then lets go of what is being answered, for at most five seconds.
///
/// # Errors
/// When it cannot begin. What goes wrong later is logged and tried again.
pub async fn serve(options: ServeOptions, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
    Server::bind(options).await?.run(stop).await;
    Ok(())
}

/// A webhook that listens and does not answer yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    shown: Arc<Shown>,
    certificate: CertificateSource,
    lookup: Arc<dyn Lookup>,
}

/// Whether the webhook can answer; for the process's `/readyz`.
#[derive(Clone)]
pub struct Readiness {
    shown: Arc<Shown>,
    lookup: Arc<dyn Lookup>,
}

impl Readiness {
    /// What it still waits for; nothing when it can answer.
    #[must_use]
    pub fn waits_for(&self) -> Option<&'static str> {
        if self.shown.0.borrow().is_none() {
            return Some("the webhook's certificate");
        }
        (!self.lookup.is_ready()).then_some("the addresses of all clusters")
    }
}

impl Server {
    /// Listens.
    ///
    /// # Errors
    /// When the address is taken or a given certificate is none.
    pub async fn bind(options: ServeOptions) -> Result<Self, ServeError> {
        let shown = Arc::new(Shown(watch::Sender::new(None)));
        if let CertificateSource::Given(given) = &options.certificate {
            shown.show(given)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(ServeError::Tls)?
            .with_no_client_auth()
            .with_cert_resolver(shown.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let failed = |source| ServeError::Listen { address: options.address, source };
        let listener = TcpListener::bind(options.address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self {
            listener,
            address,
            acceptor,
            shown,
            certificate: options.certificate,
            lookup: options.lookup,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it can answer, to be asked from elsewhere.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        Readiness { shown: self.shown.clone(), lookup: self.lookup.clone() }
    }

    /// Answers until `stop`.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listener, acceptor, shown, certificate, lookup, address } = self;
        tracing::info!(%address, "answers admission reviews");
        let (ending, ended) = watch::channel(false);
        let keeping = async {
            match certificate {
                CertificateSource::Given(_) => std::future::pending().await,
                CertificateSource::Kept(keeping) => {
                    keep(keeping, |certificates| shown.show(certificates).map_err(|error| error.to_string()))
                        .await;
                }
            }
        };
        let mut connections = JoinSet::new();
        tokio::select! {
            () = stop => {}
            () = keeping => {}
            () = accept(&listener, &acceptor, &lookup, &ended, &mut connections) => {}
        }
        drop(listener);
        ending.send_replace(true);
        while connections.join_next().await.is_some() {}
    }
}

/// Takes connections. Never ends by itself.
async fn accept(
    listener: &TcpListener,
    acceptor: &TlsAcceptor,
    lookup: &Arc<dyn Lookup>,
    ended: &watch::Receiver<bool>,
    connections: &mut JoinSet<()>,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: a pause lets others close theirs.
                tracing::warn!(%error, "accepting a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (acceptor, lookup, ended) = (acceptor.clone(), lookup.clone(), ended.clone());
        connections.spawn(async move {
            connection(stream, acceptor, lookup, ended).await;
            drop(permit);
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    lookup: Arc<dyn Lookup>,
    mut ended: watch::Receiver<bool>,
) {
    let stream = match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake"),
        Err(_) => return tracing::debug!("TLS handshake took too long"),
    };
    let service = service_fn(move |request| {
        let lookup = lookup.clone();
        async move { Ok::<_, Infallible>(respond(request, lookup.as_ref()).await) }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    let result = tokio::select! {
        result = serving.as_mut() => result,
        () = told(&mut ended) => {
            serving.as_mut().graceful_shutdown();
            match tokio::time::timeout(FAREWELL, serving).await {
                Ok(result) => result,
                Err(_) => return tracing::warn!("a review took too long to end with the process"),
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Until the server ends.
async fn told(ended: &mut watch::Receiver<bool>) {
    // An error says that the server is gone already.
    drop(ended.wait_for(|ended| *ended).await);
}

async fn respond(request: Request<Incoming>, lookup: &dyn Lookup) -> Response<Full<Bytes>> {
    let text =
        |code: StatusCode, text: &'static str| reply(code, "text/plain", Bytes::from_static(text.as_bytes()));
    if request.uri().path() != WEBHOOK_PATH {
        return text(StatusCode::NOT_FOUND, "reviews are POSTed to /validate\n");
    }
    if request.method() != Method::POST {
        return text(StatusCode::METHOD_NOT_ALLOWED, "reviews are POSTed\n");
    }
    let body = Limited::new(request.into_body(), BODY_LIMIT).collect();
    let body = match tokio::time::timeout(PATIENCE, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            return text(StatusCode::PAYLOAD_TOO_LARGE, "a review has at most 8 MiB\n");
        }
        Ok(Err(_)) => return text(StatusCode::BAD_REQUEST, "the body ended early\n"),
        Err(_) => return text(StatusCode::REQUEST_TIMEOUT, "the body took too long\n"),
    };
    let (code, body) = answer(&body, lookup);
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

/// The certificate that clients get; it is replaced without closing connections.
struct Shown(watch::Sender<Option<Arc<CertifiedKey>>>);

impl Shown {
    fn show(&self, certificates: &Certificates) -> Result<(), ServeError> {
        let refused = |error: &dyn std::fmt::Display| ServeError::Certificate(error.to_string());
        let chain = CertificateDer::pem_slice_iter(certificates.leaf.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| refused(&error))?;
        let key = PrivateKeyDer::from_pem_slice(certificates.leaf_key.as_bytes())
            .map_err(|error| refused(&error))?;
        let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(|error| refused(&error))?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(|error| refused(&error))?;
        self.0.send_replace(Some(Arc::new(certified)));
        Ok(())
    }
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shown")
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.borrow().clone()
    }
}
