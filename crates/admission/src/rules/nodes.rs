//! Nodes of a cluster that is built: workers come and go, but not all, and not those that hold data; those that stay are
//! called what they are called. How a host is logged in to may change.

use kubeon_api::kubernetes_cluster::{Changes, DeclaredCluster};

use super::fixed::ips;
use super::hosts::place;
use super::wanted::Wanted;
use crate::verdict::AdmissionVerdict;

pub(super) fn judge(
    wanted: &Wanted<'_>,
    built: &DeclaredCluster,
    changes: &Changes,
    verdict: &mut AdmissionVerdict,
) {
    let (now, before) = (ips(&wanted.cluster.node_list), ips(&built.node_list));
    if now.is_empty() && !before.is_empty() {
        verdict.deny(
            wanted.field("nodeList"),
            "would be empty; a cluster that has workers keeps at least one (delete the cluster to remove all)",
        );
    }
    let etcd = ips(&built.etcd_list);
    for address in before.difference(&now).filter(|address| etcd.contains(address)) {
        verdict
            .deny(wanted.field("nodeList"), format!("{address} cannot be removed: it runs etcd (etcdList)"));
    }
    for address in &changes.names {
        let reason = if now.contains(address) {
            "cannot be changed; remove the node, then add it under its new name"
        } else {
            "cannot be changed in a cluster that is built"
        };
        verdict.deny(place(wanted, *address) + ".name", reason);
    }
    for address in &changes.labels {
        verdict.deny(
            place(wanted, *address) + ".labels",
            "cannot be changed yet on a node that exists; use kubectl label in the cluster itself",
        );
    }
}
