//! The fields under `spec.cluster`. [`DeclaredCluster::settings`] fills in the defaults of absent fields.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::choices::{ClusterType, Cni, DeployMode, FirewallMode, HostKeyMode, LoadBalancerMode, ProxyMode};
use super::container_runtime::ContainerRuntime;
use super::extra_args::ExtraArgs;
use super::feature_gates::FeatureGates;
use super::nodes::NodeList;
use super::timeout::TimeoutMins;
use super::{rules, unset};
use crate::addresses::{DnsName, Endpoint, LoginName, PortRange, Registry};
use crate::labels::LabelValue;
use crate::names::{Cidr, Version};
use crate::schema::{add_alias, or_empty};
use crate::secret::{PrivateKey, Secret};

/// The declaration of a business cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = finish_cluster)]
pub struct DeclaredCluster {
    /// The Kubernetes version, such as v1.36.3. Default: the newest of the catalogue. It can be raised, not lowered.
    #[serde(default, deserialize_with = "unset::when_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "or_empty::<Version>")]
    pub kube_version: Option<Version>,
    /// Hosts of the control plane, at most 15. Use 1, 3 or 5. Entries that repeat another one are dropped.
    #[serde(default, deserialize_with = "unset::when_null", skip_serializing_if = "NodeList::is_empty")]
    #[schemars(length(max = 15))]
    pub master_list: NodeList,
    /// Hosts for workloads, at most 5000. A host is a master or a worker, not both.
    #[serde(default, deserialize_with = "unset::when_null", skip_serializing_if = "NodeList::is_empty")]
    #[schemars(length(max = 5000))]
    pub node_list: NodeList,
    /// Hosts of etcd, at most 9, and an odd number when the cluster is made. Default: the masters.
    #[serde(default, deserialize_with = "unset::when_null", skip_serializing_if = "NodeList::is_empty")]
    #[schemars(length(max = 9))]
    pub etcd_list: NodeList,
    /// How kubeon logs in to the hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_config: Option<AuthConfig>,
    /// The distribution. Default: kubernetes. Fixed once set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_type: Option<ClusterType>,
    /// How the control plane runs. Default: binary. Fixed once set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy_mode: Option<DeployMode>,
    /// Network of the pods. Default: 10.96.0.0/12. Fixed once set.
    #[serde(
        default,
        rename = "podCIDR",
        alias = "containerCIDR",
        deserialize_with = "unset::when_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "or_empty::<Cidr>")]
    pub pod_cidr: Option<Cidr>,
    /// Network of the services. Default: 10.64.0.0/12. Fixed once set.
    #[serde(
        default,
        rename = "serviceCIDR",
        deserialize_with = "unset::when_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "or_empty::<Cidr>")]
    pub service_cidr: Option<Cidr>,
    /// Address or name of a load balancer that exists; kubeon checks that it answers and changes nothing on it.
    #[serde(
        default,
        alias = "masterVIP",
        deserialize_with = "unset::when_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "or_empty::<Endpoint>")]
    pub external_load_balancer: Option<Endpoint>,
    /// The region of the hosts. Free text for people and filters; fixed once set.
    #[serde(default, deserialize_with = "unset::when_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "or_empty::<LabelValue>")]
    pub region: Option<LabelValue>,
    /// A registry that mirrors every image of the cluster. Default: the images come with the bundle.
    #[serde(default, deserialize_with = "unset::when_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "or_empty::<Registry>")]
    pub images_registry: Option<Registry>,
    /// Minutes that one operation may take, 1 to 1440. Default: 10.
    #[serde(
        default,
        rename = "timeout_mins",
        alias = "timeoutMins",
        deserialize_with = "TimeoutMins::when_given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "TimeoutMins")]
    pub timeout_mins: Option<TimeoutMins>,
    /// How the API server is reached and named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server: Option<ApiServer>,
    /// How workers reach the masters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<DeclaredLoadBalancer>,
    /// The network inside the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<Certificates>,
    /// How the container runtime reaches registries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_runtime: Option<ContainerRuntime>,
    /// Further arguments of the Kubernetes programs. Arguments that kubeon sets itself are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_args: Option<ExtraArgs>,
    /// Feature gates of the Kubernetes programs: Name=true or Name=false, joined by commas.
    #[serde(default, deserialize_with = "unset::when_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "or_empty::<FeatureGates>")]
    pub feature_gates: Option<FeatureGates>,
    /// Kernel parameters of every host that runs a node, at most 64, by names such as vm.max_map_count. Those that kubeon and
    /// the programs of the cluster set are refused.
    #[serde(default, deserialize_with = "unset::when_null", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "kernel_parameters")]
    pub kernel_parameters: BTreeMap<String, String>,
}

fn kernel_parameters(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": { "type": "string", "maxLength": 256 }
    })
}

fn finish_cluster(schema: &mut Schema) {
    add_alias(schema, "timeoutMins", "timeout_mins");
    add_alias(schema, "containerCIDR", "podCIDR");
    add_alias(schema, "masterVIP", "externalLoadBalancer");
    rules::add(schema, &rules::cluster());
}

/// Programs to install into the cluster. Empty in this version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("properties" = {}))]
pub struct Addons {}

/// How kubeon logs in to the hosts: with a Secret, or with credentials in this object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthConfig {
    /// A Secret with the credentials. It overrides the other fields and is the recommended way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_ref: Option<CredentialsRef>,
    /// The account. Default: root. Another account needs sudo.
    #[serde(default, deserialize_with = "unset::when_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "or_empty::<LoginName>")]
    pub username: Option<LoginName>,
    /// The account's password; with a key, the key's passphrase. Anyone who may read this object reads it.
    #[serde(default, deserialize_with = "unset::when_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "or_empty::<Secret>")]
    pub password: Option<Secret>,
    /// The private key: PEM, or the base64 of a PEM. Anyone who may read this object reads it.
    #[serde(
        default,
        rename = "privateSSHKey",
        deserialize_with = "unset::when_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "or_empty::<PrivateKey>")]
    pub private_ssh_key: Option<PrivateKey>,
    /// Which SSH host keys are accepted. Default: firstContact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_keys: Option<HostKeyMode>,
}

/// A Secret with the keys `ssh-privatekey`, `passphrase`, `username`, `password` and `sudo-password`, each optional.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsRef {
    /// The Secret's name.
    pub name: DnsName,
    /// The Secret's namespace. Default: that of the cluster.
    #[serde(default, deserialize_with = "unset::when_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "or_empty::<DnsName>")]
    pub namespace: Option<DnsName>,
}

/// How the API server is reached and named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiServer {
    /// The name under which hosts reach the API. Default: apiserver.cluster.local.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<DnsName>,
    /// The port on every master. Default: 6443.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Further names and addresses for the API server's certificate, at most 100.
    #[serde(
        default,
        rename = "certSANs",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "unset::when_null"
    )]
    #[schemars(length(max = 100))]
    pub cert_sans: Vec<Endpoint>,
}

/// How workers reach the masters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredLoadBalancer {
    /// Default: external where an address is given, else haproxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<LoadBalancerMode>,
    /// Address or name of the external load balancer; externalLoadBalancer is the shorter form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Endpoint>,
    /// Its port. Default: 6443.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
}

/// The network inside the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// The network plugin: flannel, or none, which the owner of the cluster installs. Default: flannel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cni: Option<Cni>,
    /// How Services are implemented; bpf, with cni none only, is by the owner's network plugin, without kube-proxy. Default:
    /// nftables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_mode: Option<ProxyMode>,
    /// The cluster's DNS domain. Default: cluster.local.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns_domain: Option<DnsName>,
    /// Prefix length of every node's share of podCIDR, 16 to 28. Default: 24.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 16, max = 28))]
    pub node_mask_size: Option<u8>,
    /// Pods per node. Default: 250, or fewer if nodeMaskSize has fewer addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4, max = 65000))]
    pub max_pods: Option<u32>,
    /// Ports for Services of type NodePort. Default: 30000-32767.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port_range: Option<PortRange>,
    /// The largest packet of a pod, in bytes. Default: as large as the links of each host allow. A change concerns new pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 576, max = 65000))]
    pub mtu: Option<u32>,
    /// What kubeon does with the firewalls of hosts: manage opens firewalld, ufw or the rules of nft. Default: check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firewall: Option<FirewallMode>,
}

/// Certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Certificates {
    /// Life of the certificate authorities in years, 1 to 100. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = super::defaults::MAX_CA_YEARS))]
    pub ca_years: Option<u32>,
}
