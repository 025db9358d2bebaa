//! Network cards and addresses of a virtual machine. Pure.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::{options::VmOptions, profile::VmProfile};
use crate::{LabName, subnet};

/// The switch's bridge that the machine is connected to.
const OUTER: &str = "br0";
/// The switch's bridge that only hosts are connected to.
pub(crate) const INNER: &str = "br1";

/// A network card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nic {
    /// Its port in the switch. Names of further cards begin with the host's name and a dot, so that the host's cables are
    /// found by its name.
    pub port: String,
    pub bridge: &'static str,
    pub mac: String,
    pub address: Ipv4Net,
    /// Router and name server. One card of a host has it.
    pub gateway: Option<Ipv4Addr>,
}

/// The cards of the n-th host. The first has the address that the host itself knows by its name.
pub(crate) fn nics(lab: &LabName, net: Ipv4Net, vm: &VmOptions, host: &str, n: u8) -> Vec<Nic> {
    let inner = subnet::inner(net);
    let octet = subnet::host(net, n).octets()[3];
    let nic = |port: String, bridge, mac, net: Ipv4Net, gateway: bool| Nic {
        port,
        bridge,
        mac,
        address: Ipv4Net::new(subnet::host(net, n), net.prefix_len()).unwrap_or(net),
        gateway: gateway.then(|| subnet::gateway(net)),
    };
    if vm.has(VmProfile::Nat) {
        return vec![nic(host.to_owned(), INNER, lab.mac(octet), inner, true)];
    }
    let mut nics = vec![nic(host.to_owned(), OUTER, lab.mac(octet), net, true)];
    if vm.has(VmProfile::TwoNics) {
        nics.push(nic(format!("{host}.2"), INNER, lab.second_mac(octet), inner, false));
    }
    nics
}

/// The second subnet of a lab, if its hosts have one.
pub(crate) fn inner_subnet(net: Ipv4Net, vm: &VmOptions) -> Option<Ipv4Net> {
    (vm.has(VmProfile::Nat) || vm.has(VmProfile::TwoNics)).then(|| subnet::inner(net))
}

/// The address of the n-th host for cluster traffic: the host owns it, and all other hosts reach it.
pub(crate) fn cluster_address(net: Ipv4Net, vm: &VmOptions, n: u8) -> Ipv4Addr {
    subnet::host(inner_subnet(net, vm).unwrap_or(net), n)
}

/// The addresses of the switch where hosts look for a name server.
pub(crate) fn gateways(net: Ipv4Net, vm: &VmOptions) -> Vec<Ipv4Addr> {
    let inner = vm.has(VmProfile::Nat).then(|| subnet::gateway(subnet::inner(net)));
    [subnet::gateway(net)].into_iter().chain(inner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VmOs;

    fn cards(profiles: &[VmProfile]) -> (Vec<Nic>, String) {
        let vm = VmOptions::new(VmOs::Debian12, profiles.iter().copied()).unwrap();
        let net = "172.30.7.0/24".parse().unwrap();
        (nics(&LabName::default(), net, &vm, "h2", 2), cluster_address(net, &vm, 2).to_string())
    }

    #[test]
    fn a_plain_host_has_the_address_of_a_host_in_namespaces() {
        let (nics, cluster) = cards(&[VmProfile::Resolved]);
        assert_eq!(nics.len(), 1);
        assert_eq!((nics[0].port.as_str(), nics[0].bridge), ("h2", "br0"));
        assert_eq!(nics[0].address.to_string(), "172.30.7.12/24");
        assert_eq!(nics[0].gateway.unwrap().to_string(), "172.30.7.1");
        assert_eq!(nics[0].mac, LabName::default().mac(12));
        assert_eq!(cluster, "172.30.7.12");
    }

    #[test]
    fn the_second_card_is_on_a_subnet_without_a_router() {
        let (nics, cluster) = cards(&[VmProfile::TwoNics]);
        assert_eq!((nics[1].port.as_str(), nics[1].bridge), ("h2.2", "br1"));
        assert_eq!((nics[1].address.to_string().as_str(), nics[1].gateway), ("172.27.7.12/24", None));
        assert_ne!(nics[0].mac, nics[1].mac);
        assert_eq!(cluster, "172.27.7.12");
    }

    #[test]
    fn behind_nat_a_host_does_not_own_its_login_address() {
        let (nics, cluster) = cards(&[VmProfile::Nat]);
        assert_eq!(nics.len(), 1);
        assert_eq!((nics[0].address.to_string().as_str(), nics[0].bridge), ("172.27.7.12/24", "br1"));
        assert_eq!(cluster, "172.27.7.12");
    }
}
