//! Reads: asks every host what stands on it and makes one [`Snapshot`]. It is given the read port only,
//! so it cannot change anything.
//!
//! ```text
//!   hosts ──► ProbeHost (64 at a time, 15 s each) ──►  Snapshot { host: Fresh(facts) | Unknown { why } }
//! ```
//!
//! A host that does not answer is `Unknown`, never absent: what follows from that is decided in `plan`.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, stream};
use kubeon_api::HostAddress;
use kubeon_plan::{Seen, Snapshot};
use kubeon_ports::ProbeHost;
use kubeon_wire::{Category, Facts};

/// How many hosts are asked at the same time.
pub const HOSTS_AT_ONCE: usize = 64;

/// How long one host may take to answer.
pub const HOST_TIMEOUT: Duration = Duration::from_secs(15);

/// Asks all hosts, side by side, and returns when the last one has answered or had its [`HOST_TIMEOUT`].
/// A host named twice is asked once. `now_seconds` (since 1970) becomes the snapshot's time.
///
/// Never fails: what could not be seen is in the snapshot, with the reason.
pub async fn snapshot(
    probe: &dyn ProbeHost,
    hosts: impl IntoIterator<Item = HostAddress>,
    now_seconds: i64,
) -> Snapshot {
    let asked: BTreeSet<HostAddress> = hosts.into_iter().collect();
    let seen = stream::iter(asked)
        .map(|host| async move { (host, look(probe, host).await) })
        .buffer_unordered(HOSTS_AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    Snapshot { taken_at: now_seconds, hosts: seen.into_iter().collect() }
}

async fn look(probe: &dyn ProbeHost, host: HostAddress) -> Seen<Facts> {
    match tokio::time::timeout(HOST_TIMEOUT, probe.facts(host)).await {
        Ok(Ok(facts)) => Seen::Fresh(facts),
        Ok(Err(failure)) => {
            Seen::Unknown { denied: failure.category == Category::Denied, why: failure.cause }
        }
        Err(_) => {
            Seen::Unknown { why: format!("no answer within {} s", HOST_TIMEOUT.as_secs()), denied: false }
        }
    }
}

#[cfg(test)]
mod tests;
