//! Progress events of `up`.

use std::time::Duration;

/// A progress event of [`Lab::up`](crate::Lab::up). Hosts report from several threads, in any order.
#[derive(Debug, Clone)]
pub enum LabProgress {
    /// The base root file system is not in the cache and is built now, once; that takes one to two minutes.
    BaseMissing,
    /// A line of the build, such as `Retrieving systemd`.
    BaseLine(String),
    /// The base was built.
    BaseBuilt(Duration),
    /// The base was found in the cache.
    BaseFound,
    /// A setting of this machine that may cause failures later, and the command that changes it.
    Note(String),
    /// A host was powered on.
    Booting(String),
    /// A host answers by SSH, with the time since it was powered on; zero if it ran before.
    Ready(String, Duration),
}
