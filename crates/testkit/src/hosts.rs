//! Builders of observed hosts.

use std::collections::BTreeMap;

use kubeon_api::{HostAddress, HostRole};
use kubeon_plan::{Observation, ObservationFailure, Snapshot};
use kubeon_wire::{Cgroup, Claim, Facts};

use crate::text::sha256_like;

/// The time of the tests, in seconds since 1970.
pub const NOW: i64 = 1_800_000_000;

/// Parses an address that a test wrote.
#[must_use]
pub fn address(text: &str) -> HostAddress {
    text.parse().unwrap()
}

/// A host with the address: a bare Linux machine that passes all checks. By default it is named after the
/// last byte of the address (`h11` for `….11`).
#[must_use]
pub fn host(at: &str) -> HostBuilder {
    let address = address(at);
    let name = format!("h{}", address.ip().octets()[3]);
    HostBuilder { address, facts: capable(address, name), unknown: None }
}

/// Builds one host.
#[derive(Debug, Clone)]
pub struct HostBuilder {
    pub(crate) address: HostAddress,
    pub(crate) facts: Facts,
    pub(crate) unknown: Option<String>,
}

impl HostBuilder {
    /// Without any cluster. This is the default; the method makes a test explicit.
    #[must_use]
    pub fn bare(self) -> Self {
        self
    }

    /// Sets its hostname.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        self.with(|facts| name.clone_into(&mut facts.hostname))
    }

    /// Makes the host unreachable.
    #[must_use]
    pub fn unreachable(mut self) -> Self {
        self.unknown = Some(format!("{}: no route to host", self.address));
        self
    }

    /// Makes the host belong to another cluster with this name.
    #[must_use]
    pub fn claimed_by(self, cluster: &str) -> Self {
        let claim = Claim {
            cluster: cluster.parse().unwrap(),
            uid: format!("uid-{cluster}"),
            generation: 1,
            version: "v1.36.3".parse().unwrap(),
            role: HostRole::Worker,
        };
        self.with(|facts| facts.claim = Some(claim))
    }

    /// Removes the program from the host.
    #[must_use]
    pub fn lacking(self, program: &str) -> Self {
        self.with(|facts| {
            facts.programs.insert(program.to_owned(), false);
        })
    }

    /// Changes the facts.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Facts)) -> Self {
        change(&mut self.facts);
        self
    }

    /// The entry of the host in a snapshot.
    #[must_use]
    pub fn observation(self) -> (HostAddress, Observation<Facts>) {
        let observation = match self.unknown {
            Some(why) => Observation::Unknown { why, failure: ObservationFailure::NoAnswer },
            None => Observation::Fresh(self.facts),
        };
        (self.address, observation)
    }
}

/// A snapshot of the hosts, taken at [`NOW`].
#[must_use]
pub fn snapshot(hosts: impl IntoIterator<Item = HostBuilder>) -> Snapshot {
    Snapshot {
        taken_at: NOW,
        hosts: hosts.into_iter().map(HostBuilder::observation).collect::<BTreeMap<_, _>>(),
    }
}

fn capable(address: HostAddress, hostname: String) -> Facts {
    Facts {
        system: "Linux".to_owned(),
        architecture: "x86_64".to_owned(),
        kernel: "6.1.0".to_owned(),
        os: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        machine_id: sha256_like(&hostname)[..32].to_owned(),
        hostname,
        cpus: 4,
        memory_bytes: 8 << 30,
        disk_free_bytes: 100 << 30,
        clock_seconds: NOW,
        cgroup: Cgroup::V2,
        can_sys_resource: true,
        can_set_conntrack: true,
        has_nftables: true,
        is_root: true,
        has_systemd: true,
        package_manager: Some("apt".to_owned()),
        addresses: vec![address.ip()],
        ..Facts::default()
    }
}
