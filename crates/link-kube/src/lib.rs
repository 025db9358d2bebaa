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
mod error;
mod gate;
mod hands;
mod herald;
mod lease;
mod watch;

pub use client::{ConnectError, connect, connect_within};
pub use error::{Again, LinkError};
pub use hands::{Hands, Leave, Pace, Path, Verb};
pub use herald::{Herald, Word};
pub use lease::{Held, Lease, LeaseEnd};
pub use watch::{Event, slim, watch};

pub use kube::Client;
pub use kube::core::{DeserializeGuard, PartialObjectMeta};
