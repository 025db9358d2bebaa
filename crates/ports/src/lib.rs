//! The seams: what the engine needs from the outside, as traits. Read ports and write ports are apart,
//! so that who is given only the former cannot change anything.
//!
//! ```text
//!   observe ──► ProbeHost                    (reads)
//!   apply   ──► ActHost, Secrets, Blobs      (writes)
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use kubeon_api::{Digest, HostAddress};
use kubeon_wire::{Event, Facts, Fence, HostStep, SecretRef, StepFailure};

/// Looks at a host and changes nothing on it.
#[async_trait]
pub trait ProbeHost: Send + Sync {
    /// What the host is and what stands on it.
    ///
    /// # Errors
    /// When the host cannot be reached or logged in to, or its answer cannot be read.
    async fn facts(&self, host: HostAddress) -> Result<Facts, StepFailure>;

    /// The same, and what comes of connecting from the host to the places asked for (a name or address, and a
    /// port). A session that cannot try it reports nothing about them.
    ///
    /// # Errors
    /// As for [`ProbeHost::facts`].
    async fn facts_and(&self, host: HostAddress, places: &[(String, u16)]) -> Result<Facts, StepFailure> {
        let _ = places;
        self.facts(host).await
    }
}

/// Changes a host.
#[async_trait]
pub trait ActHost: Send + Sync {
    /// Puts the node program in place where it is missing and opens a session under the fence.
    ///
    /// # Errors
    /// When the host cannot be reached, or refuses the fence.
    async fn open(&self, host: HostAddress, fence: &Fence) -> Result<Arc<dyn HostSession>, StepFailure>;
}

/// Receives what a step says while it runs.
pub type EventSink<'a> = &'a (dyn Fn(Event) + Send + Sync);

/// An open session with a host. Several steps may run at once.
#[async_trait]
pub trait HostSession: Send + Sync {
    /// Runs one step to its end. For a part, `blob` is the file whose bytes are sent.
    ///
    /// # Errors
    /// What the host says of the failure, or that the connection broke; the step may then have happened.
    async fn run(
        &self,
        step: HostStep,
        blob: Option<PathBuf>,
        sink: EventSink<'_>,
    ) -> Result<Report, StepFailure>;

    /// Returns when the session is of no more use, with the reason; never, while it can take steps.
    async fn ended(&self) -> StepFailure;

    /// Ends the session; steps under way are finished by the host.
    async fn close(&self);
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Whether anything on the host changed.
    pub changed: bool,
    /// How long it took on the host.
    pub milliseconds: u64,
}

/// Turns references to secrets into their text. Only `apply` is given one.
pub trait Secrets: Send + Sync {
    /// The text.
    ///
    /// # Errors
    /// When the secret cannot be read or made; the text names the reference, never the content.
    fn resolve(&self, secret: &SecretRef) -> Result<String, SecretError>;
}

/// A secret could not be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot get {what}: {why}")]
pub struct SecretError {
    /// Which secret.
    pub what: String,
    /// Why not.
    pub why: String,
}

/// Where the bytes of parts are.
pub trait Blobs: Send + Sync {
    /// The file that holds the part; `None` when the bundle does not have it.
    fn blob(&self, digest: &Digest) -> Option<PathBuf>;
}

/// The time, given to pure code as a value.
pub trait Clock: Send + Sync {
    /// Seconds since 1970, UTC.
    fn now_seconds(&self) -> i64;
}
