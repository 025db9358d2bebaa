//! Hosts: lists that agree, networks that do not hold them, addresses that nobody else uses.

use kubeon_api::HostAddress;
use kubeon_api::kubernetes_cluster::{DeclaredCluster, Host, HostConflict, NodeList};

use super::wanted::{Stood, Wanted};
use crate::lookup::Lookup;
use crate::verdict::AdmissionVerdict;

pub(super) fn judge(wanted: &Wanted<'_>, verdict: &mut AdmissionVerdict) {
    let hosts = match wanted.cluster.hosts() {
        Ok(hosts) => hosts,
        Err(error) => {
            let list = match &error {
                HostConflict::Differs { second, .. } => second,
                HostConflict::TwoRoles(_) => "nodeList",
            };
            return verdict.deny(wanted.field(list), error.to_string());
        }
    };
    match wanted.cluster.settings() {
        Ok(settings) => {
            for (field, network) in [("podCIDR", settings.pod_cidr), ("serviceCIDR", settings.service_cidr)] {
                if let Some(host) = hosts.iter().find(|host| network.net().contains(&host.ip.ip())) {
                    verdict.deny(wanted.field(field), format!("{network} contains the host {}", host.ip));
                }
            }
        }
        Err(error) => verdict.deny(wanted.field("loadBalancer"), error.to_string()),
    }
    names(wanted, &hosts, verdict);
}

fn names(wanted: &Wanted<'_>, hosts: &[Host], verdict: &mut AdmissionVerdict) {
    let mut first = std::collections::BTreeMap::new();
    for host in hosts {
        let Some(name) = &host.name else { continue };
        if let Some(other) = first.insert(name, host.ip) {
            verdict.deny(place(wanted, host.ip) + ".name", format!("{name} is the name of {other} already"));
        }
    }
}

/// An address belongs to one cluster. Addresses that this cluster had before are not asked about again.
pub(super) fn judge_addresses(
    wanted: &Wanted<'_>,
    stood: Option<&Stood>,
    lookup: &dyn Lookup,
    verdict: &mut AdmissionVerdict,
) {
    let had = stood.map(|stood| addresses(&stood.declared)).unwrap_or_default();
    for address in addresses(wanted.cluster).into_iter().filter(|address| !had.contains(address)) {
        match lookup.holder(address, &wanted.name) {
            Ok(None) => {}
            Ok(Some(holder)) => verdict.deny(
                place(wanted, address) + ".ip",
                format!("{address} belongs to KubernetesCluster {holder}; a host has one cluster"),
            ),
            Err(error) => return verdict.deny_with(503, "", error.to_string()),
        }
    }
}

fn lists(cluster: &DeclaredCluster) -> [(&'static str, &NodeList); 3] {
    [("masterList", &cluster.master_list), ("nodeList", &cluster.node_list), ("etcdList", &cluster.etcd_list)]
}

pub(super) fn addresses(cluster: &DeclaredCluster) -> std::collections::BTreeSet<HostAddress> {
    lists(cluster).into_iter().flat_map(|(_, list)| list.iter().map(|node| node.ip)).collect()
}

/// Where a host stands: `spec.cluster.nodeList[3]`. Entries that repeat another one are not counted.
pub(super) fn place(wanted: &Wanted<'_>, address: HostAddress) -> String {
    let found = lists(wanted.cluster)
        .into_iter()
        .find_map(|(list, nodes)| Some((list, nodes.iter().position(|node| node.ip == address)?)));
    found.map_or_else(|| wanted.root.to_owned(), |(list, index)| wanted.field(&format!("{list}[{index}]")))
}
