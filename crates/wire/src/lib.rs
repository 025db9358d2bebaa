//! The messages between the engine and a host: data types only, without behavior and transport.
//!
//! ```text
//!   engine ── Request lines (and part bytes) ──►  kubeon-node apply
//!   engine ◄── Event lines ────────────────────   kubeon-node apply
//!   engine ◄── Facts ──────────────────────────   the probe script, kubeon-node facts
//! ```
//!
//! Every message is one line of JSON. Only [`op::Content::Sealed`] and [`node::ForwardingIdentity`] hold the text of a
//! secret. It is never printed and never part of a plan.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod api_way;
mod check;
pub mod facts;
pub mod firewall;
mod forwarding;
mod host_identity;
pub mod node;
mod observation;
pub mod op;
pub mod precheck;
pub mod progress;
mod secret_ref;
pub mod static_pod;

pub use api_way::{API_SERVICE, API_WAY_FILE, API_WAY_FOUND, ApiWay};
pub use check::Check;
pub use facts::{
    CertificateExpiry, CertificateFact, Cgroup, Claim, ClusterFacts, EtcdFact, Facts, JournalEntry,
    KubeletFacts, LinkFact, NodeCertificates, NodeFact, Reach, ReachFact, ResultState, lacks_only_network,
    renewal_due, renewal_overdue,
};
pub use firewall::{FirewallFact, FirewallProgram, PacketMatch, Transport};
pub use forwarding::{FORWARDING_PORT, PART_PIECE, PartForwarder};
pub use host_identity::{
    CLIENT_SIGNER, HOST_CERTIFICATE, HOST_GROUP, HOST_KEY, HOST_USER_PREFIX, SERVING_SIGNER,
};
pub use node::{
    Category, Event, Fence, ForwardingIdentity, HostStep, ORPHAN_LIFE, PING_INTERVAL, Request, SESSION_GRACE,
    SILENCE_LIMIT, StepFailure,
};
pub use observation::{HostDrift, MASTER_REPORTS, MasterReport, OBSERVER_GROUP};
pub use op::{ApiObject, Content, EtcdPeer, File, HostsEntry, Link, Op};
pub use precheck::{PrecheckHost, PrecheckReport, PrecheckResult, PrecheckSeverity};
pub use progress::Progress;
pub use secret_ref::{CertificateAuthority, Leaf, SecretRef, Usage};
pub use static_pod::{MANIFESTS, POD_SUFFIX, StaticPod, program_of_unit, unit_of_program};
