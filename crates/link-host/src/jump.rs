//! Connections to jump hosts: hosts through which other hosts are reached.
//!
//! ```text
//!   SshHosts ──► bastion (one connection, shared) ──► channel to 10.0.0.7:22, in it SSH to 10.0.0.7
//!                                                └──► channel to 10.0.0.8:22, in it SSH to 10.0.0.8
//! ```
//!
//! The jump host forwards encrypted bytes only. Its own key must be known: a wrong jump host could not be noticed before the
//! login to it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubeon_wire::StepFailure;
use parking_lot::Mutex;
use russh::client::{Handle, Msg};
use russh::{ChannelOpenFailure, ChannelStream};
use tokio::time::timeout;

use crate::dial_error::DialError;
use crate::guard::Guard;
use crate::login::JumpHost;

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
    /// The shared connection to a jump host. The first caller opens it with `dial`; the others wait.
    pub(crate) async fn connection(
        &self,
        jump: &JumpHost,
        dial: impl Future<Output = Result<Handle<Guard>, DialError>>,
    ) -> Result<Arc<Handle<Guard>>, DialError> {
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
        match dial.await {
            Ok(handle) => {
                let handle = Arc::new(handle);
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
}

/// Opens a channel through a jump host.
pub(crate) async fn forward(
    handle: &Handle<Guard>,
    jump: &JumpHost,
    (host, port): (&str, u16),
    limit: Duration,
) -> Result<ChannelStream<Msg>, DialError> {
    let opening = handle.channel_open_direct_tcpip(host, port.into(), "127.0.0.1", 0);
    let (why, retryable) = match timeout(limit, opening).await {
        Ok(Ok(channel)) => return Ok(channel.into_stream()),
        Ok(Err(russh::Error::ChannelOpenFailure(ChannelOpenFailure::AdministrativelyProhibited))) => {
            ("forwarding is not permitted (AllowTcpForwarding, PermitOpen)".to_owned(), false)
        }
        Ok(Err(russh::Error::ChannelOpenFailure(ChannelOpenFailure::ConnectFailed))) => {
            ("nothing answers there".to_owned(), true)
        }
        Ok(Err(error)) => (format!("the connection failed ({error})"), true),
        Err(_) => (format!("no answer within {} s", limit.as_secs_f32()), false),
    };
    Err(DialError::network(host, port, format!("{why}, through jump host {jump}"), retryable))
}
