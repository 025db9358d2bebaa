//! The operator's access to an API server: requests with a timeout, watches that restart by themselves,
//! events, and the leader's lease. Its only decision is whether a failed request may be retried.
//!
//! ```text
//!   connect ──► Client ──► KubeWriter      one request: its answer, or an error with a retry class; the number of
//!                     │                    parallel requests is limited, except for urgent ones
//!                     ├──► watch           all objects, then every change
//!                     ├──► EventRecorder   events, which do not delay other requests
//!                     └──► Lease           one leader at a time; the lease is released at shutdown
//!   ObserverKubeconfig ──► ObserverCredential ──► ObserverConnection ⇄ ObserverClient   readiness and nodes of a business cluster
//! ```

mod client;
mod concurrency;
mod error;
mod event_recorder;
mod lease;
mod observer;
mod watch;
mod writer;

pub use client::{ConnectError, connect, connect_within, connect_without_credentials};
pub use error::{LinkError, RetryClass};
pub use event_recorder::{EventRecord, EventRecorder};
pub use lease::{HeldLease, Lease, LeaseEnd};
pub use observer::{
    ObservedNode, ObserverClient, ObserverConnection, ObserverCredential, ObserverError, ObserverKubeconfig,
    observed_nodes, reports_of_masters,
};
pub use watch::{Event, slim, watch, watch_whole};
pub use writer::{KubeWriter, Priority, RequestPermit, ResourcePath, Verb};

pub use kube::Client;
pub use kube::core::{DeserializeGuard, PartialObjectMeta};
pub use kubeon_wire::{HostDrift, MasterReport};
