//! The messages of the first version, with the names of kubernetes-operator.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The body of every answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Envelope {
    /// The name of the HTTP status: `OK`, `Bad Request`.
    pub code: String,
    /// `success`, the log, or what is wrong.
    pub message: String,
}

/// A request about a cluster. Other fields are those of `spec.cluster` of a `KubernetesCluster`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBody {
    /// The name of the cluster. Default: the name in the path.
    #[serde(default)]
    pub name: String,
    /// The namespace of the caller; another one is refused.
    #[serde(default)]
    pub namespace: String,
    /// The region. Default: the region in the path.
    #[serde(default)]
    pub region: String,
    /// Repeat the operation that failed. Default: false.
    #[serde(default)]
    pub retry: bool,
    /// The private key of the account on the hosts: PEM, or the base64 of a PEM.
    #[serde(default, rename = "privateSSHKey", skip_serializing_if = "Option::is_none")]
    pub private_ssh_key: Option<String>,
    /// The fields of `spec.cluster`.
    #[serde(flatten)]
    pub cluster: Map<String, Value>,
}

/// The result of an operation. Other fields are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallbackBody {
    /// The name of the cluster. Default: the name in the path.
    #[serde(default)]
    pub name: String,
    /// The namespace of the cluster. Default: `default`.
    #[serde(default)]
    pub namespace: String,
    /// Whether the operation succeeded.
    #[serde(default)]
    pub success: bool,
    /// Why it failed.
    #[serde(default)]
    pub message: String,
}
