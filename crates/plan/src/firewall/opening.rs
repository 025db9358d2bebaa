//! The ports that the hosts of a cluster use on each other.

use kubeon_api::{HostAddress, HostRole};
use kubeon_wire::{FORWARDING_PORT, Transport};

use crate::input::{DesiredCluster, HostSpec};

/// The port of the overlay network (VXLAN) of flannel.
const OVERLAY_PORT: u16 = 8472;
pub(crate) const API: u16 = 6443;
const ETCD: (u16, u16) = (2379, 2380);
const KUBELET: u16 = 10250;

/// The links of the pod network.
const POD_LINKS: [&str; 2] = ["cni0", "flannel.1"];

/// Ports of a host that other hosts of the cluster use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortOpening {
    pub(crate) transport: Transport,
    pub(crate) first: u16,
    pub(crate) last: u16,
    /// The cluster addresses of the hosts that connect to it.
    pub(crate) sources: Vec<HostAddress>,
}

/// The openings of a host for the other hosts, sorted. A host without others needs none.
pub(crate) fn openings(spec: &DesiredCluster, host: &HostSpec, role: &HostRole) -> Vec<PortOpening> {
    let is_other = |other: &&HostSpec| other.address != host.address;
    let all: Vec<_> = spec.nodes().filter(is_other).map(HostSpec::cluster_address).collect();
    let masters: Vec<_> = spec.masters.iter().filter(is_other).map(HostSpec::cluster_address).collect();
    let members = spec.etcd_hosts.iter().filter(is_other).map(HostSpec::cluster_address);
    let etcd_clients: Vec<_> = masters.iter().copied().chain(members).collect();
    let tcp = |first, last, sources: &Vec<HostAddress>| PortOpening {
        transport: Transport::Tcp,
        first,
        last,
        sources: sources.clone(),
    };
    let mut openings = Vec::new();
    if *role == spec.member_role() {
        openings.push(tcp(ETCD.0, ETCD.1, &etcd_clients));
    }
    if role.is_master() {
        openings.push(tcp(API, API, &all));
    }
    if role.runs_node() {
        openings.push(tcp(KUBELET, KUBELET, &masters));
    }
    if role.runs_node() && spec.runs_flannel() {
        openings.push(PortOpening { transport: Transport::Udp, ..tcp(OVERLAY_PORT, OVERLAY_PORT, &all) });
    }
    openings.retain(|opening| !opening.sources.is_empty());
    openings
}

/// The opening through which the other hosts get parts from this one; `None` if there are no others. Without it they get the parts
/// from the control machine, so a closed firewall is no failure of a check.
pub(crate) fn opening_for_parts(spec: &DesiredCluster, host: &HostSpec) -> Option<PortOpening> {
    let others = spec.hosts().filter(|other| other.address != host.address);
    let sources: Vec<_> = others.map(HostSpec::cluster_address).collect();
    let (first, last) = (FORWARDING_PORT, FORWARDING_PORT);
    (!sources.is_empty()).then_some(PortOpening { transport: Transport::Tcp, first, last, sources })
}

/// The TCP ports of a host that pods use: the API server on a master, and the kubelet. None on a host without pods, or if the
/// network of the pods is the owner's: their addresses and links are unknown.
pub(crate) fn ports_for_pods(spec: &DesiredCluster, role: &HostRole) -> &'static [u16] {
    match role {
        _ if !spec.runs_flannel() => &[],
        HostRole::Master => &[API, KUBELET],
        HostRole::Etcd => &[],
        _ => &[KUBELET],
    }
}

/// The links of the pod network on a host.
pub(crate) fn pod_links(spec: &DesiredCluster, role: &HostRole) -> &'static [&'static str] {
    if role.runs_node() && spec.runs_flannel() { &POD_LINKS } else { &[] }
}
