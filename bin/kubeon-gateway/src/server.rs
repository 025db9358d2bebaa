//! Start and shutdown: the API over TLS, and the health of the process.

use std::collections::BTreeSet;
use std::future::{Ready, ready};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::routing::get;
use axum_server::Handle;
use axum_server::accept::Accept;
use futures::future::BoxFuture;
use http::StatusCode;
use kubeon_link_kube::{connect_within, connect_without_credentials};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_http::add_extension::AddExtension;

use crate::access::AccessReviews;
use crate::caller::ImpersonatedCallers;
use crate::fleet::Fleet;
use crate::gateway::{Gateway, GatewayParts};
use crate::meta_api::MetaApi;
use crate::namespaces::CallerNamespaces;
use crate::oidc::{OidcOptions, OidcTokens};
use crate::router::router;
use crate::tls::TlsFiles;
use crate::tokens::TokenReviews;

/// The timeout for a TLS handshake, and for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long running requests may take at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest head of a request in bytes.
const HEAD_LIMIT: usize = 64 * 1024;

/// The options of the gateway.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// The kubeconfig of the meta cluster; `None` for the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// The address of the API.
    pub address: SocketAddr,
    /// The address of `/healthz` and `/readyz`.
    pub health_address: SocketAddr,
    /// The server's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of client certificates.
    pub client_authorities: Option<PathBuf>,
    /// The OpenID Connect provider whose tokens are accepted.
    pub oidc: Option<OidcOptions>,
    /// Users with client certificates or tokens of the provider whom the gateway may impersonate.
    pub impersonated_users: BTreeSet<String>,
    /// Groups of these users that the gateway may impersonate.
    pub impersonated_groups: BTreeSet<String>,
    /// The namespace of each caller of version 1.
    pub namespaces: CallerNamespaces,
    /// The most connections at the same time.
    pub connections: usize,
    /// The timeout of a request to the API server.
    pub request_timeout: Duration,
}

/// Serves until `stop` ends.
///
/// # Errors
/// When the API server cannot be reached, a certificate cannot be used, or an address is in use.
pub async fn run(options: GatewayOptions, stop: BoxFuture<'static, ()>) -> anyhow::Result<()> {
    let kubeconfig = options.kubeconfig.as_deref();
    let own = connect_within(kubeconfig, options.request_timeout).await?;
    let without_credentials = connect_without_credentials(kubeconfig, options.request_timeout).await?;
    let files = TlsFiles {
        certificate: options.certificate,
        key: options.key,
        client_authorities: options.client_authorities,
    };
    let tls = files.follow()?;
    let gateway = Gateway::new(GatewayParts {
        tokens: TokenReviews::new(own.clone()),
        oidc: options.oidc.map(OidcTokens::new).transpose()?,
        access: AccessReviews::new(own.clone()),
        fleet: Fleet::start(&own),
        meta_api: MetaApi { own, without_credentials },
        impersonated: ImpersonatedCallers {
            users: options.impersonated_users,
            groups: options.impersonated_groups,
        },
        namespaces: options.namespaces,
    });
    let health = listen(options.health_address)?;
    let listener = listen(options.address)?;
    tracing::info!(address = %listener.local_addr()?, health_address = %health.local_addr()?, "the gateway serves");
    let handle = Handle::new();
    let mut server = axum_server::from_tcp_rustls(listener, tls)?
        .handle(handle.clone())
        .http1_only()
        .first_request_timeout(HEAD_TIMEOUT)
        .map(|acceptor| {
            acceptor.handshake_timeout(HEAD_TIMEOUT).acceptor(LimitedAcceptor::new(options.connections))
        });
    server.http_builder().http1().header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_LIMIT);
    let health = axum_server::from_tcp(health)?.serve(health_router(gateway.clone()).into_make_service());
    let serving = server.serve(router(gateway)?.into_make_service());
    let stopping = async {
        stop.await;
        tracing::info!("the gateway stops");
        handle.graceful_shutdown(Some(SHUTDOWN_TIMEOUT));
        std::future::pending::<()>().await;
    };
    tokio::select! {
        served = serving => served.context("serving the API"),
        served = health => served.context("serving the health of the process"),
        () = stopping => Ok(()),
    }
}

fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).with_context(|| format!("listening on {address}"))
}

fn health_router(gateway: Gateway) -> axum::Router {
    let ready = move || {
        let waits_for = gateway.fleet.waits_for();
        async move {
            match waits_for {
                None => (StatusCode::OK, "ok".to_owned()),
                Some(what) => (StatusCode::SERVICE_UNAVAILABLE, format!("waits for: {what}")),
            }
        }
    };
    axum::Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(ready))
}

/// Accepts at most a number of connections; further ones are closed.
#[derive(Clone)]
struct LimitedAcceptor(Arc<Semaphore>);

impl LimitedAcceptor {
    fn new(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most)))
    }
}

impl<S> Accept<TcpStream, S> for LimitedAcceptor {
    type Stream = TcpStream;
    /// The service of a connection lives as long as the connection, and with it the place.
    type Service = AddExtension<S, Arc<OwnedSemaphorePermit>>;
    type Future = Ready<std::io::Result<(TcpStream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        ready(match self.0.clone().try_acquire_owned() {
            Ok(place) => {
                stream.set_nodelay(true).map(|()| (stream, AddExtension::new(service, Arc::new(place))))
            }
            Err(_) => Err(std::io::Error::other("there are too many connections")),
        })
    }
}
