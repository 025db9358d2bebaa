//! What no operation changes yet in a cluster that is built. A change that nothing would follow is refused by name.

use std::collections::BTreeSet;

use kubeon_api::HostAddress;
use kubeon_api::kubernetes_cluster::{DeclaredCluster, NodeList, Settings};

use super::Wanted;
use crate::verdict::Verdict;

pub(super) fn judge(wanted: &Wanted<'_>, built: &DeclaredCluster, verdict: &mut Verdict) {
    members(wanted, built, verdict);
    // Settings that do not fit together were told before.
    let (Ok(now), Ok(before)) = (wanted.cluster.settings(), built.settings()) else { return };
    for (field, differs) in differences(&now, &before) {
        if differs {
            verdict.deny(wanted.field(field), "cannot be changed yet in a cluster that is built");
        }
    }
}

/// Contract B, case 24.
fn members(wanted: &Wanted<'_>, built: &DeclaredCluster, verdict: &mut Verdict) {
    if let Some(what) = difference(&wanted.cluster.master_list, &built.master_list) {
        verdict.deny(
            wanted.field("masterList"),
            format!("masters cannot be added or removed yet, and scaling changes nodeList only; {what}"),
        );
    }
    let etcd = |cluster: &DeclaredCluster| {
        if cluster.etcd_list.is_empty() { cluster.master_list.clone() } else { cluster.etcd_list.clone() }
    };
    let follows = wanted.cluster.etcd_list.is_empty() && built.etcd_list.is_empty();
    if let Some(what) = difference(&etcd(wanted.cluster), &etcd(built)).filter(|_| !follows) {
        verdict.deny(
            wanted.field("etcdList"),
            format!(
                "members of etcd cannot be added or removed yet, and scaling changes nodeList only; {what}"
            ),
        );
    }
}

/// What was added and removed, in words.
fn difference(now: &NodeList, before: &NodeList) -> Option<String> {
    let (now, before) = (ips(now), ips(before));
    let listed = |addresses: Vec<&HostAddress>, what: &str| {
        let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        (!texts.is_empty()).then(|| format!("{what}: {}", texts.join(", ")))
    };
    let added = listed(now.difference(&before).collect(), "new");
    let removed = listed(before.difference(&now).collect(), "missing");
    let both: Vec<String> = [added, removed].into_iter().flatten().collect();
    (!both.is_empty()).then(|| both.join("; "))
}

pub(super) fn ips(list: &NodeList) -> BTreeSet<HostAddress> {
    list.iter().map(|node| node.ip).collect()
}

fn differences(now: &Settings, before: &Settings) -> [(&'static str, bool); 12] {
    let (net, old) = (&now.network, &before.network);
    [
        ("imagesRegistry", now.images_registry != before.images_registry),
        ("apiServer.domain", now.api_domain != before.api_domain),
        ("apiServer.port", now.api_port != before.api_port),
        ("apiServer.certSANs", now.cert_sans != before.cert_sans),
        ("loadBalancer", now.reach != before.reach),
        ("network.cni", net.cni != old.cni),
        ("network.proxyMode", net.proxy_mode != old.proxy_mode),
        ("network.dnsDomain", net.dns_domain != old.dns_domain),
        ("network.nodeMaskSize", net.node_mask_size != old.node_mask_size),
        ("network.maxPods", net.max_pods != old.max_pods),
        ("network.nodePortRange", net.node_port_range != old.node_port_range),
        ("certificates.caYears", now.ca_years != before.ca_years),
    ]
}
