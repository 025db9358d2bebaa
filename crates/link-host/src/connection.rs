//! One TCP connection and one login to a host.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kubeon_api::HostAddress;
use kubeon_wire::{Category, StepFailure};
use russh::client::{self, Handle};
use russh::keys::Algorithm;
use russh::{Preferred, cipher};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{Instant, timeout};

use crate::auth::{Attempt, Keys, LoginError};
use crate::dial_error::DialError;
use crate::failure::failure;
use crate::guard::Guard;
use crate::host_keys::{HostKeys, SeenKey};
use crate::jump::{Jumps, forward};
use crate::login::{JumpHost, Login};
use crate::settings::Limits;
use crate::shell::Rights;

/// Maximum number of open channels per connection: sshd allows 10 sessions by default.
const CHANNELS: usize = 8;

/// Flow-control window per channel in bytes.
const WINDOW: u32 = 16 * 1024 * 1024;

/// Time limit for the key exchange.
const KEY_EXCHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for the whole login; sshd delays each refused password by about 2 s.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(90);

/// A connection that fails later than this is not tried again: the kernel has looked for the host several times already.
const QUICK_FAILURE: Duration = Duration::from_secs(2);

/// Time limit for the acknowledgement of sent bytes. Keepalives cannot replace it: they wait behind the bytes of a part
/// that the host does not read.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(15);

/// An authenticated connection.
pub(crate) struct Connection {
    pub(crate) host: HostAddress,
    pub(crate) handle: Handle<Guard>,
    pub(crate) channels: Arc<Semaphore>,
    pub(crate) login: Login,
    pub(crate) rights: OnceCell<Result<Rights, StepFailure>>,
}

/// What opens connections: the known keys of hosts, the private keys, the limits, and the jump hosts.
pub(crate) struct Dialer<'a> {
    pub(crate) host_keys: &'a Arc<HostKeys>,
    pub(crate) keys: &'a Keys,
    pub(crate) limits: &'a Limits,
    pub(crate) jumps: &'a Jumps,
}

impl Connection {
    /// Connects, compares the host's key and logs in.
    pub(crate) async fn dial(
        host: HostAddress,
        login: &Login,
        dialer: &Dialer<'_>,
    ) -> Result<Self, DialError> {
        let guard = Guard::new(host, login.port, Arc::clone(dialer.host_keys));
        let name = host.to_string();
        let mut handle = handshake((&name, login.port), login.jump.as_deref(), guard, dialer).await?;
        log_in(&mut handle, &name, login, dialer).await?;
        Ok(Self {
            host,
            handle,
            channels: Arc::new(Semaphore::new(CHANNELS)),
            login: login.clone(),
            rights: OnceCell::new(),
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }
}

/// Logs in. Errors call the host `name`.
async fn log_in(
    handle: &mut Handle<Guard>,
    name: &str,
    login: &Login,
    dialer: &Dialer<'_>,
) -> Result<(), DialError> {
    let attempt = Attempt::new(handle, login, dialer.keys).run();
    let error = match timeout(LOGIN_TIMEOUT, attempt).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(LoginError::Denied(tried))) => {
            let cause = format!(
                "{name} refused the login of {} ({tried}); check the user, or give another key or password",
                login.user
            );
            DialError::repeated(failure(Category::Denied, cause))
        }
        Ok(Err(LoginError::Broken(error))) => {
            let why = format!("the connection broke during the login ({error})");
            DialError::network(name, login.port, why, true)
        }
        Err(_) => {
            let why = format!("the login took more than {} s", LOGIN_TIMEOUT.as_secs());
            DialError::network(name, login.port, why, false)
        }
    };
    Err(DialError { login_attempted: true, ..error })
}

/// Reads the key that a host shows, without a login to it.
pub(crate) async fn read_host_key(
    host: HostAddress,
    login: &Login,
    dialer: &Dialer<'_>,
) -> Result<SeenKey, DialError> {
    let port = login.port;
    let mut guard = Guard::new(host, port, Arc::clone(dialer.host_keys));
    guard.only_read_key = true;
    let shown = Arc::clone(&guard.shown);
    let result = handshake((&host.to_string(), port), login.jump.as_deref(), guard, dialer).await;
    let shown = shown.lock().take();
    match (shown, result) {
        (Some(key), _) => Ok(key),
        (None, Err(error)) => Err(error),
        (None, Ok(_)) => Err(DialError::network(host, port, "it showed no key", false)),
    }
}

/// Opens the connection, directly or through a jump host, and runs the key exchange, until the host's key is accepted.
async fn handshake(
    (host, port): (&str, u16),
    jump: Option<&JumpHost>,
    guard: Guard,
    dialer: &Dialer<'_>,
) -> Result<Handle<Guard>, DialError> {
    match jump {
        None => {
            let socket = connect(host, port, dialer.limits).await?;
            exchange_keys((host, port), socket, guard).await
        }
        Some(jump) => {
            let handle = dialer.jumps.connection(jump, dial_jump_host(jump, dialer)).await?;
            let channel = forward(&handle, jump, (host, port), dialer.limits.connect).await?;
            exchange_keys((host, port), channel, guard).await
        }
    }
}

/// Logs in to a jump host. The future is boxed, because a jump host may have a jump host.
fn dial_jump_host<'a>(
    jump: &'a JumpHost,
    dialer: &'a Dialer<'a>,
) -> BoxFuture<'a, Result<Handle<Guard>, DialError>> {
    Box::pin(async move {
        let JumpHost { host, login } = jump;
        let guard = Guard::of_jump_host(host, login.port, Arc::clone(dialer.host_keys));
        let mut handle = handshake((host, login.port), login.jump.as_deref(), guard, dialer).await?;
        // The login to the jump host is not one to the host behind it.
        let not_host = |error| DialError { login_attempted: false, ..error };
        log_in(&mut handle, &format!("jump host {host}"), login, dialer).await.map_err(not_host)?;
        tracing::debug!(%jump, "logged in to a jump host");
        Ok(handle)
    })
}

async fn connect(host: &str, port: u16, limits: &Limits) -> Result<TcpStream, DialError> {
    let begun = Instant::now();
    let connecting = TcpStream::connect((host, port));
    let socket = match timeout(limits.connect, connecting).await {
        Ok(Ok(socket)) => socket,
        Ok(Err(error)) => {
            let retryable = begun.elapsed() < QUICK_FAILURE;
            return Err(DialError::network(host, port, describe_tcp_error(&error), retryable));
        }
        Err(_) => {
            let why = format!("no answer within {} s", limits.connect.as_secs_f32());
            return Err(DialError::network(host, port, why, false));
        }
    };
    set_socket_options(&socket).map_err(|error| DialError::network(host, port, error, true))?;
    Ok(socket)
}

async fn exchange_keys(
    (host, port): (&str, u16),
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    guard: Guard,
) -> Result<Handle<Guard>, DialError> {
    let refusal = Arc::clone(&guard.refusal);
    let config = Arc::new(config(&guard.host_keys.algorithms(host, port)));
    let result = timeout(KEY_EXCHANGE_TIMEOUT, client::connect_stream(config, stream, guard)).await;
    if let Some(failure) = refusal.lock().take() {
        return Err(DialError { failure, retryable: false, login_attempted: false });
    }
    match result {
        Ok(Ok(handle)) => Ok(handle),
        Ok(Err(error)) => {
            let retryable =
                matches!(error, russh::Error::IO(_) | russh::Error::HUP | russh::Error::Disconnect);
            Err(DialError::network(host, port, format!("the port does not serve SSH ({error})"), retryable))
        }
        Err(_) => {
            let why = format!(
                "it accepts connections but does not start SSH within {} s",
                KEY_EXCHANGE_TIMEOUT.as_secs()
            );
            Err(DialError::network(host, port, why, false))
        }
    }
}

fn set_socket_options(socket: &TcpStream) -> std::io::Result<()> {
    // Small requests must not wait for the acknowledgement of others.
    socket.set_nodelay(true)?;
    SockRef::from(socket).set_tcp_user_timeout(Some(ACKNOWLEDGE_TIMEOUT))
}

fn describe_tcp_error(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => {
            "no program listens on the port (connection refused)".to_owned()
        }
        std::io::ErrorKind::HostUnreachable | std::io::ErrorKind::NetworkUnreachable => {
            "there is no route to the host".to_owned()
        }
        _ => error.to_string(),
    }
}

/// The client's settings. The types of the host's `known` keys come first.
fn config(known: &[Algorithm]) -> client::Config {
    let usual = Preferred::DEFAULT.key;
    // A host may show a known RSA key under any of its algorithm names.
    let same_type = |known: &Algorithm, usual: &Algorithm| match (known, usual) {
        (Algorithm::Rsa { .. }, Algorithm::Rsa { .. }) => true,
        (known, usual) => known == usual,
    };
    let (mut key, others): (Vec<Algorithm>, Vec<Algorithm>) =
        usual.iter().cloned().partition(|usual| known.iter().any(|known| same_type(known, usual)));
    key.extend(others);
    client::Config {
        window_size: WINDOW,
        maximum_packet_size: 65_535,
        keepalive_interval: Some(Duration::from_secs(5)),
        keepalive_max: 3,
        nodelay: true,
        preferred: Preferred {
            key: Cow::Owned(key),
            // Processors have instructions for AES-GCM. The other ciphers are for servers without AES-GCM.
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
