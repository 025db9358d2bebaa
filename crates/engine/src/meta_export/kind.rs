//! The kinds of exported objects.

use serde_json::Value;

/// A kind of exported objects. The order is that of a restore: an object comes after those that it refers to by UID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MetaKind {
    /// A namespace, with nothing but its pool of hosts.
    Namespace,
    /// A cluster of playbooks.
    Cluster,
    /// A declared cluster.
    KubernetesCluster,
    /// An operation.
    Operation,
    /// Inventories, variables, scripts, host keys, logs, plans.
    ConfigMap,
    /// States, kubeconfigs, credentials.
    Secret,
}

impl MetaKind {
    /// Every kind, in the order of a restore.
    pub(crate) const ALL: [Self; 6] = [
        Self::Namespace,
        Self::Cluster,
        Self::KubernetesCluster,
        Self::Operation,
        Self::ConfigMap,
        Self::Secret,
    ];

    /// The kind of an object, if such objects are exported.
    pub(crate) fn of(object: &Value) -> Option<Self> {
        let name = object["kind"].as_str()?;
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name in Kubernetes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::Cluster => "Cluster",
            Self::KubernetesCluster => "KubernetesCluster",
            Self::Operation => "ClusterOperation",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }

    /// Its group and version.
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::Namespace | Self::ConfigMap | Self::Secret => "v1",
            Self::Cluster | Self::Operation => "kubeonkube.clay.io/v1alpha1",
            Self::KubernetesCluster => "ecs.yun.com/v1",
        }
    }

    /// The path of all its objects in the API.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Namespace => "/api/v1/namespaces",
            Self::Cluster => "/apis/kubeonkube.clay.io/v1alpha1/clusters",
            Self::KubernetesCluster => "/apis/ecs.yun.com/v1/kubernetesclusters",
            Self::Operation => "/apis/kubeonkube.clay.io/v1alpha1/clusteroperations",
            Self::ConfigMap => "/api/v1/configmaps",
            Self::Secret => "/api/v1/secrets",
        }
    }

    /// Its name for kubectl.
    pub(crate) fn resource(self) -> &'static str {
        match self {
            Self::Namespace => "namespaces",
            Self::Cluster => "clusters.kubeonkube.clay.io",
            Self::KubernetesCluster => "kubernetesclusters.ecs.yun.com",
            Self::Operation => "clusteroperations.kubeonkube.clay.io",
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
        }
    }
}
