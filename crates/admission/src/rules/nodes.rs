//! Workers of a cluster that is built: they come and go, but not all, and not those that hold data.

use std::collections::BTreeMap;

use kubeon_api::kubernetes_cluster::{DeclaredCluster, DeclaredNode};

use super::Wanted;
use super::fixed::ips;
use crate::verdict::Verdict;

pub(super) fn judge(wanted: &Wanted<'_>, built: &DeclaredCluster, verdict: &mut Verdict) {
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
    let were: BTreeMap<_, _> = built.node_list.iter().map(|node| (node.ip, node)).collect();
    for (index, node) in wanted.cluster.node_list.iter().enumerate() {
        if let Some(was) = were.get(&node.ip) {
            same(&wanted.field(&format!("nodeList[{index}]")), node, was, verdict);
        }
    }
}

/// How a host is logged in to may change; what it is called as a node may not, nor its labels yet.
fn same(place: &str, node: &DeclaredNode, was: &DeclaredNode, verdict: &mut Verdict) {
    if node.name != was.name {
        verdict.deny(
            format!("{place}.name"),
            "cannot be changed; remove the node, then add it under its new name",
        );
    }
    if node.labels != was.labels {
        verdict.deny(
            format!("{place}.labels"),
            "cannot be changed yet on a node that exists; use kubectl label in the cluster itself",
        );
    }
}
