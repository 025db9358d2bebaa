//! A proxy in front of an API server that records requests and makes them fail on demand.

mod fault;
mod request;
mod rule;
mod serve;
mod state;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use fault::ProxyFault;
pub use request::ProxyRequest;
pub use rule::{FaultRule, RequestMatcher, RuleId, RuleMatches};
use state::ProxyState;

use crate::api_server::client_of;
use crate::credentials::{self, KubeconfigUser};
use crate::{EnvtestError, TestApiServer};

/// A reverse proxy on loopback with HTTPS on both sides; it streams watches. Clients authenticate by a bearer token, which
/// it forwards; it does not forward client certificates. `exec` and other upgraded connections are not supported.
///
/// ```no_run
/// # async fn example(server: &kubeon_envtest::TestApiServer) -> Result<(), kubeon_envtest::EnvtestError> {
/// use kubeon_envtest::{ProxyFault, FaultProxy, FaultRule, RequestMatcher};
/// let proxy = FaultProxy::before(server).await?;
/// proxy.fail(FaultRule { when: RequestMatcher::nth_write(3), how: ProxyFault::Status(500) });
/// let client = proxy.client().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct FaultProxy {
    state: Arc<ProxyState>,
    address: SocketAddr,
    authority: String,
    admin_token: String,
    kubeconfig: PathBuf,
    serving: JoinHandle<()>,
}

impl FaultProxy {
    /// Starts a proxy in front of a server, on the current runtime. It ends when it is dropped.
    ///
    /// # Errors
    /// No port is free, or the certificate cannot be created.
    pub async fn before(server: &TestApiServer) -> Result<Self, EnvtestError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(EnvtestError::Port)?;
        let address = listener.local_addr().map_err(EnvtestError::Port)?;
        let tls = serve::acceptor(&server.authority.server()?)?;
        let state = Arc::new(ProxyState::default());
        let upstream = upstream(server).await?;
        let serving = tokio::spawn(serve::serve(listener, tls, upstream, Arc::clone(&state)));
        let authority = server.authority.certificate.clone();
        let admin_token = server.token.clone();
        let url = format!("https://{address}");
        let text = credentials::kubeconfig(&url, &authority, &KubeconfigUser::Token(&admin_token));
        let kubeconfig = server.folder.write(&format!("kubeconfig-proxy-{}", address.port()), &text)?;
        Ok(Self { state, address, authority, admin_token, kubeconfig, serving })
    }

    /// The URL of the proxy, such as `https://127.0.0.1:34567`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The administrator's kubeconfig through the proxy, as a file with mode 0600. It exists as long as the server.
    #[must_use]
    pub fn kubeconfig_file(&self) -> &Path {
        &self.kubeconfig
    }

    /// A kubeconfig through the proxy for a client with a bearer token.
    #[must_use]
    pub fn kubeconfig_of_token(&self, token: &str) -> String {
        credentials::kubeconfig(&self.url(), &self.authority, &KubeconfigUser::Token(token))
    }

    /// A client of the administrator through the proxy.
    ///
    /// # Errors
    /// The client cannot be created.
    pub async fn client(&self) -> Result<Client, EnvtestError> {
        client_of(&self.kubeconfig_of_token(&self.admin_token)).await
    }

    /// Adds a rule. It counts requests from now on. When several rules match a request, the oldest wins; all count it.
    pub fn fail(&self, rule: FaultRule) -> RuleId {
        let mut records = self.state.records();
        records.rules_added += 1;
        let id = RuleId(records.rules_added);
        records.rules.insert(id, rule::ActiveRule::new(rule));
        id
    }

    /// The matches of a rule so far; empty after the rule was removed.
    #[must_use]
    pub fn matches(&self, rule: RuleId) -> RuleMatches {
        self.state.records().rules.get(&rule).map(|active| active.matches.clone()).unwrap_or_default()
    }

    /// Removes a rule and returns its matches.
    pub fn remove(&self, rule: RuleId) -> RuleMatches {
        self.state.records().rules.remove(&rule).map(|active| active.matches).unwrap_or_default()
    }

    /// Removes all rules and accepts connections again after a cut. Requests that hang keep hanging until a cut.
    pub fn restore(&self) {
        self.state.records().rules.clear();
        self.state.restore();
    }

    /// Closes every connection now. New ones are accepted.
    pub fn cut(&self) {
        self.state.cut(false);
    }

    /// Waits until a rule has closed all connections: the moment to kill the client's process.
    ///
    /// # Errors
    /// No rule closed the connections within `limit`.
    pub async fn wait_until_cut(&self, limit: Duration) -> Result<(), EnvtestError> {
        let mut link = self.state.link();
        if let Ok(Ok(_)) = tokio::time::timeout(limit, link.wait_for(|link| link.down)).await {
            return Ok(());
        }
        let log = format!("{} requests, {} writes", self.requests().len(), self.writes().len());
        Err(EnvtestError::TooLate { what: "the cut".into(), limit, log })
    }

    /// Every request since the start or [`FaultProxy::clear_requests`], in order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<ProxyRequest> {
        self.state.records().requests.clone()
    }

    /// The requests that are writes, see [`ProxyRequest::is_write`].
    #[must_use]
    pub fn writes(&self) -> Vec<ProxyRequest> {
        self.requests().into_iter().filter(ProxyRequest::is_write).collect()
    }

    /// Clears the recorded requests.
    pub fn clear_requests(&self) {
        self.state.records().requests.clear();
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.serving.abort();
        self.state.cut(true);
    }
}

/// A client without credentials: forwarded requests have their own.
async fn upstream(server: &TestApiServer) -> Result<Client, EnvtestError> {
    let text =
        credentials::kubeconfig(server.url(), &server.authority.certificate, &KubeconfigUser::Anonymous);
    let config = Kubeconfig::from_yaml(&text)?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Client::try_from(config).map_err(EnvtestError::api("creating a client for the proxy"))
}
