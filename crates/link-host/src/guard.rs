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
    host: HostAddress,
    port: u16,
    pub(crate) host_keys: Arc<HostKeys>,
    /// Whether to record the key and refuse it.
    pub(crate) only_read_key: bool,
    /// The reason why the key was refused.
    pub(crate) refusal: Arc<Mutex<Option<StepFailure>>>,
    /// The recorded key.
    pub(crate) shown: Arc<Mutex<Option<SeenKey>>>,
}

impl Guard {
    pub(crate) fn new(host: HostAddress, port: u16, host_keys: Arc<HostKeys>) -> Self {
        let (refusal, shown) = (Arc::default(), Arc::default());
        Self { host, port, host_keys, only_read_key: false, refusal, shown }
    }
}

impl Handler for Guard {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        let key = shown.public_key();
        if self.only_read_key {
            let key = seen_key(self.host, self.port, &key);
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
