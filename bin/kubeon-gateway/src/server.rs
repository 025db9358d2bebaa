//! Start and shutdown: the API over TLS, and the health of the process.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use axum::routing::get;
use axum_server::Handle;
use futures::future::BoxFuture;
use http::StatusCode;
use kubeon_link_kube::{connect_within, connect_without_credentials};

use crate::access::AccessReviews;
use crate::caller::ImpersonatedCallers;
use crate::connections::LimitedAcceptor;
use crate::fleet::Fleet;
use crate::gateway::{Gateway, GatewayParts};
use crate::limits::CallerLimits;
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
    /// What the callers may have at the same time.
    pub limits: GatewayLimits,
    /// The timeout of a request to the API server.
    pub request_timeout: Duration,
}

/// What the callers may have at the same time.
#[derive(Debug, Clone, Copy)]
pub struct GatewayLimits {
    /// The most connections of all users. Further ones are closed.
    pub connections: usize,
    /// The most connections of one user; the service accounts of a namespace are one user. Requests on further ones are answered
    /// with 429.
    pub connections_per_user: usize,
    /// The most logs that all users read. Further requests are answered with 503.
    pub logs: usize,
    /// The most logs that one user reads. Further requests are answered with 429.
    pub logs_per_user: usize,
    /// How long a client may read nothing of what is sent to it; then its connection is closed.
    pub write_timeout: Duration,
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
    let limits = options.limits;
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
        limits: CallerLimits::new(limits.connections_per_user, limits.logs_per_user, limits.logs),
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
            let limited = LimitedAcceptor::new(limits.connections, limits.write_timeout);
            acceptor.handshake_timeout(HEAD_TIMEOUT).acceptor(limited)
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
