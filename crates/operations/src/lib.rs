//! The operator's decisions: which operation of a cluster may run, its Job, its result, the stored history,
//! and the operation that a changed `KubernetesCluster` requests.
//!
//! ```text
//!   watches ──► View of one cluster ──► decide ──► Decision::Read   objects to read before deciding again
//!                     ▲                     └────► Decision::Apply  writes in stages, events, time of the next reconcile
//!                     └──────────────── the answers ◄──────────────┘
//! ```
//!
//! The crate is pure: it uses no clock, client, runtime or random value. The caller sends the writes in order
//! and calls again with the answers. When the process is killed, the next reconcile continues from the
//! observed objects.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod cluster;
mod cluster_object;
pub mod condition;
pub mod image;
pub mod job_state;
mod kstatus;
pub mod kubernetes_cluster;
pub mod names;
pub mod object;
mod observed_health;
pub mod operation;
pub mod order;
mod persisted;
pub mod queue_key;
mod removed_operations;
pub mod settings;
pub mod view;
pub mod write;

pub use kubeon_render::job::BundleImage;
pub use object::{JobSpecPatch, NewObject, ObjectPatch, StatusPatch};
pub use observed_health::{ENDS_SOON, ObservedCertificates, ObservedDrift, ObservedHealth, ObservedVersions};
pub use queue_key::QueueKey;
pub use settings::OperatorSettings;
pub use view::{
    ClusterObject, Data, ObjectOwnership, Objects, Observed, StartPermission, View, WriteRefusal,
};
pub use write::{Change, ClusterChanges, Decision, FAILURES, Notice, ObjectKind, ObjectRef, Write};

/// The next reads or writes for one cluster and its operations.
#[must_use]
pub fn decide(view: &View<'_>) -> Decision {
    match &view.subject {
        ClusterObject::Cluster(_) => cluster::decide(view).into(),
        ClusterObject::KubernetesCluster(_) => kubernetes_cluster::decide(view).into(),
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
