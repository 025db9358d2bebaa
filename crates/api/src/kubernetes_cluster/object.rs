//! The object itself: its kind, its columns, and what is beside the cluster in its spec.

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::choices::DeletionPolicy;
use super::flat;
use super::spec::{Addons, DeclaredCluster};
use super::status::KubernetesClusterStatus;
use crate::names::{ClusterName, NameError};

/// What is wanted of a business cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, CustomResource, JsonSchema)]
#[kube(
    group = "ecs.yun.com",
    version = "v1",
    kind = "KubernetesCluster",
    plural = "kubernetesclusters",
    singular = "kubernetescluster",
    shortname = "ecs",
    namespaced,
    status = "KubernetesClusterStatus",
    derive = "PartialEq",
    crates(kube_core = "::kube_core"),
    doc = "A Kubernetes cluster on hosts that are reached over SSH: declared here, made and kept by kubeon.",
    printcolumn(name = "Status", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Operation", type_ = "string", json_path = ".status.operation"),
    printcolumn(name = "Step", type_ = "string", json_path = ".status.step"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.ready"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = flat::finish)]
pub struct KubernetesClusterSpec {
    /// The cluster.
    #[schemars(schema_with = "flat::inline::<DeclaredCluster>")]
    pub cluster: DeclaredCluster,
    /// What is installed into the cluster. Nothing can be named here yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addons: Option<Addons>,
    /// While true, nothing is changed on the hosts. Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// What becomes of the hosts when this object is deleted. Default: Delete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
}

impl<'de> Deserialize<'de> for KubernetesClusterSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut form = flat::EitherForm::deserialize(deserializer)?;
        Ok(Self {
            addons: form.addons.take(),
            paused: form.paused,
            deletion_policy: form.deletion_policy,
            cluster: form.into_cluster().map_err(de::Error::custom)?,
        })
    }
}

impl KubernetesClusterSpec {
    /// What becomes of the hosts when the object is deleted.
    #[must_use]
    pub fn on_deletion(&self) -> DeletionPolicy {
        self.deletion_policy.unwrap_or(DeletionPolicy::Delete)
    }
}

impl KubernetesCluster {
    /// The cluster's name, proven.
    ///
    /// # Errors
    /// When the object has no name or one that is no DNS label.
    pub fn cluster_name(&self) -> Result<ClusterName, NameError> {
        self.metadata.name.as_deref().unwrap_or_default().parse()
    }
}
