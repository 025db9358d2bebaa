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
        /// The host holds etcd. Only a status names this role, beside the others of the host.
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
}
