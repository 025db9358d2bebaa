//! What holds where nothing is said. Applied in code, never written into the object.

use std::time::Duration;

use super::spec::{ClusterType, Cni, DeclaredCluster, DeployMode, LoadBalancerMode, ProxyMode};
use super::timeout::TimeoutMins;
use super::{DeletionPolicy, KubernetesClusterSpec};
use crate::addresses::{DnsName, Endpoint, PortRange, Registry};
use crate::labels::LabelValue;
use crate::names::{Cidr, NameError, Version};

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
/// Default of `network.proxyMode`.
pub const PROXY_MODE: ProxyMode = ProxyMode::Nftables;
/// Default of `network.dnsDomain`.
pub const DNS_DOMAIN: &str = "cluster.local";
/// Default of `network.nodeMaskSize`.
pub const NODE_MASK_SIZE: u8 = 24;
/// Default of `network.maxPods`, where the node's share of the pod network has room for it: a /24 has 254 addresses,
/// one of them the bridge's own, and addresses of ended pods are not free at once.
pub const MAX_PODS: u32 = 250;
/// Default of `network.nodePortRange`.
pub const NODE_PORT_RANGE: &str = "10000-30000";
/// Default of `certificates.caYears`.
pub const CA_YEARS: u32 = 100;
/// Most that `certificates.caYears` may say, wherever it is said.
pub const MAX_CA_YEARS: u32 = 100;
/// Default of a node's `port`.
pub const SSH_PORT: u16 = 22;

/// A declaration with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The Kubernetes version; the catalogue's newest where `None`.
    pub version: Option<Version>,
    /// The distribution.
    pub cluster_type: ClusterType,
    /// How the control plane runs.
    pub deploy_mode: DeployMode,
    /// Network of the pods.
    pub pod_cidr: Cidr,
    /// Network of the services.
    pub service_cidr: Cidr,
    /// Where the hosts stand.
    pub region: Option<LabelValue>,
    /// The registry that mirrors every image.
    pub images_registry: Option<Registry>,
    /// What one operation may take.
    pub timeout: Duration,
    /// The name under which hosts reach the API.
    pub api_domain: DnsName,
    /// The API server's port on every master.
    pub api_port: u16,
    /// Further names and addresses for the API server's certificate.
    pub cert_sans: Vec<Endpoint>,
    /// How workers reach the masters.
    pub reach: Reach,
    /// The network inside the cluster.
    pub network: NetworkSettings,
    /// Life of the certificate authorities, in years.
    pub ca_years: u32,
}

/// How workers reach the masters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// haproxy on every worker.
    Haproxy,
    /// A Service whose endpoints are the live masters.
    Updater,
    /// A load balancer that exists.
    External {
        /// Its address or name.
        address: Endpoint,
        /// Its port.
        port: u16,
    },
}

/// The network inside the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkSettings {
    /// The network plugin.
    pub cni: Cni,
    /// How Services are implemented.
    pub proxy_mode: ProxyMode,
    /// The cluster's DNS domain.
    pub dns_domain: DnsName,
    /// Prefix length of every node's share of the pod network.
    pub node_mask_size: u8,
    /// Pods per node.
    pub max_pods: u32,
    /// Ports for Services of type `NodePort`.
    pub node_port_range: PortRange,
}

/// Why a declaration has no complete settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A default of this module is not of its own type.
    #[error("a built-in default is malformed")]
    Default(#[source] NameError),
    /// An external load balancer without an address.
    #[error("loadBalancer.mode external needs loadBalancer.address or externalLoadBalancer")]
    NoAddress,
    /// Two addresses for one load balancer.
    #[error("loadBalancer.address {address} and externalLoadBalancer {short} differ; keep one")]
    TwoAddresses {
        /// The longer way.
        address: Endpoint,
        /// The shorter way.
        short: Endpoint,
    },
    /// An address for a load balancer that kubeon makes itself.
    #[error("loadBalancer.mode {mode} takes no address, but {address} is given; use mode external")]
    NotExternal {
        /// The mode.
        mode: LoadBalancerMode,
        /// The address that has no use.
        address: Endpoint,
    },
}

impl DeclaredCluster {
    /// The declaration with every default filled in.
    ///
    /// # Errors
    /// When what is said about the load balancer does not fit together.
    pub fn settings(&self) -> Result<Settings, SettingsError> {
        let text = SettingsError::Default;
        let api = self.api_server.clone().unwrap_or_default();
        Ok(Settings {
            version: self.kube_version,
            cluster_type: self.cluster_type.unwrap_or(CLUSTER_TYPE),
            deploy_mode: self.deploy_mode.unwrap_or(DEPLOY_MODE),
            pod_cidr: or_default(self.pod_cidr, POD_CIDR).map_err(text)?,
            service_cidr: or_default(self.service_cidr, SERVICE_CIDR).map_err(text)?,
            region: self.region.clone(),
            images_registry: self.images_registry.clone(),
            timeout: self.timeout_mins.unwrap_or(TimeoutMins::DEFAULT).duration(),
            api_domain: or_default(api.domain, API_DOMAIN).map_err(text)?,
            api_port: api.port.unwrap_or(API_PORT),
            cert_sans: api.cert_sans,
            reach: self.reach()?,
            network: self.network().map_err(text)?,
            ca_years: self.certificates.as_ref().and_then(|c| c.ca_years).unwrap_or(CA_YEARS),
        })
    }

    fn reach(&self) -> Result<Reach, SettingsError> {
        let given = self.load_balancer.clone().unwrap_or_default();
        let address = match (given.address, self.external_load_balancer.clone()) {
            (Some(address), Some(short)) if address != short => {
                return Err(SettingsError::TwoAddresses { address, short });
            }
            (address, short) => address.or(short),
        };
        let port = given.port.unwrap_or(API_PORT);
        match (given.mode, address) {
            (None | Some(LoadBalancerMode::External), Some(address)) => Ok(Reach::External { address, port }),
            (Some(LoadBalancerMode::External), None) => Err(SettingsError::NoAddress),
            (Some(mode), Some(address)) => Err(SettingsError::NotExternal { mode, address }),
            (None | Some(LoadBalancerMode::Haproxy), None) => Ok(Reach::Haproxy),
            (Some(LoadBalancerMode::Updater), None) => Ok(Reach::Updater),
        }
    }

    fn network(&self) -> Result<NetworkSettings, NameError> {
        let given = self.network.clone().unwrap_or_default();
        let node_mask_size = given.node_mask_size.unwrap_or(NODE_MASK_SIZE);
        Ok(NetworkSettings {
            cni: given.cni.unwrap_or(CNI),
            proxy_mode: given.proxy_mode.unwrap_or(PROXY_MODE),
            dns_domain: or_default(given.dns_domain, DNS_DOMAIN)?,
            node_mask_size,
            max_pods: given.max_pods.unwrap_or_else(|| MAX_PODS.min(pod_addresses(node_mask_size))),
            node_port_range: or_default(given.node_port_range, NODE_PORT_RANGE)?,
        })
    }
}

/// Addresses for pods in a node's share of this prefix length: all but the network's, the broadcast's and the bridge's.
#[must_use]
pub fn pod_addresses(node_mask_size: u8) -> u32 {
    let bits = 32_u32.saturating_sub(u32::from(node_mask_size)).min(31);
    (1_u32 << bits).saturating_sub(3)
}

impl KubernetesClusterSpec {
    /// What becomes of the hosts when the object is deleted.
    #[must_use]
    pub fn on_deletion(&self) -> DeletionPolicy {
        self.deletion_policy.unwrap_or(DeletionPolicy::Delete)
    }
}

fn or_default<T: std::str::FromStr<Err = NameError>>(
    given: Option<T>,
    default: &str,
) -> Result<T, NameError> {
    given.map_or_else(|| default.parse(), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_in_every_default() {
        let settings = DeclaredCluster::default().settings().unwrap();
        assert_eq!(settings.pod_cidr.to_string(), "10.96.0.0/12");
        assert_eq!(settings.service_cidr.to_string(), "10.64.0.0/12");
        assert!(!settings.pod_cidr.overlaps(settings.service_cidr));
        assert_eq!(settings.timeout, Duration::from_secs(600));
        assert_eq!(settings.api_domain.as_str(), "apiserver.cluster.local");
        assert_eq!(settings.reach, Reach::Haproxy);
        assert_eq!(settings.network.max_pods, 250);
        assert_eq!(settings.network.node_port_range.to_string(), "10000-30000");
        assert_eq!((settings.ca_years, settings.api_port), (100, 6443));
        assert_eq!(
            (settings.cluster_type, settings.deploy_mode),
            (ClusterType::Kubernetes, DeployMode::Binary)
        );
    }

    #[test]
    fn asks_for_no_more_pods_than_a_node_has_addresses() {
        assert_eq!((pod_addresses(24), pod_addresses(26), pod_addresses(28)), (253, 61, 13));
        let network = super::super::Network { node_mask_size: Some(26), ..Default::default() };
        let cluster = DeclaredCluster { network: Some(network), ..DeclaredCluster::default() };
        assert_eq!(cluster.settings().unwrap().network.max_pods, 61);
    }

    #[test]
    fn takes_an_address_as_the_wish_for_an_external_load_balancer() {
        let address: Endpoint = "10.0.0.100".parse().unwrap();
        let cluster =
            DeclaredCluster { external_load_balancer: Some(address.clone()), ..DeclaredCluster::default() };
        assert_eq!(cluster.settings().unwrap().reach, Reach::External { address, port: 6443 });
    }

    #[test]
    fn refuses_a_load_balancer_that_contradicts_itself() {
        let with = |mode, address: Option<&str>, short: Option<&str>| {
            let address = address.map(|text| text.parse().unwrap());
            let balancer = super::super::LoadBalancer { mode, address, port: None };
            let cluster = DeclaredCluster {
                load_balancer: Some(balancer),
                external_load_balancer: short.map(|text| text.parse().unwrap()),
                ..DeclaredCluster::default()
            };
            cluster.settings().unwrap_err().to_string()
        };
        assert_eq!(
            with(Some(LoadBalancerMode::External), None, None),
            "loadBalancer.mode external needs loadBalancer.address or externalLoadBalancer"
        );
        assert_eq!(
            with(None, Some("a"), Some("b")),
            "loadBalancer.address a and externalLoadBalancer b differ; keep one"
        );
        assert_eq!(
            with(Some(LoadBalancerMode::Haproxy), Some("a"), None),
            "loadBalancer.mode haproxy takes no address, but a is given; use mode external"
        );
    }
}
