//! API paths of objects, and references to them in events.

use k8s_openapi::api::core::v1::ObjectReference;
use kubeon_link_kube::ResourcePath;
use kubeon_operations::{ObjectKind, ObjectRef};

fn kind(kind: ObjectKind) -> (&'static str, &'static str) {
    match kind {
        ObjectKind::Cluster => ("kubeonkube.clay.io/v1alpha1", "clusters"),
        ObjectKind::Operation => ("kubeonkube.clay.io/v1alpha1", "clusteroperations"),
        ObjectKind::KubernetesCluster => ("ecs.yun.com/v1", "kubernetesclusters"),
        ObjectKind::Job => ("batch/v1", "jobs"),
        ObjectKind::ConfigMap => ("v1", "configmaps"),
        ObjectKind::Secret => ("v1", "secrets"),
        ObjectKind::Log => ("v1", "pods"),
    }
}

/// The API path of an object.
pub(crate) fn path(target: &ObjectRef) -> ResourcePath<'_> {
    let (api, plural) = kind(target.kind);
    ResourcePath { api, plural, namespace: &target.namespace, name: &target.name }
}

/// The reference to an object in an event.
pub(crate) fn reference(target: &ObjectRef, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(kind(target.kind).0.to_owned()),
        kind: Some(target.kind.as_str().to_owned()),
        name: Some(target.name.clone()),
        namespace: Some(target.namespace.clone()).filter(|namespace| !namespace.is_empty()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}
