//! Fields of a built cluster that no operation can change yet. A change of them is denied by name.
//! [`DeclaredCluster::changes`] decides what counts as a change, because the operator uses it as well.

use std::collections::BTreeSet;

use kubeon_api::HostAddress;
use kubeon_api::kubernetes_cluster::{Changes, DeclaredCluster, NodeList};

use super::desired::Desired;
use crate::verdict::AdmissionVerdict;

pub(super) fn judge(
    desired: &Desired<'_>,
    built: &DeclaredCluster,
    changes: &Changes,
    verdict: &mut AdmissionVerdict,
) {
    for field in &changes.fields {
        match *field {
            "masterList" => masters(desired, built, verdict),
            "etcdList" => etcd(desired, built, verdict),
            // The schema checks them.
            "clusterType" | "deployMode" | "podCIDR" | "serviceCIDR" => {}
            // The rule for versions checks the first; the rule for hosts reports contradictions of the
            // second.
            "kubeVersion" => {}
            "loadBalancer" if desired.cluster.settings().is_err() => {}
            field => verdict.deny(desired.field(field), "cannot be changed yet in a cluster that is built"),
        }
    }
}

/// Contract B, case 24.
fn masters(desired: &Desired<'_>, built: &DeclaredCluster, verdict: &mut AdmissionVerdict) {
    let what = difference(&desired.cluster.master_list, &built.master_list);
    verdict.deny(
        desired.field("masterList"),
        format!("masters cannot be added or removed yet, and scaling changes nodeList only; {what}"),
    );
}

/// Contract B, case 24.
fn etcd(desired: &Desired<'_>, built: &DeclaredCluster, verdict: &mut AdmissionVerdict) {
    let what = difference(desired.cluster.etcd(), built.etcd());
    verdict.deny(
        desired.field("etcdList"),
        format!("members of etcd cannot be added or removed yet, and scaling changes nodeList only; {what}"),
    );
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
