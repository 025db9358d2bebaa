//! The hosts, each with one shared connection that is opened on first use.

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
use crate::command::CommandInput;
use crate::connection::{Connection, Dialer, read_host_key};
use crate::dial_error::DialError;
use crate::failure::{failure, last_lines};
use crate::host_keys::{HostKeys, SeenKey};
use crate::jump::Jumps;
use crate::login::Login;
use crate::packed_program::PackedPrograms;
use crate::probed_tools::ProbedTools;
use crate::program_spread::ProgramSpread;
use crate::settings::SshSettings;
use crate::shell::Rights;

/// Attempts to connect when the network fails.
const ATTEMPTS: u32 = 3;

/// Pause after the first attempt; it grows with each attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(300);

/// Time limit for sudo to accept or refuse the user.
const SUDO_TIMEOUT: Duration = Duration::from_secs(60);

/// Hosts reached over SSH. Cheap to clone; clones share the connections.
#[derive(Clone)]
pub struct SshHosts(pub(crate) Arc<Pool>);

pub(crate) struct Pool {
    pub(crate) settings: SshSettings,
    host_keys: Arc<HostKeys>,
    keys: Keys,
    jumps: Jumps,
    slots: Mutex<HashMap<HostAddress, Arc<Slot>>>,
    dialing: Semaphore,
    pub(crate) reading_facts: Semaphore,
    endings: Mutex<Endings>,
    pub(crate) packed: PackedPrograms,
    pub(crate) spread: Arc<ProgramSpread>,
    /// The tools of each host, as the last reading of its facts found them.
    pub(crate) probed: Mutex<HashMap<HostAddress, ProbedTools>>,
}

/// Abandoned commands that are being ended.
pub(crate) type Endings = JoinSet<(HostAddress, Result<(), StepFailure>)>;

/// The connection of one host. The first caller opens it; the others wait.
#[derive(Default)]
struct Slot(tokio::sync::Mutex<SlotState>);

#[derive(Default)]
struct SlotState {
    connection: Option<Arc<Connection>>,
    logins: u32,
    /// A refused login, which is not tried again: that could lock the account.
    denied: Option<StepFailure>,
    /// The last failure and its time, for the callers that waited.
    failed: Option<(Instant, StepFailure)>,
}

impl SshHosts {
    /// A pool without connections.
    #[must_use]
    pub fn new(settings: SshSettings, host_keys: Arc<HostKeys>) -> Self {
        let at_once = settings.limits.hosts_at_once.max(1);
        let packed = PackedPrograms::kept_in(settings.packed_programs.clone());
        Self(Arc::new(Pool {
            settings,
            host_keys,
            keys: Keys::default(),
            jumps: Jumps::default(),
            slots: Mutex::default(),
            dialing: Semaphore::new(at_once),
            reading_facts: Semaphore::new(at_once),
            endings: Mutex::default(),
            packed,
            spread: Arc::default(),
            probed: Mutex::default(),
        }))
    }

    /// The host keys that this pool compares, including the keys that hosts have shown.
    #[must_use]
    pub fn host_keys(&self) -> &HostKeys {
        &self.0.host_keys
    }

    /// Reads the key that the host shows, without a login and without accepting it, so that the user can confirm it.
    ///
    /// # Errors
    /// When the host cannot be reached or does not serve SSH.
    pub async fn read_host_key(&self, host: HostAddress) -> Result<SeenKey, StepFailure> {
        let key = read_host_key(host, self.0.login(host), &self.0.dialer()).await;
        key.map_err(|error| error.failure)
    }

    /// Closes every connection. Running commands fail.
    pub async fn disconnect(&self) {
        let slots: Vec<_> = {
            let slots = self.0.slots.lock();
            slots.values().cloned().collect()
        };
        for slot in slots {
            close(&slot).await;
        }
        self.0.jumps.disconnect().await;
    }

    /// Closes the connection to a host, if there is one. A running command on it fails; the next one logs in again.
    pub async fn disconnect_from(&self, host: HostAddress) {
        let slot = self.0.slots.lock().get(&host).cloned();
        if let Some(slot) = slot {
            close(&slot).await;
        }
    }
}

async fn close(slot: &Slot) {
    if let Some(connection) = slot.0.lock().await.connection.take()
        && let Err(error) = connection.handle.disconnect(russh::Disconnect::ByApplication, "done", "en").await
    {
        tracing::debug!(%error, host = %connection.host, "the connection was already closed");
    }
}

impl Pool {
    pub(crate) fn endings(&self) -> MutexGuard<'_, Endings> {
        self.endings.lock()
    }

    fn dialer(&self) -> Dialer<'_> {
        Dialer {
            host_keys: &self.host_keys,
            keys: &self.keys,
            limits: &self.settings.limits,
            jumps: &self.jumps,
        }
    }

    pub(crate) fn login(&self, host: HostAddress) -> &Login {
        self.settings.logins.get(&host).unwrap_or(&self.settings.login)
    }

    /// The host's connection. Opens one if there is none or it is closed.
    pub(crate) async fn connection(&self, host: HostAddress) -> Result<Arc<Connection>, StepFailure> {
        let requested = Instant::now();
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
        if let Some((_, failure)) = state.failed.as_ref().filter(|(at, _)| *at > requested) {
            return Err(failure.clone());
        }
        let result = self.dial(host, &mut state).await;
        match &result {
            Ok(connection) => state.connection = Some(Arc::clone(connection)),
            Err(failure) if failure.category.is_denied() => state.denied = Some(failure.clone()),
            Err(failure) => state.failed = Some((Instant::now(), failure.clone())),
        }
        result
    }

    async fn dial(&self, host: HostAddress, state: &mut SlotState) -> Result<Arc<Connection>, StepFailure> {
        let limits = &self.settings.limits;
        let _permit = self.dialing.acquire().await;
        let login = self.login(host);
        let mut attempt = 1;
        let mut pauses =
            ExponentialBuilder::default().with_min_delay(FIRST_PAUSE).without_max_times().build();
        loop {
            if state.logins >= limits.logins_per_host {
                let cause =
                    format!("the connection to {host} broke {} times; check the network", state.logins);
                return Err(failure(Category::Unreachable, cause));
            }
            match Connection::dial(host, login, &self.dialer()).await {
                Ok(connection) => {
                    state.logins += 1;
                    tracing::debug!(%host, user = login.user, "logged in");
                    return Ok(Arc::new(connection));
                }
                Err(DialError { failure, retryable, login_attempted }) => {
                    state.logins += u32::from(login_attempted);
                    if !retryable || attempt >= ATTEMPTS {
                        return Err(failure);
                    }
                    tracing::debug!(%host, %failure, attempt, "trying again");
                }
            }
            tokio::time::sleep(pauses.next().unwrap_or(FIRST_PAUSE)).await;
            attempt += 1;
        }
    }
}

impl Connection {
    /// The rights of the login, determined once: whether a user who is not root may use sudo.
    pub(crate) async fn rights(&self) -> Result<Rights, StepFailure> {
        let found = self.rights.get_or_try_init(|| async {
            match self.find_rights().await {
                // A refusal is stored: repeated attempts with sudo could lock the account.
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
        // The first attempt has no password, so that the password is sent only if sudo needs it.
        let without_password = self
            .run_script(&Rights::Sudo, "exit 0", &[], CommandInput::Nothing, (SUDO_TIMEOUT, 4096))
            .await?;
        if without_password.exit.success() {
            return Ok(Rights::Sudo);
        }
        let Some(password) = self.login.sudo_password.clone() else {
            return Err(self.no_root(
                &without_password.stderr_text(),
                "give the password for sudo, or a rule with NOPASSWD",
            ));
        };
        let rights = Rights::SudoPassword(password);
        let with_password =
            self.run_script(&rights, "exit 0", &[], CommandInput::Nothing, (SUDO_TIMEOUT, 4096)).await?;
        if with_password.exit.success() {
            return Ok(rights);
        }
        Err(self.no_root(
            &with_password.stderr_text(),
            &format!("check the password for sudo and the rules for {user}"),
        ))
    }

    fn no_root(&self, stderr: &str, remedy: &str) -> StepFailure {
        let reason = last_lines(stderr, 1).pop().unwrap_or_else(|| "sudo refused".to_owned());
        let cause = format!("{} may not become root on {} ({reason}); {remedy}", self.login.user, self.host);
        failure(Category::Denied, cause)
    }
}
