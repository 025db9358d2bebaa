//! One TCP connection and one login to a host.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use kubeon_api::HostAddress;
use kubeon_wire::{Category, StepFailure};
use parking_lot::Mutex;
use russh::client::{self, Handle, Handler};
use russh::keys::{Algorithm, PublicKeyOrCertificate};
use russh::{Preferred, cipher};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;

use crate::auth::{Attempt, Keys, Refusal};
use crate::failure::failure;
use crate::host_keys::{HostKeys, SeenKey, seen};
use crate::login::Login;
use crate::pool::Limits;
use crate::shell::Rights;

/// Channels open at once on a connection: sshd allows 10 sessions by default.
const CHANNELS: usize = 8;

/// Bytes that a host may send before it must wait for us, per channel.
const WINDOW: u32 = 16 * 1024 * 1024;

/// Time for the key exchange, which comes before the login.
const KEY_EXCHANGE: Duration = Duration::from_secs(10);

/// Time for the whole login; a refused password takes sshd about 2 s each.
const LOGIN: Duration = Duration::from_secs(30);

/// How long a host may leave what was sent to it unacknowledged. Keepalives cannot tell: they wait behind
/// the bytes of a part that nobody takes.
const SILENCE: Duration = Duration::from_secs(15);

/// An authenticated connection.
pub(crate) struct Connection {
    pub(crate) host: HostAddress,
    pub(crate) handle: Handle<Guard>,
    pub(crate) channels: Arc<Semaphore>,
    pub(crate) login: Login,
    pub(crate) rights: OnceCell<Result<Rights, StepFailure>>,
}

/// Why there is no connection.
pub(crate) struct DialError {
    pub(crate) failure: StepFailure,
    /// Whether trying again at once may help.
    pub(crate) again: bool,
    /// Whether it came as far as a login.
    pub(crate) counted: bool,
}

impl DialError {
    fn network(host: HostAddress, port: u16, why: impl std::fmt::Display, again: bool) -> Self {
        let cause = format!("{host} cannot be reached at port {port}: {why}");
        Self { failure: failure(Category::Unreachable, cause), again, counted: false }
    }
}

impl Connection {
    /// Connects, compares the host's key, and logs in.
    pub(crate) async fn dial(
        host: HostAddress,
        login: &Login,
        host_keys: &Arc<HostKeys>,
        keys: &Keys,
        limits: &Limits,
    ) -> Result<Self, DialError> {
        let guard = Guard::new(host, login.port, Arc::clone(host_keys));
        let mut handle = greet(host, login.port, guard, limits).await?;
        let attempt = Attempt::new(&mut handle, login, keys).run();
        let port = login.port;
        match timeout(LOGIN, attempt).await {
            Ok(Ok(())) => Ok(Self {
                host,
                handle,
                channels: Arc::new(Semaphore::new(CHANNELS)),
                login: login.clone(),
                rights: OnceCell::new(),
            }),
            Ok(Err(Refusal::Denied(tried))) => {
                let cause = format!(
                    "{host} refused the login of {} ({tried}); check the user, or give another key or password",
                    login.user
                );
                Err(DialError { failure: failure(Category::Denied, cause), again: false, counted: true })
            }
            Ok(Err(Refusal::Broken(error))) => {
                let why = format!("the connection broke during the login ({error})");
                Err(DialError { counted: true, ..DialError::network(host, port, why, true) })
            }
            Err(_) => {
                let why = format!("the login took more than {} s", LOGIN.as_secs());
                Err(DialError { counted: true, ..DialError::network(host, port, why, false) })
            }
        }
    }

    /// Whether nothing more can be done with it.
    pub(crate) fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }
}

/// The key that a host shows, seen without logging in.
pub(crate) async fn look_at_key(
    host: HostAddress,
    port: u16,
    host_keys: &Arc<HostKeys>,
    limits: &Limits,
) -> Result<SeenKey, DialError> {
    let guard = Guard { only_look: true, ..Guard::new(host, port, Arc::clone(host_keys)) };
    let shown = Arc::clone(&guard.shown);
    let result = greet(host, port, guard, limits).await;
    let shown = shown.lock().take();
    match (shown, result) {
        (Some(key), _) => Ok(key),
        (None, Err(error)) => Err(error),
        (None, Ok(_)) => Err(DialError::network(host, port, "it showed no key", false)),
    }
}

/// TCP and key exchange, up to the point where the host's key was accepted.
async fn greet(
    host: HostAddress,
    port: u16,
    guard: Guard,
    limits: &Limits,
) -> Result<Handle<Guard>, DialError> {
    let connecting = TcpStream::connect((host.ip(), port));
    let socket = match timeout(limits.connect, connecting).await {
        Ok(Ok(socket)) => socket,
        Ok(Err(error)) => return Err(DialError::network(host, port, tcp_words(&error), true)),
        Err(_) => {
            let why = format!("no answer within {} s", limits.connect.as_secs_f32());
            return Err(DialError::network(host, port, why, false));
        }
    };
    tune(&socket).map_err(|error| DialError::network(host, port, error, true))?;
    let refusal = Arc::clone(&guard.refusal);
    let config = Arc::new(config(&guard.host_keys.algorithms(host, port)));
    let result = timeout(KEY_EXCHANGE, client::connect_stream(config, socket, guard)).await;
    if let Some(failure) = refusal.lock().take() {
        return Err(DialError { failure, again: false, counted: false });
    }
    match result {
        Ok(Ok(handle)) => Ok(handle),
        Ok(Err(error)) => {
            let again = matches!(error, russh::Error::IO(_) | russh::Error::HUP | russh::Error::Disconnect);
            Err(DialError::network(host, port, format!("no SSH there ({error})"), again))
        }
        Err(_) => {
            let why = format!("it accepts connections but speaks no SSH within {} s", KEY_EXCHANGE.as_secs());
            Err(DialError::network(host, port, why, false))
        }
    }
}

fn tune(socket: &TcpStream) -> std::io::Result<()> {
    // Small requests must not wait for each other's acknowledgement.
    socket.set_nodelay(true)?;
    SockRef::from(socket).set_tcp_user_timeout(Some(SILENCE))
}

fn tcp_words(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "nothing listens there (connection refused)".to_owned(),
        std::io::ErrorKind::HostUnreachable | std::io::ErrorKind::NetworkUnreachable => {
            "there is no route to it".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Key types that are `known` of the host come first.
fn config(known: &[Algorithm]) -> client::Config {
    let usual = Preferred::DEFAULT.key;
    // A known RSA key may be shown under any of its names.
    let alike = |known: &Algorithm, usual: &Algorithm| match (known, usual) {
        (Algorithm::Rsa { .. }, Algorithm::Rsa { .. }) => true,
        (known, usual) => known == usual,
    };
    let (mut key, others): (Vec<Algorithm>, Vec<Algorithm>) =
        usual.iter().cloned().partition(|usual| known.iter().any(|known| alike(known, usual)));
    key.extend(others);
    client::Config {
        window_size: WINDOW,
        maximum_packet_size: 65_535,
        keepalive_interval: Some(Duration::from_secs(5)),
        keepalive_max: 3,
        nodelay: true,
        preferred: Preferred {
            key: Cow::Owned(key),
            // Processors have instructions for AES-GCM; the others are for servers without it.
            cipher: Cow::Borrowed(&[
                cipher::AES_128_GCM,
                cipher::AES_256_GCM,
                cipher::CHACHA20_POLY1305,
                cipher::AES_256_CTR,
                cipher::AES_128_CTR,
            ]),
            compression: Cow::Borrowed(&[russh::compression::NONE]),
            ..Preferred::DEFAULT
        },
        ..client::Config::default()
    }
}

/// Stands at the door while the connection is made.
pub(crate) struct Guard {
    host: HostAddress,
    port: u16,
    host_keys: Arc<HostKeys>,
    only_look: bool,
    refusal: Arc<Mutex<Option<StepFailure>>>,
    shown: Arc<Mutex<Option<SeenKey>>>,
}

impl Guard {
    fn new(host: HostAddress, port: u16, host_keys: Arc<HostKeys>) -> Self {
        let (refusal, shown) = (Arc::default(), Arc::default());
        Self { host, port, host_keys, only_look: false, refusal, shown }
    }
}

impl Handler for Guard {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        let key = shown.public_key();
        if self.only_look {
            let key = seen(self.host, self.port, &key);
            *self.shown.lock() = Some(key);
            return Ok(false);
        }
        match self.host_keys.check(self.host, self.port, &key) {
            Ok(()) => Ok(true),
            Err(failure) => {
                *self.refusal.lock() = Some(failure);
                Ok(false)
            }
        }
    }
}
