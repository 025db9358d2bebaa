//! The observed state of a business cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::node_roles::NodeRoles;
use super::operation::Phase;
use super::unset;
use crate::names::{HostAddress, HostName, Version};
use crate::schema::or_empty;

/// The observed state of a cluster. It is computed from observations, never from the spec.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesClusterStatus {
    /// The phase of the cluster.
    #[serde(default, deserialize_with = "unset::when_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "or_empty::<Phase>")]
    pub phase: Option<Phase>,
    /// The reason for the phase, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The Job of the latest operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// When the phase last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Conditions of the cluster, one entry for each type.
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
    /// The running operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The current step of the operation: `9/27 etcd on h4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The URL of the API server: `https://10.0.0.1:6443`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_endpoint: Option<String>,
    /// The Secret in this namespace that holds the kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret: Option<SecretName>,
    /// When snapshots of etcd were taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<SnapshotsStatus>,
    /// The hosts of the cluster: all of them, or as many as have 12 KiB, those that are not ready first. `ready` counts all.
    #[serde(default, deserialize_with = "unset::when_null", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["ip"]))]
    pub nodes: Vec<NodeStatus>,
}

/// When snapshots were taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotsStatus {
    /// When the newest snapshot was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_time: Option<Time>,
    /// When the last attempt ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt_time: Option<Time>,
}

/// A Secret in the object's namespace. Its name is made of the names of namespace and cluster, so one label of it may be
/// longer than 63 characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretName {
    /// Its name.
    #[schemars(length(max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
}

/// The observed state of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// The host's address.
    pub ip: HostAddress,
    /// Its name as a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<HostName>,
    /// The roles of the host: `master`, `worker`, `etcd`, joined by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<NodeRoles>,
    /// Whether the node is Ready; absent while that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// The kubelet's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
}
