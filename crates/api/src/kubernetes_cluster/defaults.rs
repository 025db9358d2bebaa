//! Defaults of fields. The code applies them; they are never written into the object.

use super::choices::{ClusterType, Cni, DeployMode, FirewallMode, ProxyMode};

/// Default of `clusterType`.
pub const CLUSTER_TYPE: ClusterType = ClusterType::Kubernetes;
/// Default of `deployMode`.
pub const DEPLOY_MODE: DeployMode = DeployMode::Binary;
/// Default of `podCIDR`.
pub const POD_CIDR: &str = "10.96.0.0/12";
/// Default of `serviceCIDR`.
pub const SERVICE_CIDR: &str = "10.64.0.0/12";
/// Default of `apiServer.domain`.
pub const API_DOMAIN: &str = "apiserver.cluster.local";
/// Default of `apiServer.port` and of `loadBalancer.port`.
pub const API_PORT: u16 = 6443;
/// Default of `network.cni`.
pub const CNI: Cni = Cni::Flannel;
/// Default of `network.firewall`.
pub const FIREWALL: FirewallMode = FirewallMode::Check;
/// Default of `network.proxyMode`.
pub const PROXY_MODE: ProxyMode = ProxyMode::Nftables;
/// Default of `network.dnsDomain`.
pub const DNS_DOMAIN: &str = "cluster.local";
/// Default of `network.nodeMaskSize`.
pub const NODE_MASK_SIZE: u8 = 24;
/// Default of `network.maxPods`, if the node's share of the pod network is large enough: a /24 has 254 addresses, the bridge
/// uses one, and addresses of ended pods are not free at once.
pub const MAX_PODS: u32 = 250;
/// Default of `network.nodePortRange`.
pub const NODE_PORT_RANGE: &str = "30000-32767";
/// Default of `certificates.caYears`.
pub const CA_YEARS: u32 = 100;
/// Maximum of `certificates.caYears`.
pub const MAX_CA_YEARS: u32 = 100;
/// Default of a node's `port`.
pub const SSH_PORT: u16 = 22;

/// Number of pod addresses in a node's share of this prefix length: all but those of network, broadcast and bridge.
#[must_use]
pub fn pod_addresses(node_mask_size: u8) -> u32 {
    let bits = 32_u32.saturating_sub(u32::from(node_mask_size)).min(31);
    (1_u32 << bits).saturating_sub(3)
}
