//! The inventory of contract B, 2.4: every host, and the groups `etcd`, `kube-master`, `kube-node`, `calico-rr`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use kubeon_api::HostAddress;
use kubeon_api::kubernetes_cluster::{DeclaredCluster, NodeList};

/// Addresses in the order of their declaration, joined by commas.
pub(super) fn joined(nodes: &NodeList) -> String {
    nodes.iter().map(|node| node.ip.to_string()).collect::<Vec<_>>().join(",")
}

/// Hosts of etcd: those that are named, else the masters.
pub(super) fn etcd(cluster: &DeclaredCluster) -> &NodeList {
    if cluster.etcd_list.is_empty() { &cluster.master_list } else { &cluster.etcd_list }
}

/// `HOSTS_YAML`.
pub(super) fn yaml(cluster: &DeclaredCluster) -> String {
    let mut text = String::from("all:\n  children:\n    calico-rr:\n      hosts: {}\n");
    group(&mut text, "etcd", etcd(cluster));
    group(&mut text, "kube-master", &cluster.master_list);
    group(&mut text, "kube-node", &cluster.node_list);
    text.push_str("  hosts:\n");
    let lists = [&cluster.master_list, &cluster.node_list, &cluster.etcd_list];
    let all: BTreeSet<HostAddress> = lists.iter().flat_map(|list| list.iter().map(|node| node.ip)).collect();
    for ip in all {
        // Writing into a String cannot fail.
        let _ = write!(text, "    {ip}:\n      access_ip: {ip}\n      ansible_host: {ip}\n      ip: {ip}\n");
    }
    text
}

fn group(text: &mut String, name: &str, nodes: &NodeList) {
    if nodes.is_empty() {
        let _ = writeln!(text, "    {name}:\n      hosts: {{}}");
        return;
    }
    let _ = writeln!(text, "    {name}:\n      hosts:");
    for node in nodes.iter() {
        let _ = writeln!(text, "        {}: ", node.ip);
    }
}
