//! A cluster as clients see it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A cluster in a list or in an event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    /// Its namespace in the meta cluster.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The version of the object: a later one replaces this one.
    pub resource_version: String,
    /// The number of its declaration: each change of the spec counts it up.
    #[serde(default)]
    pub generation: i64,
    /// The declaration that the operator has processed: with an older one, phase and operation belong to that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When it was declared, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// `Prechecking`, `Creating`, `Scaling`, `Updating`, `Repairing`, `Snapshotting`, `Running`, `Failed` or `Terminating`; absent before the operator has seen it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The reason for the phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The region of its hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The Kubernetes version that every master runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Nodes that are Ready, of all that are declared: `2/3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// Number of declared masters.
    pub masters: usize,
    /// Number of declared workers.
    pub workers: usize,
    /// The running operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The current step of the operation: `9/27 etcd on h4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The URL of its API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_endpoint: Option<String>,
}

/// A cluster with its declaration. Passwords and keys are left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDetail {
    /// What a list shows.
    #[serde(flatten)]
    pub summary: ClusterView,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The fields of `spec`, without passwords and keys.
    pub spec: serde_json::Value,
    /// The Secret in its namespace with the kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret: Option<String>,
    /// Its conditions.
    pub conditions: Vec<ConditionView>,
}

/// A condition of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConditionView {
    /// Its type, such as `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in CamelCase.
    pub reason: String,
    /// Why, for a person.
    pub message: String,
    /// When the status last changed, RFC 3339.
    pub last_transition: String,
}

/// A host of a cluster, as it was observed. Of a host that was not observed, only what is declared is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostView {
    /// Its address.
    pub ip: String,
    /// Its name as a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its roles, joined by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Whether the node is Ready; absent while that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// The kubelet's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}
