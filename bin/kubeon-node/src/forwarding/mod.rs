//! Parts from host to host: a host forwards the bytes of a part while it receives them.
//!
//! ```text
//!   engine ─► part_stream ─► spool ─┬─► step: unpack   other host
//!   or another host                 └─► server ── TLS ──► client ─► part_stream ─► …
//! ```
//!
//! Both sides show a certificate of the authority of the run. The receiver checks each piece, so that it need not trust what it
//! receives.

mod client;
mod server;
mod spool;
#[cfg(test)]
mod tests;
mod tls;

use std::sync::Arc;

use kubeon_api::Digest;
use kubeon_wire::{ForwardingIdentity, PartForwarder, StepFailure};
use spool::Spool;
pub use spool::SpooledPart;

use crate::failure::failed;
use crate::ops::part_stream::{KeptBytes, PartWriter};
use crate::root::Root;

/// The forwarding of one session.
pub struct Forwarding {
    spool: Arc<Spool>,
    tls: tls::RunTls,
    /// The port at which other hosts get parts.
    pub port: u16,
}

impl Forwarding {
    /// Begins to serve other hosts. It ends with this program.
    ///
    /// # Errors
    /// If the identity cannot be used, or the address is not one of this host.
    pub fn begin(root: &Root, identity: &ForwardingIdentity) -> Result<Self, StepFailure> {
        let tls = tls::RunTls::new(identity)?;
        let spool = Arc::new(Spool::new(root)?);
        let port = server::begin(identity.address, tls.server.clone(), Arc::clone(&spool))
            .map_err(|error| failed(format!("cannot listen on {}: {error}", identity.address)))?;
        Ok(Self { spool, tls, port })
    }

    /// Keeps the bytes of a part for other hosts: a writer, which gets them in order, and a reader for this host. `None` if the
    /// disk refuses it.
    pub fn keep(&self, digest: &Digest, size: u64) -> Option<(SpooledPart, KeptBytes)> {
        let spooled = self.spool.begin(digest, size)?;
        let reader = spooled.reader().ok()?;
        Some((spooled, Box::new(reader)))
    }

    /// Removes what was kept for other hosts.
    pub fn end(&self) {
        self.spool.remove();
    }

    /// Receives a part from another host, and passes the bytes on that `keep` does not keep. Returns whether all arrived.
    pub fn receive(
        &self,
        (digest, size): (&Digest, u64),
        source: &PartForwarder,
        feed: PartWriter,
        keep: &mut dyn FnMut(&[u8]) -> bool,
    ) -> bool {
        client::receive(&self.tls, (digest, size), source, feed, keep)
    }
}
