//! The ports of the engine: traits for hosts, secrets, bundle files and the clock. Read ports and write ports
//! are separate traits, so that code with only a read port cannot change a host.
//!
//! ```text
//!   observe ──► ProbeHost                    (reads)
//!   apply   ──► ActHost, Secrets, Blobs      (writes)
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use kubeon_api::{Digest, HostAddress};
use kubeon_wire::{Event, Facts, Fence, ForwardingIdentity, HostStep, SecretRef, StepFailure};

/// Reads the state of a host. It does not change the host.
#[async_trait]
pub trait ProbeHost: Send + Sync {
    /// Returns the facts of the host.
    ///
    /// # Errors
    /// When the host cannot be reached or logged in to, or its answer cannot be read.
    async fn facts(&self, host: HostAddress) -> Result<Facts, StepFailure>;

    /// Returns the facts of the host, with the results of connections from the host to the targets (a name or
    /// address, and a port). An implementation that cannot try connections returns no results for them.
    ///
    /// # Errors
    /// As for [`ProbeHost::facts`].
    async fn facts_with_connections(
        &self,
        host: HostAddress,
        targets: &[(String, u16)],
    ) -> Result<Facts, StepFailure> {
        let _ = targets;
        self.facts(host).await
    }
}

/// Changes a host.
#[async_trait]
pub trait ActHost: Send + Sync {
    /// Copies the node program to the host if it is missing, and opens a session with the fence.
    ///
    /// # Errors
    /// When the host cannot be reached or refuses the fence.
    async fn open(&self, host: HostAddress, fence: &Fence) -> Result<Arc<dyn HostSession>, StepFailure>;
}

/// Receives the events of a running step.
pub type EventSink<'a> = &'a (dyn Fn(Event) + Send + Sync);

/// An open session with a host. Several steps may run in parallel.
#[async_trait]
pub trait HostSession: Send + Sync {
    /// Runs one step to its end. For a part, `blob` is the file that is sent.
    ///
    /// # Errors
    /// The failure that the host reports, or that the connection broke. In the latter case the step may have
    /// been executed.
    async fn run(
        &self,
        step: HostStep,
        blob: Option<PathBuf>,
        sink: EventSink<'_>,
    ) -> Result<Report, StepFailure>;

    /// Lets the host forward the parts of this session to other hosts until the session ends. Returns the port of the
    /// identity's address at which it does, or the reason why it does not.
    async fn forward_parts(&self, identity: ForwardingIdentity) -> Result<u16, String> {
        Err(format!("{} forwards no parts", identity.address))
    }

    /// Returns the reason when the session has ended. It does not return while the session accepts steps.
    async fn ended(&self) -> StepFailure;

    /// Closes the session. The host finishes running steps.
    async fn close(&self);
}

/// The result of a successful step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Whether anything on the host changed.
    pub changed: bool,
    /// How long it took on the host.
    pub milliseconds: u64,
}

/// Resolves references to secrets into their text. Only `apply` uses it.
pub trait Secrets: Send + Sync {
    /// Returns the text of the secret.
    ///
    /// # Errors
    /// When the secret cannot be read or created. The message names the reference, never the content.
    fn resolve(&self, secret: &SecretRef) -> Result<String, SecretError>;
}

/// Makes the identities by which the hosts of one run know each other.
pub trait ForwardingIdentities: Send + Sync {
    /// The identity of a host, for its address in the cluster's network.
    ///
    /// # Errors
    /// When it cannot be created.
    fn identity(&self, host: HostAddress) -> Result<ForwardingIdentity, SecretError>;
}

/// A secret could not be read or created.
#[derive(Debug, thiserror::Error)]
#[error("cannot get {what}: {why}")]
pub struct SecretError {
    /// The name of the secret.
    pub what: String,
    /// The cause.
    pub why: String,
}

/// Finds the files of parts.
pub trait Blobs: Send + Sync {
    /// The file of the part; `None` if the bundle does not hold it.
    fn blob(&self, digest: &Digest) -> Option<PathBuf>;
}

/// The clock. Pure code gets the time as a value.
pub trait Clock: Send + Sync {
    /// Seconds since 1970, UTC.
    fn now_seconds(&self) -> i64;
}
