//! The ports that the hosts of a cluster use on each other.

use kubeon_api::HostAddress;
use kubeon_wire::Transport;

use crate::input::{DesiredCluster, HostSpec};

/// The port of the overlay network (VXLAN) of flannel.
const OVERLAY_PORT: u16 = 8472;
pub(crate) const API: u16 = 6443;
const ETCD: (u16, u16) = (2379, 2380);
const KUBELET: u16 = 10250;

/// The links of the pod network.
pub(crate) const POD_LINKS: [&str; 2] = ["cni0", "flannel.1"];

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
pub(crate) fn openings(spec: &DesiredCluster, host: &HostSpec, is_master: bool) -> Vec<PortOpening> {
    let is_other = |other: &&HostSpec| other.address != host.address;
    let all: Vec<_> = spec.hosts().filter(is_other).map(HostSpec::cluster_address).collect();
    let masters: Vec<_> = spec.masters.iter().filter(is_other).map(HostSpec::cluster_address).collect();
    let tcp = |first, last, sources: &Vec<HostAddress>| PortOpening {
        transport: Transport::Tcp,
        first,
        last,
        sources: sources.clone(),
    };
    let mut openings = Vec::new();
    if is_master {
        openings.push(tcp(ETCD.0, ETCD.1, &masters));
        openings.push(tcp(API, API, &all));
    }
    openings.push(tcp(KUBELET, KUBELET, &masters));
    openings.push(PortOpening { transport: Transport::Udp, ..tcp(OVERLAY_PORT, OVERLAY_PORT, &all) });
    openings.retain(|opening| !opening.sources.is_empty());
    openings
}

/// The TCP ports of a host that pods use: the API server on a master, and the kubelet.
pub(crate) fn ports_for_pods(is_master: bool) -> &'static [u16] {
    if is_master { &[API, KUBELET] } else { &[KUBELET] }
}
