//! Jump hosts: hosts through which other hosts are reached.
//!
//! ```text
//!   SshHosts ──► bastion (one connection, shared) ──► channel to 10.0.0.7:22, in it SSH to 10.0.0.7
//!                                                └──► channel to 10.0.0.8:22, in it SSH to 10.0.0.8
//! ```
//!
//! The jump host forwards encrypted bytes only. Its own key must be known, because no other line of defence would notice a
//! wrong jump host before the login.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use kubeon_wire::StepFailure;
use parking_lot::Mutex;
use russh::client::{Handle, Msg};
use russh::{ChannelOpenFailure, ChannelStream};
use tokio::time::timeout;

use crate::connection::{DialError, Dialer, handshake, log_in};
use crate::guard::Guard;
use crate::login::Login;

/// A host through which another host is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JumpHost {
    /// Its name or address.
    pub host: String,
    /// The login to it. Rights of root are not necessary.
    pub login: Login,
}

/// `admin@bastion:22`, with its own jump host.
impl fmt::Display for JumpHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Login { user, port, jump, .. } = &self.login;
        write!(f, "{user}@{}:{port}", self.host)?;
        jump.iter().try_for_each(|jump| write!(f, " through {jump}"))
    }
}

/// The connections to jump hosts, by the text of the jump host.
#[derive(Default)]
pub(crate) struct Jumps(Mutex<HashMap<String, Arc<tokio::sync::Mutex<JumpState>>>>);

#[derive(Default)]
struct JumpState {
    handle: Option<Arc<Handle<Guard>>>,
    /// A refused login, which is not tried again: that could lock the account.
    denied: Option<StepFailure>,
    /// The last failure and its time, for the callers that waited.
    failed: Option<(Instant, StepFailure)>,
}

impl Jumps {
    /// Opens a channel through a jump host.
    pub(crate) async fn open(
        &self,
        jump: &JumpHost,
        (host, port): (&str, u16),
        dialer: &Dialer<'_>,
    ) -> Result<ChannelStream<Msg>, DialError> {
        let handle = self.connection(jump, dialer).await?;
        let opening = handle.channel_open_direct_tcpip(host, port.into(), "127.0.0.1", 0);
        let refused = |why: &str, retryable| {
            Err(DialError::network(host, port, format!("{why}, through jump host {jump}"), retryable))
        };
        match timeout(dialer.limits.connect, opening).await {
            Ok(Ok(channel)) => Ok(channel.into_stream()),
            Ok(Err(russh::Error::ChannelOpenFailure(ChannelOpenFailure::AdministrativelyProhibited))) => {
                refused("forwarding is not permitted (AllowTcpForwarding, PermitOpen)", false)
            }
            Ok(Err(russh::Error::ChannelOpenFailure(ChannelOpenFailure::ConnectFailed))) => {
                refused("nothing answers there", true)
            }
            Ok(Err(error)) => refused(&format!("the connection failed ({error})"), true),
            Err(_) => {
                refused(&format!("no answer within {} s", dialer.limits.connect.as_secs_f32()), false)
            }
        }
    }

    /// Closes every connection. Connections to the hosts behind them must be closed first.
    pub(crate) async fn disconnect(&self) {
        let states: Vec<_> = self.0.lock().drain().map(|(_, state)| state).collect();
        for state in states {
            if let Some(handle) = state.lock().await.handle.take()
                && let Err(error) = handle.disconnect(russh::Disconnect::ByApplication, "done", "en").await
            {
                tracing::debug!(%error, "the connection to a jump host was already closed");
            }
        }
    }

    /// The shared connection to a jump host. The first caller opens it; the others wait. The future is boxed, because a jump
    /// host may have a jump host.
    fn connection<'a>(
        &'a self,
        jump: &'a JumpHost,
        dialer: &'a Dialer<'a>,
    ) -> BoxFuture<'a, Result<Arc<Handle<Guard>>, DialError>> {
        Box::pin(async move {
            let requested = Instant::now();
            let slot = Arc::clone(self.0.lock().entry(jump.to_string()).or_default());
            let mut state = slot.lock().await;
            if let Some(handle) = state.handle.as_ref().filter(|handle| !handle.is_closed()) {
                return Ok(Arc::clone(handle));
            }
            let recent = state.failed.as_ref().filter(|(at, _)| *at > requested).map(|(_, failure)| failure);
            if let Some(failure) = state.denied.as_ref().or(recent) {
                return Err(DialError::repeated(failure.clone()));
            }
            match dial(jump, dialer).await {
                Ok(handle) => {
                    state.handle = Some(Arc::clone(&handle));
                    Ok(handle)
                }
                Err(error) if error.failure.category.is_denied() => {
                    state.denied = Some(error.failure.clone());
                    Err(error)
                }
                Err(error) => {
                    state.failed = Some((Instant::now(), error.failure.clone()));
                    Err(error)
                }
            }
        })
    }
}

async fn dial(jump: &JumpHost, dialer: &Dialer<'_>) -> Result<Arc<Handle<Guard>>, DialError> {
    let guard = Guard::of_jump_host(&jump.host, jump.login.port, Arc::clone(dialer.host_keys));
    let mut handle = handshake((&jump.host, jump.login.port), jump.login.jump.as_deref(), guard, dialer).await?;
    let name = format!("jump host {}", jump.host);
    // The login to the jump host is not one to the host behind it.
    log_in(&mut handle, &name, &jump.login, dialer)
        .await
        .map_err(|error| DialError { login_attempted: false, ..error })?;
    tracing::debug!(%jump, "logged in to a jump host");
    Ok(Arc::new(handle))
}
