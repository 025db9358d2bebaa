//! A `Cluster` as owner of other objects and as the subject of events.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kubeon_api::{Cluster, ClusterOperation};

use crate::operation::{name, target};
use crate::view::{ClusterObject, Observed, View};
use crate::write::{Notice, ObjectKind, ObjectRef};

/// The `ownerReferences` entry of a Cluster.
pub(crate) fn owner(cluster: &Cluster) -> OwnerReference {
    OwnerReference {
        api_version: "kubeonkube.clay.io/v1alpha1".to_owned(),
        kind: "Cluster".to_owned(),
        name: cluster.metadata.name.clone().unwrap_or_default(),
        uid: cluster.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

/// A notice about a Cluster.
pub(crate) fn notice(cluster: &Cluster, warning: bool, reason: &'static str, text: String) -> Notice {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let uid = cluster.metadata.uid.clone().unwrap_or_default();
    let about = ObjectRef::new(ObjectKind::Cluster, "", name);
    Notice { with: about.clone(), about, uid, warning, reason, text }
}

/// The event about an operation that is recorded on its Cluster, after the status of the operation was
/// written. `None` when the operation is derived from a `KubernetesCluster`.
pub(crate) fn operation_notice(
    s: &View<'_>,
    operation: &ClusterOperation,
    warning: bool,
    reason: &'static str,
    text: &str,
) -> Option<Notice> {
    let ClusterObject::Cluster(Observed::Found(cluster)) = &s.subject else { return None };
    let text = format!("{}: {text}", name(operation));
    Some(notice(cluster, warning, reason, text).with(target(operation)))
}
