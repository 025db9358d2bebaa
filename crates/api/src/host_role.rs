//! What a host does for its cluster.

use crate::open_words::open_words;

open_words! {
    /// What a host does for its cluster. The claim on a host holds the word, so one of another version is kept as it is.
    HostRole {
        /// It runs the control plane.
        Master = "master",
        /// It runs workloads only.
        Worker = "worker",
    }
}

impl HostRole {
    /// The role of a host of the control plane, or of any other host.
    #[must_use]
    pub fn of(master: bool) -> Self {
        if master { Self::Master } else { Self::Worker }
    }
}
