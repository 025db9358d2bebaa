//! The metadata of a `KubernetesCluster`, and writes and events about it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kubeon_api::{KubernetesCluster, KubernetesClusterStatus, Version, labels};

use crate::kstatus;
use crate::object::{ObjectPatch, StatusPatch};
use crate::write::{Change, Notice, ObjectKind, ObjectRef, Write};

pub(super) fn object_target(object: &KubernetesCluster) -> ObjectRef {
    ObjectRef::new(ObjectKind::KubernetesCluster, namespace(object), object_name(object))
}

pub(super) fn namespace(object: &KubernetesCluster) -> &str {
    object.metadata.namespace.as_deref().unwrap_or_default()
}

pub(super) fn object_name(object: &KubernetesCluster) -> &str {
    object.metadata.name.as_deref().unwrap_or_default()
}

pub(super) fn finalizer_name(object: &KubernetesCluster) -> String {
    format!("{}{}", labels::FINALIZER_PREFIX, object_name(object))
}

/// The version that the masters run, if it is known.
pub(super) fn running_version(object: &KubernetesCluster) -> Option<Version> {
    object.status.as_ref()?.version
}

pub(super) fn has_finalizer(object: &KubernetesCluster) -> bool {
    let own_finalizer = finalizer_name(object);
    object.metadata.finalizers.iter().flatten().any(|finalizer| *finalizer == own_finalizer)
}

/// A patch that sets these finalizers on the observed version of the object.
pub(super) fn finalizers_patch(object: &KubernetesCluster, finalizers: Vec<String>) -> ObjectPatch {
    ObjectPatch::of_metadata(ObjectMeta {
        finalizers: Some(finalizers),
        resource_version: object.metadata.resource_version.clone(),
        ..ObjectMeta::default()
    })
}

pub(super) fn object_write(object: &KubernetesCluster, why: impl Into<String>, change: Change) -> Write {
    Write { why: why.into(), target: object_target(object), change, operation: None }
}

pub(super) fn object_notice(
    object: &KubernetesCluster,
    warning: bool,
    reason: &'static str,
    text: impl Into<String>,
) -> Notice {
    let uid = object.metadata.uid.clone().unwrap_or_default();
    let about = object_target(object);
    Notice { with: about.clone(), about, uid, warning, reason, text: text.into() }
}

/// The change of the object's status to `new` with the conditions of kstatus; `None` when it is equal.
pub(super) fn status_write_as_given(
    object: &KubernetesCluster,
    mut new: KubernetesClusterStatus,
    now: Timestamp,
    why: impl Into<String>,
) -> Option<Write> {
    kstatus::show_cluster(&mut new, object.metadata.deletion_timestamp.is_some(), now);
    let before = object.status.clone().unwrap_or_default();
    let patch = StatusPatch::between(object.metadata.resource_version.as_deref(), Some(&before), &new)?;
    Some(object_write(object, why, Change::Status(patch)))
}
