//! The `Cluster`: the addresses of the hosts and how to log in to them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::operation::OperationResult;
use super::reference::DataRef;
use crate::job_placement::ClusterJobPlacement;
use crate::open_words::open_words;

open_words! {
    /// The result of an operation in the history of its Cluster.
    RecordedResult {
        /// The operation waits for its Job.
        Waiting = "",
        /// Its Job runs.
        Running = "Running",
        /// Its Job succeeded.
        Succeeded = "Succeeded",
        /// It failed.
        Failed = "Failed",
    }
}

impl RecordedResult {
    /// Whether the operation has no result yet; the history then omits the field.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        *self == Self::Waiting
    }
}

impl From<Option<OperationResult>> for RecordedResult {
    fn from(result: Option<OperationResult>) -> Self {
        match result {
            None => Self::Waiting,
            Some(OperationResult::Running) => Self::Running,
            Some(OperationResult::Succeeded) => Self::Succeeded,
            Some(OperationResult::Failed) => Self::Failed,
        }
    }
}

/// The hosts of a cluster, and how to log in to them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "kubeonkube.clay.io",
    version = "v1alpha1",
    kind = "Cluster",
    plural = "clusters",
    singular = "cluster",
    status = "ClusterStatus",
    derive = "PartialEq",
    crates(kube_core = "::kube_core"),
    doc = "Hosts for a cluster: an Ansible inventory, its variables and a key, by reference. Deleting it never touches the hosts.",
    printcolumn(name = "Operations", type_ = "integer", json_path = ".status.operations", priority = "1"),
    printcolumn(name = "Latest", type_ = "string", json_path = ".status.latest"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[0].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// ConfigMap whose key `hosts.yml` is the Ansible inventory.
    pub hosts_conf_ref: DataRef,
    /// ConfigMap whose key `group_vars.yml` holds the variables.
    pub vars_conf_ref: DataRef,
    /// Secret with the kubeconfig of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_conf_ref: Option<DataRef>,
    /// Secret whose key `ssh-privatekey` logs in; without it the inventory's passwords do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_auth_ref: Option<DataRef>,
    /// ConfigMap with the result of the latest precheck.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre_check_ref: Option<DataRef>,
    /// Where and with which limits the pods of its operations run. Default: as the installation says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_placement: Option<ClusterJobPlacement>,
}

/// The operations of a cluster, newest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// One entry for each operation.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub conditions: Vec<ClusterCondition>,
    /// How many operations are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<i32>,
    /// The name of the newest operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<String>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Why an object that the cluster refers to cannot be used, for people; absent when all can be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The last operations that the limit of the history removed, oldest first. Such an operation does not run again when it is
    /// created again, as tools do that install from Git.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub removed: Vec<RemovedOperation>,
}

/// An operation that the limit of the history removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemovedOperation {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The digest of its spec.
    #[schemars(length(max = 64))]
    pub digest: String,
    /// How it ended.
    pub result: OperationResult,
}

/// One operation in the history.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterCondition {
    /// The operation's name.
    pub cluster_ops: String,
    /// Its status: empty, `Running`, `Succeeded` or `Failed`.
    #[serde(default, skip_serializing_if = "RecordedResult::is_waiting")]
    pub status: RecordedResult,
    /// When its Job was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
}
