//! The process that holds the lock of a cluster.

use std::fmt;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use serde::{Deserialize, Serialize};

/// The process that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its command, such as `kubeon create`.
    pub command: String,
    /// The control machine's name.
    pub host: String,
    /// When it took the lock.
    pub since: Timestamp,
}

impl Holder {
    /// Whether it runs on this machine.
    #[must_use]
    pub fn is_on_this_machine(&self) -> bool {
        self.host == host_name()
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.since.to_zoned(TimeZone::system());
        let recent = Timestamp::now().checked_sub(20.hours()).is_ok_and(|edge| self.since > edge);
        let form = if recent { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
        write!(f, "{:?} (pid {} on {}, since {})", self.command, self.pid, self.host, since.strftime(form))
    }
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "this machine".to_owned() } else { name.trim().to_owned() }
}
