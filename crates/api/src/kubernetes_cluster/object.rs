//! The object: its kind, its columns, and the fields of its spec.

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::choices::{DeletionPolicy, RepairPolicy};
use super::flat;
use super::maintenance::MaintenanceWindow;
use super::snapshots::Snapshots;
use super::spec::{Addons, DeclaredCluster};
use super::status::KubernetesClusterStatus;
use crate::job_placement::ClusterJobPlacement;
use crate::names::{ClusterName, NameError};

/// The desired state of a business cluster.
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
    doc = "A Kubernetes cluster on hosts that are reached over SSH: declared here, created and managed by kubeon.",
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
    /// Programs to install into the cluster. No field exists yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addons: Option<Addons>,
    /// While true, kubeon changes nothing on the hosts. An operation that runs ends its running steps, and continues later.
    /// Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// While true, a change of the hosts is planned first, and applied after the annotation kubeon.io/approve has named the
    /// operation with the plan. Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plan: bool,
    /// When changes of the hosts may begin, after the cluster was created. What has begun continues after the end of a window.
    /// Deletions, snapshots and renewals do not wait. Default: at any time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub maintenance_windows: Vec<MaintenanceWindow>,
    /// When what is broken on the hosts is repaired: missing steps are done again. Default: OnRequest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<RepairPolicy>,
    /// What happens to the hosts when this object is deleted. Default: Delete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// Snapshots of etcd in an object store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<Snapshots>,
    /// Where and with which limits the pods of its operations run in the meta cluster. Default: as the installation says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_placement: Option<ClusterJobPlacement>,
}

impl<'de> Deserialize<'de> for KubernetesClusterSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut form = flat::EitherForm::deserialize(deserializer)?;
        Ok(Self {
            addons: form.addons.take(),
            paused: form.paused,
            plan: form.plan,
            maintenance_windows: std::mem::take(&mut form.maintenance_windows),
            repair: form.repair,
            deletion_policy: form.deletion_policy,
            snapshots: form.snapshots.take(),
            job_placement: form.job_placement.take(),
            cluster: form.into_cluster().map_err(de::Error::custom)?,
        })
    }
}

impl KubernetesClusterSpec {
    /// The deletion policy, with its default.
    #[must_use]
    pub fn on_deletion(&self) -> DeletionPolicy {
        self.deletion_policy.unwrap_or(DeletionPolicy::Delete)
    }
}

impl KubernetesCluster {
    /// The validated name of the cluster.
    ///
    /// # Errors
    /// When the object has no name, or its name is not a DNS label.
    pub fn cluster_name(&self) -> Result<ClusterName, NameError> {
        self.metadata.name.as_deref().unwrap_or_default().parse()
    }
}
