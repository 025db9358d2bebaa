//! The check of a host's key during the key exchange.

use std::sync::Arc;

use kubeon_api::HostAddress;
use kubeon_wire::StepFailure;
use parking_lot::Mutex;
use russh::client::Handler;
use russh::keys::PublicKeyOrCertificate;

use crate::host_keys::{HostKeys, SeenKey, seen_key};

/// Compares the host's key during the key exchange.
pub(crate) struct Guard {
    host: GuardedHost,
    port: u16,
    pub(crate) host_keys: Arc<HostKeys>,
    /// Whether to record the key and refuse it.
    pub(crate) only_read_key: bool,
    /// The reason why the key was refused.
    pub(crate) refusal: Arc<Mutex<Option<StepFailure>>>,
    /// The recorded key.
    pub(crate) shown: Arc<Mutex<Option<SeenKey>>>,
}

/// The host whose key is compared.
enum GuardedHost {
    /// A host that kubeon works on.
    Host(HostAddress),
    /// A jump host, by name or address.
    Jump(String),
}

impl Guard {
    pub(crate) fn new(host: HostAddress, port: u16, host_keys: Arc<HostKeys>) -> Self {
        Self::of(GuardedHost::Host(host), port, host_keys)
    }

    /// Compares the key of a jump host, which must be known.
    pub(crate) fn of_jump_host(host: &str, port: u16, host_keys: Arc<HostKeys>) -> Self {
        Self::of(GuardedHost::Jump(host.to_owned()), port, host_keys)
    }

    fn of(host: GuardedHost, port: u16, host_keys: Arc<HostKeys>) -> Self {
        let (refusal, shown) = (Arc::default(), Arc::default());
        Self { host, port, host_keys, only_read_key: false, refusal, shown }
    }
}

impl Handler for Guard {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        let key = shown.public_key();
        let checked = match &self.host {
            GuardedHost::Host(host) if self.only_read_key => {
                *self.shown.lock() = Some(seen_key(*host, self.port, &key));
                return Ok(false);
            }
            GuardedHost::Host(host) => self.host_keys.check(*host, self.port, &key),
            GuardedHost::Jump(host) => self.host_keys.check_jump_host(host, self.port, &key),
        };
        match checked {
            Ok(()) => Ok(true),
            Err(failure) => {
                *self.refusal.lock() = Some(failure);
                Ok(false)
            }
        }
    }
}
