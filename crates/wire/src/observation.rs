//! What a program that watches the health of a cluster may read, such as the operator of a meta cluster.

use serde::{Deserialize, Serialize};

/// The group of observers: it may read the nodes of a cluster and [`MASTER_REPORTS`].
pub const OBSERVER_GROUP: &str = "kubeon:observers";
/// The ConfigMap in `kube-system` with the reports of the masters: a key for each node, a [`MasterReport`] as JSON.
pub const MASTER_REPORTS: &str = "kubeon-masters";

/// What only a master sees of its cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MasterReport {
    /// When it was written, in seconds since 1970.
    pub at: i64,
    /// When the first certificate on the master ends, in seconds since 1970; `None` when it has none.
    pub first_end: Option<i64>,
    /// The certificates on the master that should have been renewed before, as paths.
    pub overdue: Vec<String>,
    /// The names of the members of etcd that do not serve.
    pub members_down: Vec<String>,
    /// What differs from the steps that the master recorded; `None` when it was not checked, because a program changed the
    /// host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<HostDrift>,
}

/// What differs on a host from the steps that it recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostDrift {
    /// The number of files, links, units and kernel parameters that differ.
    pub count: u32,
    /// The first of them, each with what is different.
    pub first: Vec<String>,
}
