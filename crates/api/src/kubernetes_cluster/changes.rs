//! The changes that a declaration makes to an existing cluster. Another order, an older spelling of a field, and a default
//! that is written out are not changes.
//!
//! Admission and the operator both use this comparison, so that the operator can apply every change that was admitted.

use std::collections::BTreeSet;

use super::changeable::fixed_because;
use super::nodes::{DeclaredNode, NodeList};
use super::spec::DeclaredCluster;
use crate::names::{HostAddress, Version};

/// Changes of a cluster. Added and removed workers and changed logins are not included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Changed lists, version and settings that cannot change in a cluster that exists, under `spec.cluster`, such as
    /// `network.cni`.
    pub fields: Vec<&'static str>,
    /// Changed settings that can change, such as `extraArgs`.
    pub settings: Vec<&'static str>,
    /// Hosts with another node name.
    pub names: Vec<HostAddress>,
    /// Hosts with another internal address.
    pub internal_addresses: Vec<HostAddress>,
    /// Hosts with other node labels.
    pub labels: Vec<HostAddress>,
    /// Hosts with other taints.
    pub taints: Vec<HostAddress>,
}

impl DeclaredCluster {
    /// The changes to a cluster that was built as `built`. `running` is the version of its masters, if it is known.
    #[must_use]
    pub fn changes(&self, built: &Self, running: Option<Version>) -> Changes {
        let mut fields = fields(self, built, running);
        let (fixed, settings): (Vec<_>, Vec<_>) =
            settings(self, built).into_iter().partition(|field| fixed_because(field).is_some());
        fields.extend(fixed);
        let mut changes = Changes { fields, settings, ..Changes::default() };
        let before = built.by_address();
        for (ip, node) in self.by_address() {
            let Some(previous) = before.get(&ip) else { continue };
            if node.name != previous.name {
                changes.names.push(ip);
            }
            let internal = |node: &DeclaredNode| node.internal_address.unwrap_or(ip);
            if internal(&node) != internal(previous) {
                changes.internal_addresses.push(ip);
            }
            if node.labels != previous.labels {
                changes.labels.push(ip);
            }
            if node.taints != previous.taints {
                changes.taints.push(ip);
            }
        }
        changes
    }
}

impl DeclaredCluster {
    /// Whether etcd runs on the masters, and on no other host.
    #[must_use]
    pub fn etcd_is_on_masters(&self) -> bool {
        addresses(self.etcd()) == addresses(&self.master_list)
    }

    /// Whether etcd runs on hosts that run nothing else.
    #[must_use]
    pub fn etcd_has_own_hosts(&self) -> bool {
        let nodes = self.master_list.iter().chain(self.node_list.iter());
        let nodes: BTreeSet<HostAddress> = nodes.map(|node| node.ip).collect();
        !self.etcd_list.is_empty() && self.etcd_list.iter().all(|host| !nodes.contains(&host.ip))
    }
}

fn fields(now: &DeclaredCluster, built: &DeclaredCluster, running: Option<Version>) -> Vec<&'static str> {
    // When neither has an etcdList, etcd runs on the masters: report only the change of masterList.
    let etcd_on_masters = now.etcd_list.is_empty() && built.etcd_list.is_empty();
    let lists = [
        ("kubeVersion", !same_version(now.kube_version, built.kube_version, running)),
        ("masterList", addresses(&now.master_list) != addresses(&built.master_list)),
        ("etcdList", !etcd_on_masters && addresses(now.etcd()) != addresses(built.etcd())),
    ];
    lists.into_iter().filter(|(_, differs)| *differs).map(|(field, _)| field).collect()
}

/// Writing out the running version where no version was declared is not a change.
fn same_version(now: Option<Version>, built: Option<Version>, running: Option<Version>) -> bool {
    now == built || (built.is_none() && now.is_some() && now == running)
}

fn addresses(list: &NodeList) -> BTreeSet<HostAddress> {
    list.iter().map(|node| node.ip).collect()
}

/// The changed settings. The region and the timeout are not settings of the cluster.
fn settings(now: &DeclaredCluster, built: &DeclaredCluster) -> Vec<&'static str> {
    match (now.settings(), built.settings()) {
        (Ok(now), Ok(built)) => now.differences(&built),
        // Only the fields of the load balancer can contradict each other.
        _ => {
            let declared = |cluster: &DeclaredCluster| {
                (cluster.load_balancer.clone(), cluster.external_load_balancer.clone())
            };
            if declared(now) == declared(built) { Vec::new() } else { vec!["loadBalancer"] }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cluster(fields: Value) -> DeclaredCluster {
        let mut all = json!({
            "masterList": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.3"}, {"ip": "10.0.0.5"}],
            "nodeList": [{"ip": "10.0.0.2"}],
        });
        for (name, value) in fields.as_object().unwrap() {
            all[name] = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    fn changes(now: Value, built: Value) -> Changes {
        cluster(now).changes(&cluster(built), "v1.36.3".parse().ok())
    }

    #[test]
    fn an_equivalent_declaration_is_not_a_change() {
        let masters = json!([{"ip": "10.0.0.5"}, {"ip": "10.0.0.1"}, {"ip": "10.0.0.3"}]);
        let balancer = json!({"mode": "external", "address": "10.0.0.9", "port": 6443});
        for (now, built) in [
            (json!({"kubeVersion": "v1.36.3"}), json!({})),
            (json!({"kubeVersion": "1.36.3"}), json!({"kubeVersion": "v1.36.3"})),
            (json!({"network": {"cni": "flannel", "maxPods": 250}}), json!({})),
            (json!({}), json!({"network": {"proxyMode": "nftables"}})),
            (json!({"deployMode": "binary", "podCIDR": "10.96.0.0/12"}), json!({})),
            (json!({"apiServer": {}, "certificates": {"caYears": 100}}), json!({})),
            (json!({"masterList": masters, "etcdList": masters}), json!({})),
            (json!({"loadBalancer": balancer}), json!({"externalLoadBalancer": "10.0.0.9"})),
            (
                json!({"apiServer": {"certSANs": ["a.example", "b.example"]}}),
                json!({"apiServer": {"certSANs": ["b.example", "a.example"]}}),
            ),
            (json!({"region": "north", "timeout_mins": "30"}), json!({})),
        ] {
            assert_eq!(changes(now.clone(), built.clone()), Changes::default(), "{now} after {built}");
            if now.get("kubeVersion").is_none() {
                assert_eq!(changes(built.clone(), now.clone()), Changes::default(), "{built} after {now}");
            }
        }
    }

    #[test]
    fn workers_and_logins_are_not_changes() {
        let now = json!({
            "masterList": [{"ip": "10.0.0.1", "user": "ops"}, {"ip": "10.0.0.3", "port": 2222}, {"ip": "10.0.0.5"}],
            "nodeList": [{"ip": "10.0.0.4"}, {"ip": "10.0.0.2", "port": 2222}],
            "authConfig": {"username": "ops"},
        });
        assert_eq!(changes(now, json!({})), Changes::default());
    }

    #[test]
    fn every_changed_field_is_named() {
        for (now, built, fields) in [
            (json!({"kubeVersion": "v1.37.0"}), json!({}), vec!["kubeVersion"]),
            (json!({}), json!({"kubeVersion": "v1.36.3"}), vec!["kubeVersion"]),
            (json!({"masterList": [{"ip": "10.0.0.1"}]}), json!({}), vec!["masterList"]),
            (json!({"etcdList": [{"ip": "10.0.0.2"}]}), json!({}), vec!["etcdList"]),
            (json!({"network": {"cni": "none", "maxPods": 99}}), json!({}), vec!["network.cni"]),
            (json!({"podCIDR": "10.128.0.0/12"}), json!({}), vec!["podCIDR"]),
        ] {
            let found = changes(now.clone(), built);
            assert_eq!(found.fields, fields, "{now}");
        }
    }

    #[test]
    fn etcd_has_hosts_of_its_own_if_none_of_them_is_a_node() {
        for (etcd, own) in [
            (json!([]), false),
            (json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.3"}, {"ip": "10.0.0.5"}]), false),
            (json!([{"ip": "10.0.0.2"}, {"ip": "10.0.0.7"}]), false),
            (json!([{"ip": "10.0.0.7"}, {"ip": "10.0.0.8"}]), true),
        ] {
            assert_eq!(cluster(json!({"etcdList": etcd})).etcd_has_own_hosts(), own, "{etcd}");
        }
    }

    #[test]
    fn a_version_is_a_change_when_the_running_version_is_unknown() {
        let written = cluster(json!({"kubeVersion": "v1.36.3"}));
        assert_eq!(written.changes(&cluster(json!({})), None).fields, ["kubeVersion"]);
    }

    #[test]
    fn the_internal_address_of_a_host_that_stays_is_compared() {
        let node = |internal: Value| json!({"nodeList": [{"ip": "10.0.0.2", "internalAddress": internal}]});
        assert_eq!(changes(node(json!("10.0.0.2")), json!({})), Changes::default());
        let moved = changes(node(json!("10.1.0.2")), json!({})).internal_addresses;
        assert_eq!(moved, ["10.0.0.2".parse::<HostAddress>().unwrap()]);
    }

    #[test]
    fn taints_of_hosts_that_stay_are_compared_in_any_order() {
        let (one, other) =
            (json!({"key": "a", "effect": "NoSchedule"}), json!({"key": "b", "effect": "NoExecute"}));
        let node = |taints: Value| json!({"nodeList": [{"ip": "10.0.0.2", "taints": taints}]});
        assert_eq!(changes(node(json!([one, other])), node(json!([other, one]))), Changes::default());
        let worker = "10.0.0.2".parse::<HostAddress>().unwrap();
        let found = changes(node(json!([one])), json!({}));
        assert_eq!(found, Changes { taints: vec![worker], ..Changes::default() });
    }

    /// Also of a master, in any of the lists.
    #[test]
    fn names_and_labels_of_hosts_that_stay_are_compared() {
        let masters = |first: Value| json!([first, {"ip": "10.0.0.3"}, {"ip": "10.0.0.5"}]);
        let named = masters(json!({"ip": "10.0.0.1", "name": "m1"}));
        let found = changes(
            json!({"masterList": named, "nodeList": [{"ip": "10.0.0.2", "labels": {"disk": "ssd"}}, {"ip": "10.0.0.4", "name": "w4"}]}),
            json!({}),
        );
        let [master, worker] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse::<HostAddress>().unwrap());
        assert_eq!(found, Changes { names: vec![master], labels: vec![worker], ..Changes::default() });
        let plain = masters(json!({"ip": "10.0.0.1"}));
        let moved = json!({"masterList": plain, "etcdList": named});
        assert_eq!(changes(moved, json!({"masterList": named})), Changes::default());
    }
}
