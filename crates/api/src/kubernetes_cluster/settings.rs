//! The complete settings of a cluster: the declared values, with defaults for the others. They are the input of plans, and a
//! control machine stores them in this form.
//!
//! This file lists each setting four times: in the type, in the functions that fill it in from a declaration and write it into
//! one, and in the comparison. The code does not compile when a setting is missing in one of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::choices::{ClusterType, Cni, DeployMode, FirewallMode, LoadBalancerMode, ProxyMode};
use super::container_runtime::ContainerRuntime;
use super::defaults;
use super::extra_args::ExtraArgs;
use super::load_balancer::LoadBalancer;
use super::spec::{ApiServer, Certificates, DeclaredCluster, DeclaredLoadBalancer, Network};
use crate::addresses::{DnsName, Endpoint, PortRange, Registry};
use crate::names::{Cidr, NameError};

/// The settings of a whole cluster. Name, version and hosts are not part of them.
///
/// The JSON form is that of the state files. A setting that an older program did not write gets the only value that the
/// program supported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSettings {
    /// The name under which hosts reach the API, such as `apiserver.cluster.local`.
    pub api_domain: DnsName,
    /// Further names and addresses for the API server's certificate.
    pub cert_sans: Vec<Endpoint>,
    /// How workers reach the masters.
    pub load_balancer: LoadBalancer,
    /// Network of the pods.
    pub pod_cidr: Cidr,
    /// Network of the services: the first address is the API's, the tenth is the DNS server's.
    pub service_cidr: Cidr,
    /// Prefix length of every node's share of the pod network.
    pub node_mask_size: u8,
    /// Pods per node.
    pub max_pods: u32,
    /// Ports for Services of type `NodePort`.
    #[serde(with = "port_pair")]
    pub node_ports: PortRange,
    /// The cluster's DNS domain, such as `cluster.local`.
    pub dns_domain: DnsName,
    /// How Services are implemented.
    pub proxy_mode: ProxyMode,
    /// Feature gates of the Kubernetes programs: `Name=true` pairs, joined by commas; may be empty.
    pub feature_gates: String,
    /// Life of the certificate authorities, in years.
    pub ca_years: u32,
    /// The distribution.
    #[serde(default = "older_state::cluster_type")]
    pub cluster_type: ClusterType,
    /// How the control plane runs.
    #[serde(default = "older_state::deploy_mode")]
    pub deploy_mode: DeployMode,
    /// The API server's port on every master.
    #[serde(default = "older_state::api_port")]
    pub api_port: u16,
    /// The network plugin.
    #[serde(default = "older_state::cni")]
    pub cni: Cni,
    /// The largest packet of a pod, in bytes; when `None`, as large as the links of each host allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// What kubeon does with the firewalls of hosts.
    #[serde(default = "older_state::firewall", skip_serializing_if = "older_state::is_default_firewall")]
    pub firewall: FirewallMode,
    /// The registry that mirrors every image; when `None`, the images come from the bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images_registry: Option<Registry>,
    /// How the container runtime reaches registries.
    #[serde(default, skip_serializing_if = "ContainerRuntime::is_empty")]
    pub container_runtime: ContainerRuntime,
    /// Further arguments of the Kubernetes programs.
    #[serde(default, skip_serializing_if = "ExtraArgs::is_empty")]
    pub extra_args: ExtraArgs,
    /// Further kernel parameters of the hosts that run a node, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kernel_parameters: BTreeMap<String, String>,
}

/// Why the settings of a declaration cannot be completed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A built-in default is malformed.
    #[error("a built-in default is malformed")]
    Default(#[source] NameError),
    /// An external load balancer without an address.
    #[error("loadBalancer.mode external needs loadBalancer.address or externalLoadBalancer")]
    NoAddress,
    /// Two addresses for one load balancer.
    #[error("loadBalancer.address {address} and externalLoadBalancer {short} differ; keep one")]
    TwoAddresses {
        /// `loadBalancer.address`.
        address: Endpoint,
        /// `externalLoadBalancer`.
        short: Endpoint,
    },
    /// An address is given for a load balancer that kubeon provides.
    #[error("loadBalancer.mode {mode} takes no address, but {address} is given; use mode external")]
    NotExternal {
        /// The mode.
        mode: LoadBalancerMode,
        /// The address without effect.
        address: Endpoint,
    },
}

impl DeclaredCluster {
    /// The settings, with every default filled in.
    ///
    /// # Errors
    /// When the fields of the load balancer contradict each other.
    pub fn settings(&self) -> Result<ClusterSettings, SettingsError> {
        let Self {
            // Not settings: the version, the hosts and their logins.
            kube_version: _,
            master_list: _,
            node_list: _,
            etcd_list: _,
            auth_config: _,
            // Not settings: for people, and for operations.
            region: _,
            timeout_mins: _,
            cluster_type,
            deploy_mode,
            pod_cidr,
            service_cidr,
            external_load_balancer,
            images_registry,
            api_server,
            load_balancer,
            network,
            certificates,
            container_runtime,
            extra_args,
            feature_gates,
            kernel_parameters,
        } = self.clone();
        let ApiServer { domain, port, cert_sans } = api_server.unwrap_or_default();
        let Network { cni, proxy_mode, dns_domain, node_mask_size, max_pods, node_port_range, mtu, firewall } =
            network.unwrap_or_default();
        let Certificates { ca_years } = certificates.unwrap_or_default();
        let node_mask_size = node_mask_size.unwrap_or(defaults::NODE_MASK_SIZE);
        Ok(ClusterSettings {
            api_domain: or_default(domain, defaults::API_DOMAIN)?,
            cert_sans,
            load_balancer: balancer(load_balancer.unwrap_or_default(), external_load_balancer)?,
            pod_cidr: or_default(pod_cidr, defaults::POD_CIDR)?,
            service_cidr: or_default(service_cidr, defaults::SERVICE_CIDR)?,
            node_mask_size,
            max_pods: max_pods
                .unwrap_or_else(|| defaults::MAX_PODS.min(defaults::pod_addresses(node_mask_size))),
            node_ports: or_default(node_port_range, defaults::NODE_PORT_RANGE)?,
            dns_domain: or_default(dns_domain, defaults::DNS_DOMAIN)?,
            proxy_mode: proxy_mode.unwrap_or(defaults::PROXY_MODE),
            feature_gates: feature_gates.map(String::from).unwrap_or_default(),
            ca_years: ca_years.unwrap_or(defaults::CA_YEARS),
            cluster_type: cluster_type.unwrap_or(defaults::CLUSTER_TYPE),
            deploy_mode: deploy_mode.unwrap_or(defaults::DEPLOY_MODE),
            api_port: port.unwrap_or(defaults::API_PORT),
            cni: cni.unwrap_or(defaults::CNI),
            mtu,
            firewall: firewall.unwrap_or(defaults::FIREWALL),
            images_registry,
            container_runtime: container_runtime.unwrap_or_default(),
            extra_args: extra_args.unwrap_or_default(),
            kernel_parameters,
        })
    }

    /// The settings without the fields of the load balancer, so that other mistakes can be found when these fields contradict
    /// each other.
    ///
    /// # Errors
    /// The same as [`Self::settings`], except for the load balancer.
    pub fn settings_without_load_balancer(&self) -> Result<ClusterSettings, SettingsError> {
        Self { load_balancer: None, external_load_balancer: None, ..self.clone() }.settings()
    }
}

fn or_default<T: std::str::FromStr<Err = NameError>>(
    given: Option<T>,
    default: &str,
) -> Result<T, SettingsError> {
    given.map_or_else(|| default.parse(), Ok).map_err(SettingsError::Default)
}

fn balancer(given: DeclaredLoadBalancer, short: Option<Endpoint>) -> Result<LoadBalancer, SettingsError> {
    let DeclaredLoadBalancer { mode, address, port } = given;
    let address = match (address, short) {
        (Some(address), Some(short)) if address != short => {
            return Err(SettingsError::TwoAddresses { address, short });
        }
        (address, short) => address.or(short),
    };
    let port = port.unwrap_or(defaults::API_PORT);
    match (mode, address) {
        (None | Some(LoadBalancerMode::External), Some(address)) => {
            Ok(LoadBalancer::External { address, port })
        }
        (Some(LoadBalancerMode::External), None) => Err(SettingsError::NoAddress),
        (Some(mode), Some(address)) => Err(SettingsError::NotExternal { mode, address }),
        (None | Some(LoadBalancerMode::Haproxy), None) => Ok(LoadBalancer::Haproxy),
        (Some(LoadBalancerMode::Updater), None) => Ok(LoadBalancer::Updater),
    }
}

impl ClusterSettings {
    /// The fields under `spec.cluster` that differ from `other`.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let Self {
            api_domain,
            cert_sans,
            load_balancer,
            pod_cidr,
            service_cidr,
            node_mask_size,
            max_pods,
            node_ports,
            dns_domain,
            proxy_mode,
            feature_gates,
            ca_years,
            cluster_type,
            deploy_mode,
            api_port,
            cni,
            mtu,
            firewall,
            images_registry,
            container_runtime,
            extra_args,
            kernel_parameters,
        } = self;
        let fields = [
            ("clusterType", *cluster_type != other.cluster_type),
            ("deployMode", *deploy_mode != other.deploy_mode),
            ("podCIDR", *pod_cidr != other.pod_cidr),
            ("serviceCIDR", *service_cidr != other.service_cidr),
            ("imagesRegistry", *images_registry != other.images_registry),
            ("apiServer.domain", *api_domain != other.api_domain),
            ("apiServer.port", *api_port != other.api_port),
            ("apiServer.certSANs", !same_names(cert_sans, &other.cert_sans)),
            ("loadBalancer", *load_balancer != other.load_balancer),
            ("network.cni", *cni != other.cni),
            ("network.proxyMode", *proxy_mode != other.proxy_mode),
            ("network.dnsDomain", *dns_domain != other.dns_domain),
            ("network.nodeMaskSize", *node_mask_size != other.node_mask_size),
            ("network.maxPods", *max_pods != other.max_pods),
            ("network.nodePortRange", *node_ports != other.node_ports),
            ("network.mtu", *mtu != other.mtu),
            ("network.firewall", *firewall != other.firewall),
            ("certificates.caYears", *ca_years != other.ca_years),
            ("containerRuntime", *container_runtime != other.container_runtime),
            ("extraArgs", *extra_args != other.extra_args),
            ("featureGates", *feature_gates != other.feature_gates),
            ("kernelParameters", *kernel_parameters != other.kernel_parameters),
        ];
        fields.into_iter().filter(|(_, differs)| *differs).map(|(field, _)| field).collect()
    }
}

/// Whether both lists contain the same names, in any order.
fn same_names(left: &[Endpoint], right: &[Endpoint]) -> bool {
    left.iter().all(|name| right.contains(name)) && right.iter().all(|name| left.contains(name))
}

impl From<&ClusterSettings> for DeclaredCluster {
    /// A declaration with these settings, without version and hosts.
    fn from(settings: &ClusterSettings) -> Self {
        let ClusterSettings {
            api_domain,
            cert_sans,
            load_balancer,
            pod_cidr,
            service_cidr,
            node_mask_size,
            max_pods,
            node_ports,
            dns_domain,
            proxy_mode,
            feature_gates,
            ca_years,
            cluster_type,
            deploy_mode,
            api_port,
            cni,
            mtu,
            firewall,
            images_registry,
            container_runtime,
            extra_args,
            kernel_parameters,
        } = settings.clone();
        let network = Network {
            cni: Some(cni),
            proxy_mode: Some(proxy_mode),
            dns_domain: Some(dns_domain),
            node_mask_size: Some(node_mask_size),
            max_pods: Some(max_pods),
            node_port_range: Some(node_ports),
            mtu,
            firewall: Some(firewall),
        };
        Self {
            cluster_type: Some(cluster_type),
            deploy_mode: Some(deploy_mode),
            pod_cidr: Some(pod_cidr),
            service_cidr: Some(service_cidr),
            images_registry,
            api_server: Some(ApiServer { domain: Some(api_domain), port: Some(api_port), cert_sans }),
            load_balancer: Some(declared_balancer(load_balancer)),
            network: Some(network),
            certificates: Some(Certificates { ca_years: Some(ca_years) }),
            container_runtime: Some(container_runtime).filter(|runtime| !runtime.is_empty()),
            extra_args: Some(extra_args).filter(|arguments| !arguments.is_empty()),
            feature_gates: feature_gates.parse().ok(),
            kernel_parameters,
            ..Self::default()
        }
    }
}

fn declared_balancer(load_balancer: LoadBalancer) -> DeclaredLoadBalancer {
    let of = |mode| DeclaredLoadBalancer { mode: Some(mode), ..DeclaredLoadBalancer::default() };
    match load_balancer {
        LoadBalancer::Haproxy => of(LoadBalancerMode::Haproxy),
        LoadBalancer::Updater => of(LoadBalancerMode::Updater),
        LoadBalancer::External { address, port } => DeclaredLoadBalancer {
            address: Some(address),
            port: Some(port),
            ..of(LoadBalancerMode::External)
        },
    }
}

/// Values for settings that an older state file does not contain.
mod older_state {
    use super::super::defaults;
    use super::{ClusterType, Cni, DeployMode, FirewallMode};

    pub(super) fn cluster_type() -> ClusterType {
        defaults::CLUSTER_TYPE
    }

    pub(super) fn deploy_mode() -> DeployMode {
        defaults::DEPLOY_MODE
    }

    pub(super) fn api_port() -> u16 {
        defaults::API_PORT
    }

    pub(super) fn cni() -> Cni {
        defaults::CNI
    }

    pub(super) fn firewall() -> FirewallMode {
        defaults::FIREWALL
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
    pub(super) fn is_default_firewall(mode: &FirewallMode) -> bool {
        *mode == defaults::FIREWALL
    }
}

/// A range of ports as `[first, last]`: the form of the state files.
mod port_pair {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    use super::PortRange;

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
    pub(super) fn serialize<S: Serializer>(ports: &PortRange, serializer: S) -> Result<S::Ok, S::Error> {
        (ports.first(), ports.last()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PortRange, D::Error> {
        let (first, last) = <(u16, u16)>::deserialize(deserializer)?;
        PortRange::new(first, last).map_err(de::Error::custom)
    }
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
        assert_eq!(settings.api_domain.as_str(), "apiserver.cluster.local");
        assert_eq!(settings.load_balancer, LoadBalancer::Haproxy);
        assert_eq!(settings.max_pods, 250);
        assert_eq!(settings.node_ports.to_string(), "30000-32767");
        assert_eq!((settings.ca_years, settings.api_port), (100, 6443));
        assert_eq!(
            (settings.cluster_type, settings.deploy_mode),
            (ClusterType::Kubernetes, DeployMode::Binary)
        );
    }

    #[test]
    fn the_default_of_max_pods_fits_the_addresses_of_a_node() {
        assert_eq!([24, 26, 28].map(defaults::pod_addresses), [253, 61, 13]);
        let network = Network { node_mask_size: Some(26), ..Network::default() };
        let cluster = DeclaredCluster { network: Some(network), ..DeclaredCluster::default() };
        assert_eq!(cluster.settings().unwrap().max_pods, 61);
    }

    #[test]
    fn an_address_selects_an_external_load_balancer() {
        let address: Endpoint = "10.0.0.100".parse().unwrap();
        let cluster =
            DeclaredCluster { external_load_balancer: Some(address.clone()), ..DeclaredCluster::default() };
        let settings = cluster.settings().unwrap();
        assert_eq!(settings.load_balancer, LoadBalancer::External { address, port: 6443 });
    }

    #[test]
    fn refuses_contradicting_fields_of_the_load_balancer() {
        let with = |mode, address: Option<&str>, short: Option<&str>| {
            let address = address.map(|text| text.parse().unwrap());
            let cluster = DeclaredCluster {
                load_balancer: Some(DeclaredLoadBalancer { mode, address, port: None }),
                external_load_balancer: short.map(|text| text.parse().unwrap()),
                ..DeclaredCluster::default()
            };
            assert_eq!(cluster.settings_without_load_balancer(), DeclaredCluster::default().settings());
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

    #[test]
    fn stored_settings_are_read_back_unchanged() {
        let mut settings = DeclaredCluster::default().settings().unwrap();
        for load_balancer in [
            LoadBalancer::Haproxy,
            LoadBalancer::Updater,
            LoadBalancer::External { address: "10.0.0.9".parse().unwrap(), port: 7443 },
        ] {
            settings.load_balancer = load_balancer;
            let text = serde_json::to_string(&settings).unwrap();
            assert_eq!(serde_json::from_str::<ClusterSettings>(&text).unwrap(), settings, "{text}");
        }
    }

    #[test]
    fn refuses_a_state_whose_first_port_is_above_its_last() {
        let mut state = serde_json::to_value(DeclaredCluster::default().settings().unwrap()).unwrap();
        state["nodePorts"] = serde_json::json!([32767, 30000]);
        let error = serde_json::from_value::<ClusterSettings>(state).unwrap_err().to_string();
        assert!(error.contains("the lower port first"), "{error}");
    }
}
