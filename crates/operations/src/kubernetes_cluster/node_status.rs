//! The node status after a successful operation. The engine succeeds only when the API answers and every node
//! is Ready with its version, except for skipped hosts. So the declared nodes are the observed nodes.

use kubeon_api::kubernetes_cluster::{DeclaredCluster, Host, LoadBalancer, NodeRoles, NodeStatus};
use kubeon_api::{HostAddress, KubernetesClusterStatus};

/// The most bytes of the nodes in the status, as JSON. The other fields of a status need less than 20 KiB.
const MOST_BYTES: usize = 12 * 1024;

/// Writes the nodes, the number of Ready nodes, and the address of the API.
pub(super) fn show(new: &mut KubernetesClusterStatus, cluster: &DeclaredCluster, skipped: &[HostAddress]) {
    // Contradictory lists do not describe a cluster.
    let Ok(hosts) = cluster.hosts() else { return };
    let version = new.version;
    let nodes: Vec<NodeStatus> =
        hosts.iter().map(|host| node(host, version, !skipped.contains(&host.ip))).collect();
    let ready = |is: bool| nodes.iter().filter(|node| node.ready == Some(is)).count();
    new.ready = Some(format!("{}/{}", ready(true), ready(true) + ready(false)));
    new.nodes = bounded(nodes);
    new.api_endpoint = endpoint(cluster);
}

/// The nodes that fit into the status: all of them, or first those that are not ready.
fn bounded(mut nodes: Vec<NodeStatus>) -> Vec<NodeStatus> {
    let size = |node: &NodeStatus| serde_json::to_string(node).map_or(0, |json| json.len() + 1);
    if nodes.iter().map(size).sum::<usize>() <= MOST_BYTES {
        return nodes;
    }
    nodes.sort_by_key(|node| node.ready != Some(false));
    let mut bytes = 0;
    nodes
        .into_iter()
        .take_while(|node| {
            bytes += size(node);
            bytes <= MOST_BYTES
        })
        .collect()
}

fn node(host: &Host, version: Option<kubeon_api::Version>, present: bool) -> NodeStatus {
    let is_node = host.roles.master || host.roles.worker;
    NodeStatus {
        ip: host.ip,
        name: host.name.clone(),
        role: Some(NodeRoles::from(host.roles)),
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
