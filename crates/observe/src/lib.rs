//! Reads the facts of every host and returns one [`Snapshot`]. It has only the read port, so it cannot change
//! a host.
//!
//! ```text
//!   hosts ──► ProbeHost (256 at a time) ──►  Snapshot { host: Fresh(facts) | Unknown { why } }
//! ```
//!
//! A host that does not answer is `Unknown`, never absent. `plan` decides how to handle it.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, stream};
use kubeon_api::HostAddress;
use kubeon_plan::{Observation, ObservationFailure, Snapshot};
use kubeon_ports::ProbeHost;
use kubeon_wire::{Category, Facts};

/// The number of hosts that are read in parallel.
pub const HOSTS_AT_ONCE: usize = 256;

/// The upper limit for one host. The probe itself ends much earlier when a host shows no progress; this limit
/// holds for a host that sends something again and again and never completes its answer.
pub const HOST_TIMEOUT: Duration = Duration::from_secs(600);

/// Reads all hosts in parallel. Returns when every host has answered or reached its [`HOST_TIMEOUT`]. A host
/// that is given twice is read once. `now_seconds` (since 1970) becomes the snapshot's time.
///
/// It does not fail: a host that could not be read is in the snapshot with the reason.
pub async fn snapshot(
    probe: &dyn ProbeHost,
    hosts: impl IntoIterator<Item = HostAddress>,
    now_seconds: i64,
) -> Snapshot {
    let unique: BTreeSet<HostAddress> = hosts.into_iter().collect();
    let observed = stream::iter(unique)
        .map(|host| async move { (host, observe(probe, host).await) })
        .buffer_unordered(HOSTS_AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    Snapshot { taken_at: now_seconds, hosts: observed.into_iter().collect() }
}

async fn observe(probe: &dyn ProbeHost, host: HostAddress) -> Observation<Facts> {
    match tokio::time::timeout(HOST_TIMEOUT, probe.facts(host)).await {
        Ok(Ok(facts)) => Observation::Fresh(facts),
        Ok(Err(failure)) => {
            Observation::Unknown { failure: failure_kind(failure.category), why: failure.cause }
        }
        Err(_) => Observation::Unknown {
            why: format!("no answer within {} s", HOST_TIMEOUT.as_secs()),
            failure: ObservationFailure::NoAnswer,
        },
    }
}

fn failure_kind(category: Category) -> ObservationFailure {
    match category {
        Category::Denied => ObservationFailure::LoginRefused,
        Category::UnknownHostKey => ObservationFailure::UnknownHostKey,
        Category::HostKeyMismatch => ObservationFailure::HostKeyMismatch,
        _ => ObservationFailure::NoAnswer,
    }
}

#[cfg(test)]
mod tests;
