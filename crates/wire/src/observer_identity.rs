//! The identity of a program that watches the health of a cluster, such as the operator of a meta cluster.

/// The group of observers: it may read the nodes of a cluster, and nothing more than every authenticated user.
pub const OBSERVER_GROUP: &str = "kubeon:observers";
