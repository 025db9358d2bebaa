//! The spec of an operation: the applied spec with hosts that are declared.

use kubeon_api::kubernetes_cluster::{DeclaredCluster, DeclaredNode, NodeList};
use kubeon_api::{KubernetesCluster, KubernetesClusterSpec};

use super::applied::{Difference, with_current_logins, without_secrets};

/// The applied spec with the hosts that are added (`up`), or without those that are removed. With new masters, or new hosts of
/// etcd, those that are no longer declared leave at once.
pub(super) fn scaled(
    object: &KubernetesCluster,
    before: &DeclaredCluster,
    difference: &Difference,
    up: bool,
) -> KubernetesClusterSpec {
    let declared = &object.spec.cluster;
    let mut spec = if up { with_all_workers(object, before) } else { with_declared_workers(object, before) };
    let with_masters = difference.masters.changes_at_once(up);
    if with_masters {
        spec.cluster.master_list = kept_and_new(&spec.cluster.master_list, &declared.master_list);
    }
    if !declared.etcd_has_own_hosts() {
        if with_masters {
            spec.cluster.etcd_list = declared.etcd_list.clone();
        }
    } else if difference.etcd.changes_at_once(up) {
        spec.cluster.etcd_list = kept_and_new(&spec.cluster.etcd_list, &declared.etcd_list);
    }
    spec
}

/// The applied spec with the declared workers.
pub(super) fn with_declared_workers(
    object: &KubernetesCluster,
    before: &DeclaredCluster,
) -> KubernetesClusterSpec {
    let mut spec = without_secrets(&object.spec);
    let node_list = spec.cluster.node_list.clone();
    spec.cluster = DeclaredCluster { node_list, ..with_current_logins(before, &spec.cluster) };
    spec
}

/// The applied spec with the applied and the declared workers.
fn with_all_workers(object: &KubernetesCluster, before: &DeclaredCluster) -> KubernetesClusterSpec {
    let mut spec = without_secrets(&object.spec);
    let applied = with_current_logins(before, &spec.cluster);
    let new = spec.cluster.node_list.iter().filter(|node| !is_in(&applied.node_list, node));
    let node_list = with_new(&applied.node_list, new);
    spec.cluster = DeclaredCluster { node_list, ..applied };
    spec
}

/// The applied spec with the applied and the declared hosts.
pub(super) fn with_all_hosts(object: &KubernetesCluster, before: &DeclaredCluster) -> KubernetesClusterSpec {
    let mut spec = with_all_workers(object, before);
    let lists = [&spec.cluster.master_list, &spec.cluster.node_list, &spec.cluster.etcd_list];
    let is_new = |node: &&DeclaredNode| !lists.iter().any(|list| is_in(list, node));
    let declared = &object.spec.cluster;
    let master_list = with_new(&spec.cluster.master_list, declared.master_list.iter().filter(is_new));
    let added_etcd =
        |node: &&DeclaredNode| before.etcd_has_own_hosts() && is_new(node) && !is_in(&master_list, node);
    let etcd_list = with_new(&spec.cluster.etcd_list, declared.etcd_list.iter().filter(added_etcd));
    (spec.cluster.master_list, spec.cluster.etcd_list) = (master_list, etcd_list);
    spec
}

/// The applied hosts that are still declared, then the new ones.
fn kept_and_new(applied: &NodeList, declared: &NodeList) -> NodeList {
    let kept = applied.iter().filter(|node| is_in(declared, node));
    let new = declared.iter().filter(|node| !is_in(applied, node));
    let nodes: Vec<DeclaredNode> = kept.chain(new).cloned().collect();
    NodeList::try_from(nodes).unwrap_or_else(|_| declared.clone())
}

fn with_new<'a>(applied: &'a NodeList, new: impl Iterator<Item = &'a DeclaredNode>) -> NodeList {
    let nodes: Vec<DeclaredNode> = applied.iter().chain(new).cloned().collect();
    NodeList::try_from(nodes).unwrap_or_else(|_| applied.clone())
}

fn is_in(list: &NodeList, node: &DeclaredNode) -> bool {
    list.iter().any(|other| other.ip == node.ip)
}
