//! A proxy before an API server that counts what passes and fails on demand.

mod request;
mod rule;
mod serve;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::{Mutex, MutexGuard};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use request::Request;
pub use rule::{Fault, FaultRule, Met, RuleId, When};

use crate::api_server::client_of;
use crate::credentials::{self, Login};
use crate::{ApiServer, EnvtestError};

/// A reverse proxy on loopback, HTTPS on both sides, that streams watches as they are. A client shows who it is by a
/// bearer token, which passes through: certificates of clients end at the proxy. `exec` and the like are not passed.
///
/// ```no_run
/// # async fn example(server: &kubeon_envtest::ApiServer) -> Result<(), kubeon_envtest::EnvtestError> {
/// use kubeon_envtest::{Fault, FaultProxy, FaultRule, When};
/// let proxy = FaultProxy::before(server).await?;
/// proxy.fail(FaultRule { when: When::nth_write(3), how: Fault::Status(500) });
/// let client = proxy.client().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    authority: String,
    admin_token: String,
    kubeconfig: PathBuf,
    serving: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    line: watch::Sender<Line>,
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<Request>,
    rules: BTreeMap<RuleId, rule::Armed>,
    /// How many rules there ever were.
    given: usize,
}

/// Whether connections are possible, and how often they were cut.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    cuts: u64,
    down: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // What is in it is whole between any two statements.
        self.state.lock()
    }

    fn cut(&self, down: bool) {
        self.line.send_modify(|line| *line = Line { cuts: line.cuts + 1, down });
    }
}

impl FaultProxy {
    /// Starts one before a server, on the runtime that asks for it. It ends when it is dropped.
    ///
    /// # Errors
    /// There is no port, or no certificate can be made.
    pub async fn before(server: &ApiServer) -> Result<Self, EnvtestError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(EnvtestError::Port)?;
        let address = listener.local_addr().map_err(EnvtestError::Port)?;
        let tls = serve::acceptor(&server.authority.server()?)?;
        let shared = Arc::new(Shared { state: Mutex::default(), line: watch::Sender::default() });
        let upstream = upstream(server).await?;
        let serving = tokio::spawn(serve::serve(listener, tls, upstream, Arc::clone(&shared)));
        let authority = server.authority.certificate.clone();
        let admin_token = server.token.clone();
        let url = format!("https://{address}");
        let text = credentials::kubeconfig(&url, &authority, &Login::Token(&admin_token));
        let kubeconfig = server.folder.write(&format!("kubeconfig-proxy-{}", address.port()), &text)?;
        Ok(Self { shared, address, authority, admin_token, kubeconfig, serving })
    }

    /// Such as `https://127.0.0.1:34567`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The administrator's kubeconfig through the proxy, as a file, 0600, there as long as the server.
    #[must_use]
    pub fn kubeconfig_file(&self) -> &Path {
        &self.kubeconfig
    }

    /// A kubeconfig through the proxy for a client with a bearer token.
    #[must_use]
    pub fn kubeconfig_of_token(&self, token: &str) -> String {
        credentials::kubeconfig(&self.url(), &self.authority, &Login::Token(token))
    }

    /// A client of the administrator through the proxy.
    ///
    /// # Errors
    /// The client cannot be made.
    pub async fn client(&self) -> Result<Client, EnvtestError> {
        client_of(&self.kubeconfig_of_token(&self.admin_token)).await
    }

    /// Adds a rule. It counts requests from now on. Where several fit a request, the oldest wins; all count it.
    pub fn fail(&self, rule: FaultRule) -> RuleId {
        let mut state = self.shared.state();
        state.given += 1;
        let id = RuleId(state.given);
        state.rules.insert(id, rule::Armed::new(rule));
        id
    }

    /// What became of a rule so far; nothing, when it was forgotten.
    #[must_use]
    pub fn met(&self, rule: RuleId) -> Met {
        self.shared.state().rules.get(&rule).map(|armed| armed.met.clone()).unwrap_or_default()
    }

    /// Forgets one rule; what became of it.
    pub fn forgive(&self, rule: RuleId) -> Met {
        self.shared.state().rules.remove(&rule).map(|armed| armed.met).unwrap_or_default()
    }

    /// Forgets all rules, and lets new connections in after a cut. What hangs stays so until it is cut.
    pub fn heal(&self) {
        self.shared.state().rules.clear();
        self.shared.line.send_modify(|line| line.down = false);
    }

    /// Cuts every connection now, as if the network had dropped them. New ones are accepted.
    pub fn cut(&self) {
        self.shared.cut(false);
    }

    /// Waits until a rule cut everything: the moment to kill the client's process.
    ///
    /// # Errors
    /// No rule did so within `limit`.
    pub async fn is_cut(&self, limit: Duration) -> Result<(), EnvtestError> {
        let mut line = self.shared.line.subscribe();
        if let Ok(Ok(_)) = tokio::time::timeout(limit, line.wait_for(|line| line.down)).await {
            return Ok(());
        }
        let words = format!("{} requests, {} writes", self.requests().len(), self.writes().len());
        Err(EnvtestError::TooLate { what: "the cut".into(), limit, words })
    }

    /// Every request since the start or [`FaultProxy::forget`], in order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.state().requests.clone()
    }

    /// The requests that changed something, or tried to, as [`Request::is_write`] has it.
    #[must_use]
    pub fn writes(&self) -> Vec<Request> {
        self.requests().into_iter().filter(Request::is_write).collect()
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        self.shared.state().requests.clear();
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.serving.abort();
        self.shared.cut(true);
    }
}

/// A client without any identity: what arrives at the proxy brings its own.
async fn upstream(server: &ApiServer) -> Result<Client, EnvtestError> {
    let text = credentials::kubeconfig(server.url(), &server.authority.certificate, &Login::Nobody);
    let config = Kubeconfig::from_yaml(&text)?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Client::try_from(config).map_err(EnvtestError::api("a client for the proxy"))
}
