//! The inventory of contract B, 2.4: every host, and the groups `etcd`, `kube-master`, `kube-node`, `calico-rr`.

use std::fmt::Write as _;

use kubeon_api::kubernetes_cluster::{DeclaredCluster, DeclaredNode, NodeList};

/// Addresses in the order of their declaration, joined by commas.
pub(super) fn joined(nodes: &NodeList) -> String {
    nodes.iter().map(|node| node.ip.to_string()).collect::<Vec<_>>().join(",")
}

/// `HOSTS_YAML`, in the form that older clients read.
pub(super) fn yaml(cluster: &DeclaredCluster) -> String {
    let mut text = groups(cluster);
    for node in cluster.by_address().into_values() {
        text.push_str(&host(&node, ""));
    }
    text
}

/// The same inventory with the login of each host, for a runner that gets only the name of the cluster.
pub(super) fn with_logins(cluster: &DeclaredCluster) -> String {
    let account = cluster.auth_config.as_ref().and_then(|auth| auth.username.as_ref());
    let mut text = groups(cluster);
    for node in cluster.by_address().into_values() {
        let port = node.port.map(|port| format!("      ansible_port: {port}\n"));
        // Quoted, because an account may have the name `null`.
        let user = node.user.as_ref().or(account).map(|user| format!("      ansible_user: \"{user}\"\n"));
        text.push_str(&host(&node, &[port, user].into_iter().flatten().collect::<String>()));
    }
    text
}

fn groups(cluster: &DeclaredCluster) -> String {
    let mut text = String::from("all:\n  children:\n    calico-rr:\n      hosts: {}\n");
    group(&mut text, "etcd", cluster.etcd());
    group(&mut text, "kube-master", &cluster.master_list);
    group(&mut text, "kube-node", &cluster.node_list);
    text.push_str("  hosts:\n");
    text
}

fn host(node: &DeclaredNode, login: &str) -> String {
    let ip = node.ip;
    let internal = node.internal_address.unwrap_or(ip);
    format!("    {ip}:\n      access_ip: {internal}\n      ansible_host: {ip}\n{login}      ip: {internal}\n")
}

fn group(text: &mut String, name: &str, nodes: &NodeList) {
    // Writing into a String cannot fail.
    if nodes.is_empty() {
        let _ = writeln!(text, "    {name}:\n      hosts: {{}}");
        return;
    }
    let _ = writeln!(text, "    {name}:\n      hosts:");
    for node in nodes.iter() {
        let _ = writeln!(text, "        {}: ", node.ip);
    }
}
