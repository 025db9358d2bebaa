//! The hosts, each behind one shared connection that is made when first needed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use kubeon_api::HostAddress;
use kubeon_wire::{Category, StepFailure};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::auth::Keys;
use crate::connection::{Connection, DialError, look_at_key};
use crate::exec::Input;
use crate::failure::{failure, last_lines};
use crate::host_keys::{HostKeys, SeenKey};
use crate::login::Login;
use crate::node::NodeProgram;
use crate::shell::Rights;

/// How often one wish for a connection is tried where the network fails.
const ATTEMPTS: u32 = 3;

/// Time between two attempts; grows with each.
const PAUSE: Duration = Duration::from_millis(300);

/// Time for sudo to say whether it lets the user in.
const SUDO: Duration = Duration::from_secs(15);

/// Bounds on what is done at once and how long it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Time for the TCP connection.
    pub connect: Duration,
    /// Hosts that are logged in to, or looked at, at the same time.
    pub hosts_at_once: usize,
    /// Logins per host over the life of the process: one, and what broken connections take.
    pub logins_per_host: u32,
    /// Time for one look at a host.
    pub facts: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let (connect, facts) = (Duration::from_secs(5), Duration::from_secs(30));
        Self { connect, hosts_at_once: 64, logins_per_host: 3, facts }
    }
}

/// What a pool of hosts is made of.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The login of every host that has none of its own.
    pub login: Login,
    /// The logins of single hosts.
    pub logins: HashMap<HostAddress, Login>,
    /// The program that `open` starts on a host; without it, hosts can only be looked at and copied to.
    pub node_program: Option<NodeProgram>,
    /// Bounds.
    pub limits: Limits,
}

impl Settings {
    /// One login for all hosts, the usual bounds, no node program.
    #[must_use]
    pub fn new(login: Login) -> Self {
        Self { login, logins: HashMap::new(), node_program: None, limits: Limits::default() }
    }
}

/// Hosts reached over SSH. Cheap to clone; clones share the connections.
#[derive(Clone)]
pub struct SshHosts(pub(crate) Arc<Pool>);

pub(crate) struct Pool {
    pub(crate) settings: Settings,
    host_keys: Arc<HostKeys>,
    keys: Keys,
    slots: Mutex<HashMap<HostAddress, Arc<Slot>>>,
    dialing: Semaphore,
    pub(crate) looking: Semaphore,
    endings: Mutex<Endings>,
}

/// Commands that are being ended since nobody waits for them any more.
pub(crate) type Endings = JoinSet<(HostAddress, Result<(), StepFailure>)>;

/// The place of one host's connection. The first caller opens it; the others wait for that.
#[derive(Default)]
struct Slot(tokio::sync::Mutex<SlotState>);

#[derive(Default)]
struct SlotState {
    connection: Option<Arc<Connection>>,
    logins: u32,
    /// A refused login is not tried again: it could lock the account.
    denied: Option<StepFailure>,
    /// The last failure and its time, for those who waited meanwhile.
    failed: Option<(Instant, StepFailure)>,
}

impl SshHosts {
    /// Connects to nothing yet.
    #[must_use]
    pub fn new(settings: Settings, host_keys: Arc<HostKeys>) -> Self {
        let at_once = settings.limits.hosts_at_once.max(1);
        Self(Arc::new(Pool {
            settings,
            host_keys,
            keys: Keys::default(),
            slots: Mutex::default(),
            dialing: Semaphore::new(at_once),
            looking: Semaphore::new(at_once),
            endings: Mutex::default(),
        }))
    }

    /// The host keys that this pool compares, with those met so far.
    #[must_use]
    pub fn host_keys(&self) -> &HostKeys {
        &self.0.host_keys
    }

    /// The key that the host shows, without logging in or accepting it: for asking a person.
    ///
    /// # Errors
    /// When the host cannot be reached or speaks no SSH.
    pub async fn look_at_key(&self, host: HostAddress) -> Result<SeenKey, StepFailure> {
        let port = self.0.login(host).port;
        let seen = look_at_key(host, port, &self.0.host_keys, &self.0.settings.limits).await;
        seen.map_err(|error| error.failure)
    }

    /// Ends every connection. Commands under way fail.
    pub async fn disconnect(&self) {
        let slots: Vec<_> = {
            let slots = self.0.slots.lock();
            slots.values().cloned().collect()
        };
        for slot in slots {
            if let Some(connection) = slot.0.lock().await.connection.take()
                && let Err(error) =
                    connection.handle.disconnect(russh::Disconnect::ByApplication, "done", "en").await
            {
                tracing::debug!(%error, host = %connection.host, "the connection is gone already");
            }
        }
    }
}

impl Pool {
    pub(crate) fn endings(&self) -> MutexGuard<'_, Endings> {
        self.endings.lock()
    }

    pub(crate) fn login(&self, host: HostAddress) -> &Login {
        self.settings.logins.get(&host).unwrap_or(&self.settings.login)
    }

    /// The host's connection, made if there is none that works.
    pub(crate) async fn connection(&self, host: HostAddress) -> Result<Arc<Connection>, StepFailure> {
        let asked = Instant::now();
        let slot = {
            let mut slots = self.slots.lock();
            Arc::clone(slots.entry(host).or_default())
        };
        let mut state = slot.0.lock().await;
        if let Some(connection) = state.connection.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(Arc::clone(connection));
        }
        if let Some(denied) = &state.denied {
            return Err(denied.clone());
        }
        if let Some((_, failure)) = state.failed.as_ref().filter(|(at, _)| *at > asked) {
            return Err(failure.clone());
        }
        let result = self.dial(host, &mut state).await;
        match &result {
            Ok(connection) => state.connection = Some(Arc::clone(connection)),
            Err(failure) if failure.category == Category::Denied => state.denied = Some(failure.clone()),
            Err(failure) => state.failed = Some((Instant::now(), failure.clone())),
        }
        result
    }

    async fn dial(&self, host: HostAddress, state: &mut SlotState) -> Result<Arc<Connection>, StepFailure> {
        let limits = &self.settings.limits;
        let _turn = self.dialing.acquire().await;
        let login = self.login(host);
        let mut attempt = 1;
        let mut pauses = ExponentialBuilder::default().with_min_delay(PAUSE).without_max_times().build();
        loop {
            if state.logins >= limits.logins_per_host {
                let cause =
                    format!("the connection to {host} broke {} times; see to the network", state.logins);
                return Err(failure(Category::Unreachable, cause));
            }
            match Connection::dial(host, login, &self.host_keys, &self.keys, limits).await {
                Ok(connection) => {
                    state.logins += 1;
                    tracing::debug!(%host, user = login.user, "logged in");
                    return Ok(Arc::new(connection));
                }
                Err(DialError { failure, again, counted }) => {
                    state.logins += u32::from(counted);
                    if !again || attempt >= ATTEMPTS {
                        return Err(failure);
                    }
                    tracing::debug!(%host, %failure, attempt, "trying again");
                }
            }
            tokio::time::sleep(pauses.next().unwrap_or(PAUSE)).await;
            attempt += 1;
        }
    }
}

impl Connection {
    /// What the login may do, found out once: a user who is not root is let in by sudo or not.
    pub(crate) async fn rights(&self) -> Result<Rights, StepFailure> {
        let found = self.rights.get_or_try_init(|| async {
            match self.find_rights().await {
                // Remembered: asking sudo again and again could lock the account.
                Err(failure) if failure.category == Category::Denied => Ok(Err(failure)),
                Err(failure) => Err(failure),
                Ok(rights) => Ok(Ok(rights)),
            }
        });
        found.await?.clone()
    }

    async fn find_rights(&self) -> Result<Rights, StepFailure> {
        if self.login.user == "root" {
            return Ok(Rights::AsIs);
        }
        let user = &self.login.user;
        // Without a password first: it may not be needed, and then it is not sent.
        let free = self.ask(&Rights::Sudo, "exit 0", &[], Input::Nothing, (SUDO, 4096)).await?;
        if free.exit.success() {
            return Ok(Rights::Sudo);
        }
        let Some(password) = self.login.sudo_password.clone() else {
            return Err(self.no_root(&free.words(), "give the password for sudo, or a rule with NOPASSWD"));
        };
        let rights = Rights::SudoPassword(password);
        let paid = self.ask(&rights, "exit 0", &[], Input::Nothing, (SUDO, 4096)).await?;
        if paid.exit.success() {
            return Ok(rights);
        }
        Err(self.no_root(&paid.words(), &format!("check the password for sudo and the rules for {user}")))
    }

    fn no_root(&self, words: &str, way_out: &str) -> StepFailure {
        let said = last_lines(words, 1).pop().unwrap_or_else(|| "sudo refused".to_owned());
        let cause = format!("{} may not become root on {} ({said}); {way_out}", self.login.user, self.host);
        failure(Category::Denied, cause)
    }
}
