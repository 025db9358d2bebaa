//! Nodes of a built cluster: workers may be added and removed, but not the last one and not members of etcd. A host of etcd does
//! not become a node.
//! The other nodes keep their names. The login of a host may change.

use kubeon_api::kubernetes_cluster::{Changes, DeclaredCluster};

use super::desired::Desired;
use super::fixed::ips;
use super::hosts::place;
use crate::verdict::AdmissionVerdict;

pub(super) fn judge(
    desired: &Desired<'_>,
    built: &DeclaredCluster,
    changes: &Changes,
    verdict: &mut AdmissionVerdict,
) {
    let (now, before) = (ips(&desired.cluster.node_list), ips(&built.node_list));
    if now.is_empty() && !before.is_empty() {
        verdict.deny(
            desired.field("nodeList"),
            "would be empty; a cluster that has workers keeps at least one (delete the cluster to remove all)",
        );
    }
    let etcd = ips(&built.etcd_list);
    for address in before.difference(&now).filter(|address| etcd.contains(address)) {
        verdict
            .deny(desired.field("nodeList"), format!("{address} cannot be removed: it runs etcd (etcdList)"));
    }
    for address in now.intersection(&ips(&built.master_list)).copied() {
        verdict.deny(
            place(desired, address) + ".ip",
            format!("{address} is a master of the cluster; remove it first, then add it as a worker"),
        );
    }
    let nodes = &now | &ips(&desired.cluster.master_list);
    for address in nodes.intersection(&etcd).filter(|_| built.etcd_has_own_hosts()) {
        verdict.deny(
            place(desired, *address) + ".ip",
            format!("{address} is a host of etcd of the cluster; remove it first, then add it as a node"),
        );
    }
    for address in &changes.names {
        let reason = if now.contains(address) {
            "cannot be changed; remove the node, then add it under its new name"
        } else {
            "cannot be changed in a cluster that is built"
        };
        verdict.deny(place(desired, *address) + ".name", reason);
    }
    for address in &changes.internal_addresses {
        verdict.deny(
            place(desired, *address) + ".internalAddress",
            "cannot be changed in a cluster that is built",
        );
    }
}
