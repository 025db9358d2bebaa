//! What `up` tells its caller while it works.

use std::time::Duration;

/// One step of [`Lab::up`](crate::Lab::up). Hosts report from several threads, in any order.
#[derive(Debug, Clone)]
pub enum Progress {
    /// The base root file system is not in the cache and is being built (once, one to two minutes).
    BaseMissing,
    /// A line of the build, such as `Retrieving systemd`.
    BaseLine(String),
    /// The base was built.
    BaseBuilt(Duration),
    /// The base was found in the cache.
    BaseFound,
    /// Something of this machine that may be in the way later, and what to type.
    Note(String),
    /// A host got its power.
    Booting(String),
    /// A host answers by SSH; time since its power came. Zero if it ran already.
    Ready(String, Duration),
}
