//! What was last seen of a business cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::operation::Phase;
use super::unset;
use crate::names::{HostAddress, HostName, Version};
use crate::schema::or_empty;

/// What was last seen of a cluster, computed from what was observed, never from what is wished.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesClusterStatus {
    /// Where the cluster stands.
    #[serde(default, deserialize_with = "unset::when_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "or_empty::<Phase>")]
    pub phase: Option<Phase>,
    /// Why it stands there, for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The Job of the latest operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// When the phase last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// What is true of the cluster, one entry per type.
    #[serde(default, deserialize_with = "unset::when_null", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The Kubernetes version that every master runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// Nodes that are Ready, of all that are declared: `2/3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// The operation that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The step that the operation is at: `9/27 etcd on h4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Where the API answers: `https://10.0.0.1:6443`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_endpoint: Option<String>,
    /// The Secret in this namespace that holds the kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret: Option<SecretName>,
    /// Every host of the cluster.
    #[serde(default, deserialize_with = "unset::when_null", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ip"]))]
    pub nodes: Vec<NodeStatus>,
}

/// A Secret in the object's namespace. Its name holds those of namespace and cluster, so a part of it may be longer than a
/// DNS name lets one be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretName {
    /// Its name.
    #[schemars(length(max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
}

/// What was last seen of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// The host's address.
    pub ip: HostAddress,
    /// Its name as a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<HostName>,
    /// Its part in the cluster: `master`, `worker`, `etcd`, joined by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Whether the node is Ready; absent while that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// The kubelet's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
}
