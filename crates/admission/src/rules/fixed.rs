//! What no operation changes yet in a cluster that is built. A change that nothing would follow is refused by name. What is a
//! change is said where the operator asks as well: [`DeclaredCluster::changes`].

use std::collections::BTreeSet;

use kubeon_api::HostAddress;
use kubeon_api::kubernetes_cluster::{Changes, DeclaredCluster, NodeList};

use super::wanted::Wanted;
use crate::verdict::AdmissionVerdict;

pub(super) fn judge(
    wanted: &Wanted<'_>,
    built: &DeclaredCluster,
    changes: &Changes,
    verdict: &mut AdmissionVerdict,
) {
    for field in &changes.fields {
        match *field {
            "masterList" => masters(wanted, built, verdict),
            "etcdList" => etcd(wanted, built, verdict),
            // The schema's.
            "clusterType" | "deployMode" | "podCIDR" | "serviceCIDR" => {}
            // Told by the rule for versions, and what does not fit together by that for hosts.
            "kubeVersion" => {}
            "loadBalancer" if wanted.cluster.settings().is_err() => {}
            field => verdict.deny(wanted.field(field), "cannot be changed yet in a cluster that is built"),
        }
    }
}

/// Contract B, case 24.
fn masters(wanted: &Wanted<'_>, built: &DeclaredCluster, verdict: &mut AdmissionVerdict) {
    let what = difference(&wanted.cluster.master_list, &built.master_list);
    verdict.deny(
        wanted.field("masterList"),
        format!("masters cannot be added or removed yet, and scaling changes nodeList only; {what}"),
    );
}

/// Contract B, case 24.
fn etcd(wanted: &Wanted<'_>, built: &DeclaredCluster, verdict: &mut AdmissionVerdict) {
    let what = difference(wanted.cluster.etcd(), built.etcd());
    verdict.deny(
        wanted.field("etcdList"),
        format!("members of etcd cannot be added or removed yet, and scaling changes nodeList only; {what}"),
    );
}

/// What was added and removed, in words.
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
