//! A real API server: starts it, waits until it is ready, and creates clients.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::sync::OnceCell;

use crate::EnvtestError;
use crate::arguments::{self, LoopbackPorts};
use crate::credentials::{self, Identity, KubeconfigUser, TestAuthority};
use crate::folder::Folder;
use crate::ports::free_port;
use crate::process::ServerProcess;
use crate::programs::{Programs, VERSION};

/// Time limit for a starting server that logs nothing.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for a starting server that still logs.
const READY_TIMEOUT: Duration = Duration::from_secs(300);
/// Interval of readiness checks.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Attempts to start: another program may take a port between the choice and the start.
const ATTEMPTS: usize = 3;

/// Options of a test API server.
#[derive(Debug, Clone, Default)]
pub struct ApiServerOptions {
    /// Whether writes reach the disk before they are answered, as in production. Default: no, and the data is in memory.
    pub fsync: bool,
    /// Names of the controllers that kube-controller-manager runs; when empty it is not started.
    pub controllers: Vec<String>,
    /// More arguments for kube-apiserver.
    pub arguments: Vec<String>,
}

impl ApiServerOptions {
    /// All controllers of the kube-controller-manager: garbage collection, Jobs, service accounts and the rest.
    #[must_use]
    pub fn with_controllers(mut self) -> Self {
        self.controllers = vec!["*".into()];
        self
    }
}

/// A running API server. Dropping it ends it and removes its data.
pub struct TestApiServer {
    // The programs end in the order of these fields.
    controllers: Option<ServerProcess>,
    server: ServerProcess,
    etcd: ServerProcess,
    pub(crate) folder: Folder,
    pub(crate) authority: TestAuthority,
    admin: Identity,
    pub(crate) token: String,
    url: String,
    pub(crate) etcd_url: String,
}

impl TestApiServer {
    /// Starts etcd, kube-apiserver and the requested controllers, and waits until they are ready.
    ///
    /// # Errors
    /// The bundle is not built, or a program ends or logs nothing for 60 s before it
    /// is ready (the message contains the end of its log).
    pub async fn start(options: ApiServerOptions) -> Result<Self, EnvtestError> {
        let mut attempt = 1;
        loop {
            match Self::attempt(&options).await {
                Err(EnvtestError::Ended { log, .. })
                    if attempt < ATTEMPTS && log.contains("address already in use") =>
                {
                    attempt += 1;
                }
                done => return done,
            }
        }
    }

    /// The server that all tests of a program share. It lives until the program ends; use a [`TestApiServer::namespace`] per test.
    ///
    /// # Errors
    /// As [`TestApiServer::start`].
    pub async fn shared() -> Result<&'static Self, EnvtestError> {
        static SHARED: OnceCell<TestApiServer> = OnceCell::const_new();
        SHARED.get_or_try_init(|| Self::start(ApiServerOptions::default())).await
    }

    async fn attempt(options: &ApiServerOptions) -> Result<Self, EnvtestError> {
        let programs = tokio::task::spawn_blocking(|| Programs::find(VERSION)).await;
        let programs =
            programs.map_err(|error| EnvtestError::file("programs")(std::io::Error::other(error)))??;
        let folder = Folder::new(options.fsync)?;
        let ports = free_ports()?;
        let url = format!("https://127.0.0.1:{}", ports.api);
        let authority = TestAuthority::new()?;
        let admin = authority.client("admin", "system:masters")?;
        let token = credentials::random_token();
        write_credentials(&folder, &authority, &admin, &token, &url)?;
        let etcd = arguments::etcd(ports, folder.path(), options.fsync);
        let etcd = ServerProcess::start("etcd", &programs.etcd, &etcd, folder.path())?;
        let arguments = arguments::api_server(ports, folder.path(), &options.arguments);
        let mut started = Self {
            controllers: None,
            server: ServerProcess::start("kube-apiserver", &programs.api_server, &arguments, folder.path())?,
            etcd,
            folder,
            authority,
            admin,
            token,
            url,
            etcd_url: format!("http://127.0.0.1:{}", ports.etcd),
        };
        started.wait_until_ready().await?;
        if !options.controllers.is_empty() {
            started.start_controllers(&programs.controller_manager, &options.controllers).await?;
        }
        Ok(started)
    }

    async fn wait_until_ready(&mut self) -> Result<(), EnvtestError> {
        let client = self.client().await?;
        let (begin, mut last_log, mut log_size) = (Instant::now(), Instant::now(), 0);
        loop {
            self.etcd.check_alive()?;
            self.server.check_alive()?;
            let answer = client.request_text(get("/readyz")?);
            if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(5), answer).await {
                return Ok(());
            }
            let size = self.etcd.log_size() + self.server.log_size();
            if size != log_size {
                (last_log, log_size) = (Instant::now(), size);
            }
            let (limit, since) = if begin.elapsed() > READY_TIMEOUT {
                (READY_TIMEOUT, begin)
            } else {
                (SILENCE_TIMEOUT, last_log)
            };
            if since.elapsed() > limit {
                let log = format!("{}\n{}", self.etcd.log_tail(), self.server.log_tail());
                return Err(EnvtestError::TooLate { what: "readiness of kube-apiserver".into(), limit, log });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn start_controllers(
        &mut self,
        program: &Path,
        controllers: &[String],
    ) -> Result<(), EnvtestError> {
        let arguments = arguments::controller_manager(self.folder.path(), controllers);
        let mut manager =
            ServerProcess::start("kube-controller-manager", program, &arguments, self.folder.path())?;
        if controllers.iter().any(|name| name == "*") {
            wait_for_service_accounts(self.client().await?, &mut manager).await?;
        }
        self.controllers = Some(manager);
        Ok(())
    }

    /// The URL of the server, such as `https://127.0.0.1:34567`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The certificate of its authority, PEM.
    #[must_use]
    pub fn ca_certificate(&self) -> &str {
        &self.authority.certificate
    }

    /// A bearer token of the administrator (`system:masters`), for clients without certificates.
    #[must_use]
    pub fn admin_token(&self) -> &str {
        &self.token
    }

    /// The administrator's kubeconfig. It contains a private key: write it with mode 0600.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_with(&KubeconfigUser::Certificate(&self.admin))
    }

    /// The administrator's kubeconfig as a file with mode 0600. It exists as long as the server.
    #[must_use]
    pub fn kubeconfig_file(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// The kubeconfig of a client with a bearer token, such as one of [`TestApiServer::service_account`].
    #[must_use]
    pub fn kubeconfig_of_token(&self, token: &str) -> String {
        self.kubeconfig_with(&KubeconfigUser::Token(token))
    }

    /// Writes a file with mode 0600 into the server's folder. It exists as long as the server.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_file(&self, name: &str, text: &str) -> Result<PathBuf, EnvtestError> {
        self.folder.write(name, text)
    }

    /// A client of the administrator, bound to the current runtime.
    ///
    /// # Errors
    /// The client cannot be created.
    pub async fn client(&self) -> Result<Client, EnvtestError> {
        client_of(&self.kubeconfig()).await
    }

    /// A client of another user. A service account is `system:serviceaccount:NAMESPACE:NAME` in the groups
    /// `system:serviceaccounts` and `system:serviceaccounts:NAMESPACE`.
    ///
    /// # Errors
    /// The client cannot be created.
    pub async fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client, EnvtestError> {
        client_of(&self.kubeconfig_with(&KubeconfigUser::As { admin: &self.admin, user, groups })).await
    }

    fn kubeconfig_with(&self, login: &KubeconfigUser<'_>) -> String {
        credentials::kubeconfig(&self.url, &self.authority.certificate, login)
    }

    /// The process id of kube-apiserver.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.server.id()
    }

    /// The process id of etcd.
    #[must_use]
    pub fn etcd_process(&self) -> u32 {
        self.etcd.id()
    }
}

/// Waits until the controllers have created the service account of the default namespace.
async fn wait_for_service_accounts(client: Client, manager: &mut ServerProcess) -> Result<(), EnvtestError> {
    use k8s_openapi::api::core::v1::ServiceAccount;
    let accounts = kube::Api::<ServiceAccount>::namespaced(client, "default");
    let created =
        kube::runtime::wait::await_condition(accounts, "default", |account: Option<&ServiceAccount>| {
            account.is_some()
        });
    if let Ok(Ok(_)) = tokio::time::timeout(READY_TIMEOUT, created).await {
        return Ok(());
    }
    manager.check_alive()?;
    let log = manager.log_tail();
    Err(EnvtestError::TooLate {
        what: "creation of the first service account".into(),
        limit: READY_TIMEOUT,
        log,
    })
}

fn get(path: &str) -> Result<hyper::Request<Vec<u8>>, EnvtestError> {
    let request = hyper::Request::get(path).body(Vec::new());
    request.map_err(|error| EnvtestError::api(path)(kube::Error::HttpError(error)))
}

/// A client for a kubeconfig.
pub(crate) async fn client_of(kubeconfig: &str) -> Result<Client, EnvtestError> {
    let config = Kubeconfig::from_yaml(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Client::try_from(config).map_err(EnvtestError::api("creating a client"))
}

fn write_credentials(
    folder: &Folder,
    authority: &TestAuthority,
    admin: &Identity,
    token: &str,
    url: &str,
) -> Result<(), EnvtestError> {
    let server = authority.server()?;
    let (private, public) = credentials::token_keys()?;
    folder.write("ca.crt", &authority.certificate)?;
    folder.write("server.crt", &server.certificate)?;
    folder.write("server.key", &server.key)?;
    folder.write("sa.key", &private)?;
    folder.write("sa.pub", &public)?;
    folder.write("tokens.csv", &format!("{token},admin,admin,\"system:masters\"\n"))?;
    let login = KubeconfigUser::Certificate(admin);
    folder.write("kubeconfig", &credentials::kubeconfig(url, &authority.certificate, &login))?;
    Ok(())
}

fn free_ports() -> Result<LoopbackPorts, EnvtestError> {
    let port = || free_port(Ipv4Addr::LOCALHOST);
    Ok(LoopbackPorts { etcd: port()?, peer: port()?, api: port()? })
}
