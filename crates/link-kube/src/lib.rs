//! The operator's hands: requests to an API server with a bound on their time, watches that come back by themselves,
//! events, the lease of the leader. It decides nothing but whether a failed request may be made again.
//!
//! ```text
//!   connect ──► Client ──► Hands::send   one request, its answer or an error with a retry class; no more of them at
//!                     │                  once than the API server answers well, unless they hurry
//!                     ├──► watch         what there is, then every change
//!                     ├──► Herald        events, aside, never in the way
//!                     └──► Lease         one leader at a time, given back when it ends
//! ```

mod client;
mod concurrency;
mod error;
mod event_recorder;
mod lease;
mod watch;
mod writer;

pub use client::{ConnectError, connect, connect_within};
pub use error::{LinkError, RetryClass};
pub use event_recorder::{EventRecord, EventRecorder};
pub use lease::{HeldLease, Lease, LeaseEnd};
pub use watch::{Event, slim, watch};
pub use writer::{KubeWriter, Priority, RequestPermit, ResourcePath, Verb};

pub use kube::Client;
pub use kube::core::{DeserializeGuard, PartialObjectMeta};
