//! The address of a host in the network of the cluster: the declared one, the login address if the host owns it, or the
//! only other address of the host.
//!
//! ```text
//!   10.0.0.7 is its own address            ──► 10.0.0.7
//!   203.0.113.7 is that of a router (NAT)  ──► eth0 10.0.0.7 if that is its only link, else a person chooses
//! ```

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use kubeon_api::HostAddress;
use kubeon_wire::Facts;

use crate::input::{HostSpec, Intent, Observation, Snapshot};

/// Prefixes of the names of links that do not lead to other hosts: loopback, pods, containers, virtual machines, tunnels.
const INNER_LINKS: [&str; 11] =
    ["lo", "cni", "flannel", "docker", "br-", "virbr", "veth", "cali", "vxlan", "tun", "kube-"];

/// The own addresses of a host that may lead to other hosts, in the order of its links.
pub(crate) fn candidates(facts: &Facts) -> Vec<Ipv4Addr> {
    let outer = |name: &str| !INNER_LINKS.iter().any(|inner| name.starts_with(inner));
    let links = facts.links.iter().filter(|link| outer(&link.name));
    let addresses = links.map(|link| link.address);
    let mut candidates: Vec<Ipv4Addr> =
        addresses.filter(|address| !address.is_link_local() && !address.is_loopback()).collect();
    candidates.dedup();
    candidates
}

/// Whether the host has the address; true if its addresses are not known.
pub(crate) fn owns(facts: &Facts, address: HostAddress) -> bool {
    facts.addresses.is_empty() || facts.addresses.contains(&address.ip())
}

/// The cluster address of a host that does not own its login address, if there is only one choice.
fn detect(spec: &HostSpec, facts: &Facts) -> Option<HostAddress> {
    if spec.internal_address.is_some() || owns(facts, spec.address) {
        return None;
    }
    match candidates(facts).as_slice() {
        [only] => Some(HostAddress::from(*only)),
        _ => None,
    }
}

impl Intent {
    /// The cluster addresses, by login address, of hosts that do not own their login address and have one other address.
    #[must_use]
    pub fn detect_internal_addresses(&self, snapshot: &Snapshot) -> BTreeMap<HostAddress, HostAddress> {
        let facts = |host: &HostSpec| snapshot.hosts.get(&host.address).and_then(Observation::fresh);
        let detected = self.spec.hosts().filter_map(|host| Some((host.address, detect(host, facts(host)?)?)));
        detected.collect()
    }

    /// Sets the cluster addresses of hosts, by login address.
    pub fn set_internal_addresses(&mut self, addresses: &BTreeMap<HostAddress, HostAddress>) {
        let spec = &mut self.spec.0;
        let hosts = spec.masters.iter_mut().chain(&mut spec.workers).chain(&mut spec.etcd_hosts);
        for host in hosts {
            host.internal_address = host.internal_address.or_else(|| addresses.get(&host.address).copied());
        }
    }
}

#[cfg(test)]
mod tests {
    use kubeon_wire::LinkFact;

    use super::*;
    use crate::sim::bare;

    fn facts(links: &[(&str, &str)]) -> Facts {
        let link = |(name, address): &(&str, &str)| LinkFact {
            address: address.parse().unwrap(),
            name: (*name).to_owned(),
            mtu: 1500,
        };
        let links: Vec<LinkFact> = links.iter().map(link).collect();
        Facts { addresses: links.iter().map(|link| link.address).collect(), links, ..bare("h1") }
    }

    fn detected(links: &[(&str, &str)]) -> Option<String> {
        let spec = HostSpec::at("203.0.113.7".parse().unwrap());
        detect(&spec, &facts(links)).map(|address| address.to_string())
    }

    #[test]
    fn a_host_that_owns_its_login_address_is_reached_there() {
        assert_eq!(detected(&[("eth0", "203.0.113.7"), ("eth1", "10.0.0.7")]), None);
    }

    #[test]
    fn the_only_other_address_is_the_cluster_address() {
        let links =
            [("lo", "127.0.0.1"), ("docker0", "172.17.0.1"), ("eth0", "10.0.0.7"), ("eth1", "169.254.3.4")];
        assert_eq!(detected(&links).as_deref(), Some("10.0.0.7"));
    }

    #[test]
    fn a_person_chooses_between_several_addresses() {
        assert_eq!(detected(&[("eth0", "10.0.0.7"), ("eth1", "10.1.0.7")]), None);
    }
}
