//! The health of a business cluster.

use k8s_openapi::jiff::Timestamp;

/// The health of a business cluster, as the operator observes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedHealth {
    /// No API server answers; the text says why.
    Unreachable(String),
    /// An API server answers and is ready.
    Serving {
        /// The number of nodes.
        nodes: usize,
        /// The names of the nodes that are not ready, sorted.
        not_ready: Vec<String>,
        /// The names of the members of etcd that do not serve, sorted.
        members_down: Vec<String>,
        /// The versions of the kubelets.
        versions: ObservedVersions,
        /// The certificates of the masters; `None` before a master has reported them.
        certificates: Option<ObservedCertificates>,
        /// Whether the kubeconfig of the observer must be renewed. The other kubeconfigs are as old.
        renewal_due: bool,
    },
}

/// The versions of the kubelets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedVersions {
    /// That of most nodes, such as `v1.36.3`; empty without nodes.
    pub most: String,
    /// The nodes with another one, as name and version, sorted.
    pub others: Vec<String>,
}

/// The certificates of the masters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedCertificates {
    /// When the first one ends.
    pub first_end: Timestamp,
    /// Those that should have been renewed before, as node and path, sorted.
    pub overdue: Vec<String>,
}
