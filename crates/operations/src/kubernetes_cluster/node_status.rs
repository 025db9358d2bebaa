//! What stands after an operation that went well. The engine ends well only when the API answers and every node is Ready
//! with its version, but for hosts that it was to do without: what the operation was made for is what was seen.

use kubeon_api::kubernetes_cluster::{DeclaredCluster, Host, LoadBalancer, NodeStatus};
use kubeon_api::{HostAddress, KubernetesClusterStatus};

/// Writes nodes, how many are Ready, and where the API answers.
pub(super) fn show(new: &mut KubernetesClusterStatus, cluster: &DeclaredCluster, left_out: &[HostAddress]) {
    // Lists that contradict each other make no cluster.
    let Ok(hosts) = cluster.hosts() else { return };
    let version = new.version;
    new.nodes = hosts.iter().map(|host| node(host, version, !left_out.contains(&host.ip))).collect();
    let ready = |is: bool| new.nodes.iter().filter(|node| node.ready == Some(is)).count();
    new.ready = Some(format!("{}/{}", ready(true), ready(true) + ready(false)));
    new.api_endpoint = endpoint(cluster);
}

fn node(host: &Host, version: Option<kubeon_api::Version>, there: bool) -> NodeStatus {
    let roles = [(host.roles.master, "master"), (host.roles.worker, "worker"), (host.roles.etcd, "etcd")];
    let roles: Vec<&str> = roles.into_iter().filter(|(is, _)| *is).map(|(_, name)| name).collect();
    let is_node = host.roles.master || host.roles.worker;
    NodeStatus {
        ip: host.ip,
        name: host.name.clone(),
        role: Some(roles.join(",")),
        ready: is_node.then_some(there),
        version: version.filter(|_| is_node && there),
    }
}

/// Where the API answers: the load balancer that was named, else the first master.
fn endpoint(cluster: &DeclaredCluster) -> Option<String> {
    let settings = cluster.settings().ok()?;
    if let LoadBalancer::External { address, port } = &settings.load_balancer {
        return Some(format!("https://{address}:{port}"));
    }
    let master = cluster.master_list.iter().next()?;
    Some(format!("https://{}:{}", master.ip, settings.api_port))
}
