//! Where objects are, as paths and as references.

use k8s_openapi::api::core::v1::ObjectReference;
use kubeon_link_kube::Path;
use kubeon_operations::{Kind, Target};

fn kind(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Cluster => ("kubeonkube.clay.io/v1alpha1", "clusters"),
        Kind::Operation => ("kubeonkube.clay.io/v1alpha1", "clusteroperations"),
        Kind::Business => ("ecs.yun.com/v1", "kubernetesclusters"),
        Kind::Job => ("batch/v1", "jobs"),
        Kind::ConfigMap => ("v1", "configmaps"),
        Kind::Secret => ("v1", "secrets"),
        Kind::Log => ("v1", "pods"),
    }
}

/// Where an object is.
pub(crate) fn path(target: &Target) -> Path<'_> {
    let (api, plural) = kind(target.kind);
    Path { api, plural, namespace: &target.namespace, name: &target.name }
}

/// An object as an event names it.
pub(crate) fn reference(target: &Target, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(kind(target.kind).0.to_owned()),
        kind: Some(target.kind.as_str().to_owned()),
        name: Some(target.name.clone()),
        namespace: Some(target.namespace.clone()).filter(|namespace| !namespace.is_empty()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}
