//! Fields of a built cluster that no operation can change yet, and changes of masters and of the hosts of etcd that none can make.
//! They are denied by name.
//! [`DeclaredCluster::changes`] decides what counts as a change, because the operator uses it as well.

use std::collections::BTreeSet;

use kubeon_api::kubernetes_cluster::{Changes, DeclaredCluster, NodeList, fixed_because};
use kubeon_api::{HostAddress, Operation, is_majority};

use super::desired::Desired;
use super::hosts::place;
use crate::verdict::AdmissionVerdict;

pub(super) fn judge(
    desired: &Desired<'_>,
    declared: &DeclaredCluster,
    built: &DeclaredCluster,
    changes: &Changes,
    verdict: &mut AdmissionVerdict,
) {
    for field in &changes.fields {
        match *field {
            "masterList" => masters(desired, declared, built, verdict),
            "etcdList" if desired.cluster.etcd_is_on_masters() && !built.etcd_has_own_hosts() => {}
            "etcdList" => etcd(desired, declared, built, verdict),
            // The schema checks them.
            "clusterType" | "deployMode" | "podCIDR" | "serviceCIDR" => {}
            // The rule for versions checks it.
            "kubeVersion" => {}
            field => {
                let why = fixed_because(field).unwrap_or("no operation changes it yet");
                let reason = format!("cannot be changed in a cluster that is built: {why}");
                verdict.deny(desired.field(field), reason);
            }
        }
    }
}

/// Contract B, case 24: a request to scale changes workers only. Without one, masters may be added and removed, but one of
/// them stays, and most of the members of etcd do.
fn masters(
    desired: &Desired<'_>,
    declared: &DeclaredCluster,
    built: &DeclaredCluster,
    verdict: &mut AdmissionVerdict,
) {
    let field = desired.field("masterList");
    // A retry of a change of masters requests the word alone.
    let changes = ips(&desired.cluster.master_list) != ips(&declared.master_list);
    if let Some(word @ (Operation::ScalingUp | Operation::ScalingDown)) = desired.word.filter(|_| changes) {
        let what = difference(&desired.cluster.master_list, &built.master_list);
        let reason = format!("{word} changes nodeList only; change masters without the annotation; {what}");
        return verdict.deny(field, reason);
    }
    let (now, before) = (ips(&desired.cluster.master_list), ips(&built.master_list));
    if let Some(reason) = too_few_stay(&now, &before, "master") {
        verdict.deny(field, reason);
    }
    for address in now.intersection(&ips(&built.node_list)).copied() {
        verdict.deny(
            place(desired, address) + ".ip",
            format!("{address} is a worker of the cluster; remove it first, then add it as a master"),
        );
    }
}

/// Contract B, case 24. Hosts of etcd that run nothing else change by the rules of masters.
fn etcd(
    desired: &Desired<'_>,
    declared: &DeclaredCluster,
    built: &DeclaredCluster,
    verdict: &mut AdmissionVerdict,
) {
    let field = desired.field("etcdList");
    let what = difference(desired.cluster.etcd(), built.etcd());
    if !desired.cluster.etcd_has_own_hosts() || !built.etcd_has_own_hosts() {
        let reason = format!("etcd cannot move between the masters and hosts of its own; {what}");
        return verdict.deny(field, reason);
    }
    let changes = ips(&desired.cluster.etcd_list) != ips(&declared.etcd_list);
    if let Some(word @ (Operation::ScalingUp | Operation::ScalingDown)) = desired.word.filter(|_| changes) {
        let reason = format!("{word} changes nodeList only; change etcdList without the annotation; {what}");
        return verdict.deny(field, reason);
    }
    let (now, before) = (ips(&desired.cluster.etcd_list), ips(&built.etcd_list));
    if let Some(reason) = too_few_stay(&now, &before, "host of etcd") {
        verdict.deny(field, reason);
    }
    let nodes = &ips(&built.master_list) | &ips(&built.node_list);
    for address in now.intersection(&nodes).copied() {
        verdict.deny(
            place(desired, address) + ".ip",
            format!("{address} is a node of the cluster; remove it first, then add it as a host of etcd"),
        );
    }
}

/// Why these hosts cannot leave; `None` if they can. One stays, and most of the members of etcd do.
fn too_few_stay(now: &BTreeSet<HostAddress>, before: &BTreeSet<HostAddress>, kind: &str) -> Option<String> {
    let (removed, added) = (before.difference(now).count(), now.difference(before).count());
    if removed == before.len() {
        return Some(format!("would keep no {kind}; one {kind} of the cluster must stay"));
    }
    let kinds = kind.replacen("master", "masters", 1).replacen("host", "hosts", 1);
    let text =
        || format!("{removed} of {} {kinds} would leave at once, a majority; remove fewer", before.len());
    is_majority(removed, before.len() + added).then(text)
}

/// The added and removed hosts, as text.
fn difference(now: &NodeList, before: &NodeList) -> String {
    let (now, before) = (ips(now), ips(before));
    let listed = |addresses: Vec<&HostAddress>, what: &str| {
        let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        (!texts.is_empty()).then(|| format!("{what}: {}", texts.join(", ")))
    };
    let added = listed(now.difference(&before).collect(), "new");
    let removed = listed(before.difference(&now).collect(), "missing");
    let both: Vec<String> = [added, removed].into_iter().flatten().collect();
    both.join("; ")
}

pub(super) fn ips(list: &NodeList) -> BTreeSet<HostAddress> {
    list.iter().map(|node| node.ip).collect()
}
