//! The health of a business cluster.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The time before the end of a certificate in which it ends soon. Hosts renew theirs months before.
pub const ENDS_SOON: SignedDuration = SignedDuration::from_hours(14 * 24);

/// The health of a business cluster, as the operator observes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedHealth {
    /// No API server answers; the text says why.
    Unreachable(String),
    /// An API server answers and refuses the kubeconfig of the observer, or has a certificate of another authority than that
    /// kubeconfig; the text says which. Whether the cluster works is not known.
    Refused(String),
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
        /// What differs on the masters from the steps of their operations; `None` before a master has reported it, and while
        /// programs change masters.
        drift: Option<ObservedDrift>,
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
    /// Whether that is within [`ENDS_SOON`].
    pub ends_soon: bool,
    /// Those that should have been renewed before, as node and path, sorted.
    pub overdue: Vec<String>,
}

/// What differs on the masters from the steps of their operations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedDrift {
    /// The number of files, links, units and kernel parameters that differ.
    pub count: u64,
    /// Some of them, as node and text, sorted.
    pub named: Vec<String>,
}
