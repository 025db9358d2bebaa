//! What a declaration changes about a cluster that is built. What is said in other words, in another order, or left to its
//! default is the same.
//!
//! Admission and the operator both ask here: what the one admits, the other does.

use std::collections::BTreeSet;

use super::nodes::NodeList;
use super::spec::DeclaredCluster;
use crate::names::{HostAddress, Version};

/// What is to be another one. Workers that come and go are no change here, nor is how a host is logged in to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Fields under `spec.cluster`, such as `network.cni`.
    pub fields: Vec<&'static str>,
    /// Hosts that are to be called something else as nodes.
    pub names: Vec<HostAddress>,
    /// Hosts whose nodes are to have other labels.
    pub labels: Vec<HostAddress>,
}

impl DeclaredCluster {
    /// What this changes about a cluster that was built as `built`, and of which the masters run `runs` where that was seen.
    #[must_use]
    pub fn changes(&self, built: &Self, runs: Option<Version>) -> Changes {
        let mut changes = Changes { fields: fields(self, built, runs), ..Changes::default() };
        let before = built.by_address();
        for (ip, node) in self.by_address() {
            let Some(was) = before.get(&ip) else { continue };
            if node.name != was.name {
                changes.names.push(ip);
            }
            if node.labels != was.labels {
                changes.labels.push(ip);
            }
        }
        changes
    }
}

fn fields(now: &DeclaredCluster, built: &DeclaredCluster, runs: Option<Version>) -> Vec<&'static str> {
    // Where neither names any, etcd follows the masters, and one change is reported.
    let follow = now.etcd_list.is_empty() && built.etcd_list.is_empty();
    let lists = [
        ("kubeVersion", !same_version(now.kube_version, built.kube_version, runs)),
        ("masterList", addresses(&now.master_list) != addresses(&built.master_list)),
        ("etcdList", !follow && addresses(now.etcd()) != addresses(built.etcd())),
    ];
    let differing = lists.into_iter().filter(|(_, differs)| *differs).map(|(field, _)| field);
    differing.chain(settings(now, built)).collect()
}

/// The version that runs may be written out where it was left out.
fn same_version(now: Option<Version>, built: Option<Version>, runs: Option<Version>) -> bool {
    now == built || (built.is_none() && now.is_some() && now == runs)
}

fn addresses(list: &NodeList) -> BTreeSet<HostAddress> {
    list.iter().map(|node| node.ip).collect()
}

/// Without the region, which is for people, and the timeout, which is about operations.
fn settings(now: &DeclaredCluster, built: &DeclaredCluster) -> Vec<&'static str> {
    match (now.settings(), built.settings()) {
        (Ok(now), Ok(built)) => now.differences(&built),
        // Only what is said of the load balancer can fail to fit together.
        _ => {
            let said = |it: &DeclaredCluster| (it.load_balancer.clone(), it.external_load_balancer.clone());
            if said(now) == said(built) { Vec::new() } else { vec!["loadBalancer"] }
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
    fn what_means_the_same_is_no_change() {
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
    fn workers_and_logins_are_no_change() {
        let now = json!({
            "masterList": [{"ip": "10.0.0.1", "user": "ops"}, {"ip": "10.0.0.3", "port": 2222}, {"ip": "10.0.0.5"}],
            "nodeList": [{"ip": "10.0.0.4"}, {"ip": "10.0.0.2", "port": 2222}],
            "authConfig": {"username": "ops"},
        });
        assert_eq!(changes(now, json!({})), Changes::default());
    }

    #[test]
    fn every_field_that_means_something_else_is_named() {
        for (now, built, fields) in [
            (json!({"kubeVersion": "v1.37.0"}), json!({}), vec!["kubeVersion"]),
            (json!({}), json!({"kubeVersion": "v1.36.3"}), vec!["kubeVersion"]),
            (json!({"masterList": [{"ip": "10.0.0.1"}]}), json!({}), vec!["masterList"]),
            (json!({"etcdList": [{"ip": "10.0.0.2"}]}), json!({}), vec!["etcdList"]),
            (
                json!({"network": {"cni": "none", "maxPods": 99}}),
                json!({}),
                vec!["network.cni", "network.maxPods"],
            ),
            (json!({"externalLoadBalancer": "10.0.0.9"}), json!({}), vec!["loadBalancer"]),
            (json!({"loadBalancer": {"mode": "external"}}), json!({}), vec!["loadBalancer"]),
            (json!({"podCIDR": "10.128.0.0/12"}), json!({}), vec!["podCIDR"]),
        ] {
            let found = changes(now.clone(), built);
            assert_eq!(found, Changes { fields, ..Changes::default() }, "{now}");
        }
    }

    #[test]
    fn a_version_that_nobody_saw_is_not_the_one_that_runs() {
        let written = cluster(json!({"kubeVersion": "v1.36.3"}));
        assert_eq!(written.changes(&cluster(json!({})), None).fields, ["kubeVersion"]);
    }

    /// Also of a master, and wherever it stands.
    #[test]
    fn names_and_labels_of_hosts_that_stay_are_compared() {
        let masters = |first: Value| json!([first, {"ip": "10.0.0.3"}, {"ip": "10.0.0.5"}]);
        let named = masters(json!({"ip": "10.0.0.1", "name": "m1"}));
        let found = changes(
            json!({"masterList": named, "nodeList": [{"ip": "10.0.0.2", "labels": {"disk": "ssd"}}, {"ip": "10.0.0.4", "name": "w4"}]}),
            json!({}),
        );
        let [master, worker] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse::<HostAddress>().unwrap());
        assert_eq!(found, Changes { fields: vec![], names: vec![master], labels: vec![worker] });
        let plain = masters(json!({"ip": "10.0.0.1"}));
        let moved = json!({"masterList": plain, "etcdList": named});
        assert_eq!(changes(moved, json!({"masterList": named})), Changes::default());
    }
}
