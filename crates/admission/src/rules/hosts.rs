//! Hosts: the lists must agree, the networks must not contain hosts, and an address must belong to one
//! cluster.

use kubeon_api::kubernetes_cluster::{DeclaredCluster, Host, HostConflict, NodeList};
use kubeon_api::{Cidr, HostAddress};

use super::desired::{Desired, Existing};
use crate::lookup::Lookup;
use crate::verdict::AdmissionVerdict;

pub(super) fn judge(desired: &Desired<'_>, existing: Option<&Existing>, verdict: &mut AdmissionVerdict) {
    even_etcd(desired, existing, verdict);
    let hosts = match desired.cluster.hosts() {
        Ok(hosts) => hosts,
        Err(error) => {
            let list = match &error {
                HostConflict::Differs { second, .. } => second,
                HostConflict::TwoRoles(_) => "nodeList",
            };
            return verdict.deny(desired.field(list), error.to_string());
        }
    };
    match desired.cluster.settings() {
        Ok(settings) => {
            for (field, network) in [("podCIDR", settings.pod_cidr), ("serviceCIDR", settings.service_cidr)] {
                if let Some(host) = hosts.iter().find(|host| contains(network, host)) {
                    verdict.deny(desired.field(field), format!("{network} contains the host {}", host.ip));
                }
            }
        }
        Err(error) => verdict.deny(desired.field("loadBalancer"), error.to_string()),
    }
    names(desired, &hosts, verdict);
    internal_addresses(desired, &hosts, verdict);
}

/// A cluster is made with an odd number of members of etcd. A built one may have an even number between two changes: three
/// members become one by two changes, because most of them must stay in each.
fn even_etcd(desired: &Desired<'_>, existing: Option<&Existing>, verdict: &mut AdmissionVerdict) {
    let is_built = existing.is_some_and(|existing| existing.built.is_some());
    let members = desired.cluster.etcd_list.len();
    if !is_built && members > 0 && members.is_multiple_of(2) {
        verdict.deny(desired.field("etcdList"), "etcd needs an odd number of hosts: 1, 3, 5, 7 or 9");
    }
}

/// Whether a network contains the login address or the cluster address of a host.
fn contains(network: Cidr, host: &Host) -> bool {
    let addresses = std::iter::once(host.ip).chain(host.internal_address);
    addresses.into_iter().any(|address| network.net().contains(&address.ip()))
}

/// No two hosts have the same address in the cluster's network.
fn internal_addresses(desired: &Desired<'_>, hosts: &[Host], verdict: &mut AdmissionVerdict) {
    let mut first = std::collections::BTreeMap::new();
    for host in hosts {
        let address = host.internal_address.unwrap_or(host.ip);
        if let Some(other) = first.insert(address, host.ip) {
            let field = place(desired, host.ip) + ".internalAddress";
            verdict.deny(field, format!("{address} is the address of {other} already"));
        }
    }
}

fn names(desired: &Desired<'_>, hosts: &[Host], verdict: &mut AdmissionVerdict) {
    let mut first = std::collections::BTreeMap::new();
    for host in hosts {
        let Some(name) = &host.name else { continue };
        if let Some(other) = first.insert(name, host.ip) {
            verdict.deny(place(desired, host.ip) + ".name", format!("{name} is the name of {other} already"));
        }
    }
}

/// An address belongs to one cluster. The addresses of the existing object are not checked again.
pub(super) fn judge_addresses(
    desired: &Desired<'_>,
    existing: Option<&Existing>,
    lookup: &dyn Lookup,
    verdict: &mut AdmissionVerdict,
) {
    let had = existing.map(|existing| addresses(&existing.declared)).unwrap_or_default();
    for address in addresses(desired.cluster).into_iter().filter(|address| !had.contains(address)) {
        match lookup.holder(address, &desired.name) {
            Ok(None) => {}
            Ok(Some(holder)) => {
                // The names of clusters in another namespace are not for this user.
                let owner = if holder.namespace == desired.name.namespace {
                    format!("KubernetesCluster {holder}")
                } else {
                    "a cluster in another namespace".to_owned()
                };
                verdict.deny(
                    place(desired, address) + ".ip",
                    format!("{address} belongs to {owner}; a host has one cluster"),
                );
            }
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

/// The path of a host: `spec.cluster.nodeList[3]`. Repeated entries are not counted.
pub(super) fn place(desired: &Desired<'_>, address: HostAddress) -> String {
    let found = lists(desired.cluster)
        .into_iter()
        .find_map(|(list, nodes)| Some((list, nodes.iter().position(|node| node.ip == address)?)));
    found.map_or_else(|| desired.root.to_owned(), |(list, index)| desired.field(&format!("{list}[{index}]")))
}
