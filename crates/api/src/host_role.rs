//! The role of a host.

use crate::open_words::open_words;

open_words! {
    /// The role of a host in its cluster. The claim on a host stores it, so a role that another version wrote is kept as
    /// it is.
    HostRole {
        /// The host runs the control plane.
        Master = "master",
        /// The host runs workloads only.
        Worker = "worker",
        /// The host holds etcd and runs no node. A status names this role also beside the others of a host.
        Etcd = "etcd",
    }
}

impl HostRole {
    /// [`Self::Master`] for a host of the control plane, else [`Self::Worker`].
    #[must_use]
    pub fn of(master: bool) -> Self {
        if master { Self::Master } else { Self::Worker }
    }

    /// Whether the host runs the control plane.
    #[must_use]
    pub fn is_master(&self) -> bool {
        *self == Self::Master
    }

    /// Whether the host runs a node of the cluster.
    #[must_use]
    pub fn runs_node(&self) -> bool {
        *self != Self::Etcd
    }
}
