//! The node status after a successful operation. The engine succeeds only when the API answers and every node
//! is Ready with its version, except for skipped hosts. So the declared nodes are the observed nodes.

use kubeon_api::kubernetes_cluster::{DeclaredCluster, Host, LoadBalancer, NodeRoles, NodeStatus};
use kubeon_api::{HostAddress, HostRole, KubernetesClusterStatus};

/// Writes the nodes, the number of Ready nodes, and the address of the API.
pub(super) fn show(new: &mut KubernetesClusterStatus, cluster: &DeclaredCluster, skipped: &[HostAddress]) {
    // Contradictory lists do not describe a cluster.
    let Ok(hosts) = cluster.hosts() else { return };
    let version = new.version;
    new.nodes = hosts.iter().map(|host| node(host, version, !skipped.contains(&host.ip))).collect();
    let ready = |is: bool| new.nodes.iter().filter(|node| node.ready == Some(is)).count();
    new.ready = Some(format!("{}/{}", ready(true), ready(true) + ready(false)));
    new.api_endpoint = endpoint(cluster);
}

fn node(host: &Host, version: Option<kubeon_api::Version>, present: bool) -> NodeStatus {
    let roles = [
        (host.roles.master, HostRole::Master),
        (host.roles.worker, HostRole::Worker),
        (host.roles.etcd, HostRole::Etcd),
    ];
    let roles = roles.into_iter().filter(|(is, _)| *is).map(|(_, role)| role).collect();
    let is_node = host.roles.master || host.roles.worker;
    NodeStatus {
        ip: host.ip,
        name: host.name.clone(),
        role: Some(NodeRoles(roles)),
        ready: is_node.then_some(present),
        version: version.filter(|_| is_node && present),
    }
}

/// The address of the API: the external load balancer, else the first master.
fn endpoint(cluster: &DeclaredCluster) -> Option<String> {
    let settings = cluster.settings().ok()?;
    if let LoadBalancer::External { address, port } = &settings.load_balancer {
        return Some(format!("https://{address}:{port}"));
    }
    let master = cluster.master_list.iter().next()?;
    Some(format!("https://{}:{}", master.ip, settings.api_port))
}
