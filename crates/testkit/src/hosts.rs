//! Hosts as a look at them would show, in words.

use std::collections::BTreeMap;

use kubeon_api::{HostAddress, HostRole};
use kubeon_plan::{Seen, Snapshot};
use kubeon_wire::{Cgroup, Claim, Facts};

use crate::text::sha256_like;

/// When tests happen: seconds since 1970.
pub const NOW: i64 = 1_800_000_000;

/// Parses an address that a test wrote.
#[must_use]
pub fn address(text: &str) -> HostAddress {
    text.parse().unwrap()
}

/// A host at the address: a bare, capable Linux machine, named after its last byte (`h11` for `….11`)
/// until told otherwise.
#[must_use]
pub fn host(at: &str) -> HostBuilder {
    let address = address(at);
    let name = format!("h{}", address.ip().octets()[3]);
    HostBuilder { address, facts: capable(address, name), unknown: None }
}

/// Describes one host.
#[derive(Debug, Clone)]
pub struct HostBuilder {
    pub(crate) address: HostAddress,
    pub(crate) facts: Facts,
    pub(crate) unknown: Option<String>,
}

impl HostBuilder {
    /// Nothing of any cluster is on it. The default, said aloud.
    #[must_use]
    pub fn bare(self) -> Self {
        self
    }

    /// Its own name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        self.with(|facts| name.clone_into(&mut facts.hostname))
    }

    /// Nobody answers there.
    #[must_use]
    pub fn unreachable(mut self) -> Self {
        self.unknown = Some(format!("{}: no route to host", self.address));
        self
    }

    /// Another cluster, of the given name, holds it.
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

    /// It does not have the program.
    #[must_use]
    pub fn lacking(self, program: &str) -> Self {
        self.with(|facts| {
            facts.programs.insert(program.to_owned(), false);
        })
    }

    /// Anything else about it.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Facts)) -> Self {
        change(&mut self.facts);
        self
    }

    /// As it stands in a snapshot.
    #[must_use]
    pub fn seen(self) -> (HostAddress, Seen<Facts>) {
        let seen = match self.unknown {
            Some(why) => Seen::Unknown { why, denied: false },
            None => Seen::Fresh(self.facts),
        };
        (self.address, seen)
    }
}

/// A snapshot of the hosts, taken at [`NOW`].
#[must_use]
pub fn snapshot(hosts: impl IntoIterator<Item = HostBuilder>) -> Snapshot {
    Snapshot { taken_at: NOW, hosts: hosts.into_iter().map(HostBuilder::seen).collect::<BTreeMap<_, _>>() }
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
