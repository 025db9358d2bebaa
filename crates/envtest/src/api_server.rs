//! A real API server: starting it, waiting for it, and ways to reach it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::sync::OnceCell;

use crate::EnvtestError;
use crate::arguments::{self, Ports};
use crate::credentials::{self, Authority, Identity, Login};
use crate::folder::Folder;
use crate::process::Process;
use crate::programs::{Programs, VERSION};

/// A server that starts and says nothing for so long hangs.
const SILENCE: Duration = Duration::from_secs(60);
/// One that still talks may only be slow, on a machine with other work; but not for ever.
const READY: Duration = Duration::from_secs(300);
/// Between two looks at a server that starts: it offers nothing to wait on.
const LOOK: Duration = Duration::from_millis(50);
/// Another program may take a port between our finding it free and the server's taking it.
const ATTEMPTS: usize = 3;

/// How to start an API server.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Whether writes reach the disk before they are answered, as in production. Default: no, and the data is in memory.
    pub fsync: bool,
    /// Controllers of the real kube-controller-manager to run beside it, by its names; empty: it is not started.
    pub controllers: Vec<String>,
    /// More arguments for kube-apiserver.
    pub arguments: Vec<String>,
}

impl Options {
    /// All controllers of the kube-controller-manager: garbage collection, Jobs, service accounts and the rest.
    #[must_use]
    pub fn with_controllers(mut self) -> Self {
        self.controllers = vec!["*".into()];
        self
    }
}

/// A running API server. Dropping it ends it and removes its data.
pub struct ApiServer {
    // In the order in which they must end.
    controllers: Option<Process>,
    server: Process,
    etcd: Process,
    pub(crate) folder: Folder,
    pub(crate) authority: Authority,
    admin: Identity,
    pub(crate) token: String,
    url: String,
}

impl ApiServer {
    /// Starts etcd, kube-apiserver and, if asked for, controllers, and waits until they serve.
    ///
    /// # Errors
    /// The bundle is not built (the text says how), or a program ends, or says nothing for 60 s, before it serves (the
    /// text ends with its last words).
    pub async fn start(options: Options) -> Result<Self, EnvtestError> {
        let mut attempt = 1;
        loop {
            match Self::attempt(&options).await {
                Err(EnvtestError::Ended { words, .. })
                    if attempt < ATTEMPTS && words.contains("address already in use") =>
                {
                    attempt += 1;
                }
                done => return done,
            }
        }
    }

    /// One that all tests of a program share. It lives until the program ends; use a [`ApiServer::namespace`] per test.
    ///
    /// # Errors
    /// As [`ApiServer::start`].
    pub async fn shared() -> Result<&'static Self, EnvtestError> {
        static SHARED: OnceCell<ApiServer> = OnceCell::const_new();
        SHARED.get_or_try_init(|| Self::start(Options::default())).await
    }

    async fn attempt(options: &Options) -> Result<Self, EnvtestError> {
        let programs = tokio::task::spawn_blocking(|| Programs::find(VERSION)).await;
        let programs =
            programs.map_err(|error| EnvtestError::file("programs")(std::io::Error::other(error)))??;
        let folder = Folder::new(options.fsync)?;
        let ports = free_ports()?;
        let url = format!("https://127.0.0.1:{}", ports.api);
        let authority = Authority::new()?;
        let admin = authority.client("admin", "system:masters")?;
        let token = credentials::random_token();
        write_credentials(&folder, &authority, &admin, &token, &url)?;
        let etcd = arguments::etcd(ports, folder.path(), options.fsync);
        let etcd = Process::start("etcd", &programs.etcd, &etcd, folder.path())?;
        let arguments = arguments::api_server(ports, folder.path(), &options.arguments);
        let mut started = Self {
            controllers: None,
            server: Process::start("kube-apiserver", &programs.api_server, &arguments, folder.path())?,
            etcd,
            folder,
            authority,
            admin,
            token,
            url,
        };
        started.until_ready().await?;
        if !options.controllers.is_empty() {
            started.start_controllers(&programs.controller_manager, &options.controllers).await?;
        }
        Ok(started)
    }

    async fn until_ready(&mut self) -> Result<(), EnvtestError> {
        let client = self.client().await?;
        let (begin, mut heard, mut said) = (Instant::now(), Instant::now(), 0);
        loop {
            self.etcd.is_alive()?;
            self.server.is_alive()?;
            let answer = client.request_text(get("/readyz")?);
            if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(5), answer).await {
                return Ok(());
            }
            let says = self.etcd.said() + self.server.said();
            if says != said {
                (heard, said) = (Instant::now(), says);
            }
            let (limit, since) = if begin.elapsed() > READY { (READY, begin) } else { (SILENCE, heard) };
            if since.elapsed() > limit {
                let words = format!("{}\n{}", self.etcd.last_words(), self.server.last_words());
                return Err(EnvtestError::TooLate {
                    what: "readiness of kube-apiserver".into(),
                    limit,
                    words,
                });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn start_controllers(
        &mut self,
        program: &Path,
        controllers: &[String],
    ) -> Result<(), EnvtestError> {
        let arguments = arguments::controller_manager(self.folder.path(), controllers);
        let mut manager = Process::start("kube-controller-manager", program, &arguments, self.folder.path())?;
        if controllers.iter().any(|name| name == "*") {
            until_accounts_are_made(self.client().await?, &mut manager).await?;
        }
        self.controllers = Some(manager);
        Ok(())
    }

    /// Such as `https://127.0.0.1:34567`.
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

    /// The administrator's kubeconfig. It holds a key: write it 0600.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_with(&Login::Certificate(&self.admin))
    }

    /// The administrator's kubeconfig as a file, 0600, there as long as the server.
    #[must_use]
    pub fn kubeconfig_file(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// The kubeconfig of a client with a bearer token, such as one of [`ApiServer::service_account`].
    #[must_use]
    pub fn kubeconfig_of_token(&self, token: &str) -> String {
        self.kubeconfig_with(&Login::Token(token))
    }

    /// Writes a file into the server's own folder, 0600, there as long as the server.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_file(&self, name: &str, text: &str) -> Result<PathBuf, EnvtestError> {
        self.folder.write(name, text)
    }

    /// A client of the administrator, bound to the runtime that asks for it.
    ///
    /// # Errors
    /// The client cannot be made.
    pub async fn client(&self) -> Result<Client, EnvtestError> {
        client_of(&self.kubeconfig()).await
    }

    /// A client of somebody else. A service account is `system:serviceaccount:NAMESPACE:NAME` in the groups
    /// `system:serviceaccounts` and `system:serviceaccounts:NAMESPACE`.
    ///
    /// # Errors
    /// The client cannot be made.
    pub async fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client, EnvtestError> {
        client_of(&self.kubeconfig_with(&Login::As { admin: &self.admin, user, groups })).await
    }

    fn kubeconfig_with(&self, login: &Login<'_>) -> String {
        credentials::kubeconfig(&self.url, &self.authority.certificate, login)
    }

    /// The process of kube-apiserver.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.server.id()
    }

    /// The process of etcd.
    #[must_use]
    pub fn etcd_process(&self) -> u32 {
        self.etcd.id()
    }
}

/// Waits until the controllers gave the default namespace its account: they work.
async fn until_accounts_are_made(client: Client, manager: &mut Process) -> Result<(), EnvtestError> {
    use k8s_openapi::api::core::v1::ServiceAccount;
    let accounts = kube::Api::<ServiceAccount>::namespaced(client, "default");
    let made =
        kube::runtime::wait::await_condition(accounts, "default", |it: Option<&ServiceAccount>| it.is_some());
    if let Ok(Ok(_)) = tokio::time::timeout(READY, made).await {
        return Ok(());
    }
    manager.is_alive()?;
    let words = manager.last_words();
    Err(EnvtestError::TooLate { what: "the controllers' first service account".into(), limit: READY, words })
}

fn get(path: &str) -> Result<hyper::Request<Vec<u8>>, EnvtestError> {
    let made = hyper::Request::get(path).body(Vec::new());
    made.map_err(|error| EnvtestError::api(path)(kube::Error::HttpError(error)))
}

/// A client for a kubeconfig.
pub(crate) async fn client_of(kubeconfig: &str) -> Result<Client, EnvtestError> {
    let config = Kubeconfig::from_yaml(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Client::try_from(config).map_err(EnvtestError::api("a client"))
}

fn write_credentials(
    folder: &Folder,
    authority: &Authority,
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
    let login = Login::Certificate(admin);
    folder.write("kubeconfig", &credentials::kubeconfig(url, &authority.certificate, &login))?;
    Ok(())
}

/// Three ports that are free now. They are held together, so that they differ.
fn free_ports() -> Result<Ports, EnvtestError> {
    let listen = || TcpListener::bind("127.0.0.1:0").map_err(EnvtestError::Port);
    let held = [listen()?, listen()?, listen()?];
    let port = |index: usize| -> Result<u16, EnvtestError> {
        let listener: &TcpListener = &held[index];
        Ok(listener.local_addr().map_err(EnvtestError::Port)?.port())
    };
    Ok(Ports { etcd: port(0)?, peer: port(1)?, api: port(2)? })
}
