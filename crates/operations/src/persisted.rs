//! Secrets and ConfigMaps that outlive operations: the engine's state of a cluster, its admin kubeconfig, and
//! the SSH keys of its hosts. The operator creates them empty. Only the runner of the Job in their annotation
//! writes their content.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kubeon_api::{DataRef, labels};

use crate::names;
use crate::object::{NewObject, ObjectPatch};
use crate::operation::inputs::Obstacle;
use crate::operation::wait::Wait;
use crate::view::View;
use crate::write::{Change, ObjectKind, ObjectRef, Write};

/// An object that outlives operations.
pub(crate) struct PersistedObject<'a> {
    /// Secret or ConfigMap.
    pub kind: ObjectKind,
    /// The name of the object.
    pub name: &'a str,
    /// The cluster that the object belongs to, as a label value.
    pub cluster: &'a str,
    /// The owner with which the object is deleted, if any. An object without one loses that of an earlier version.
    pub owner: Option<OwnerReference>,
}

/// The label value of a cluster.
pub(crate) fn cluster(namespace: &str, name: &str) -> String {
    names::label(&format!("{namespace}.{name}"))
}

/// Creates the object, or assigns it to this Job; `None` when it is already assigned to the Job.
pub(crate) fn assign(
    s: &View<'_>,
    object: PersistedObject<'_>,
    job: &DataRef,
    operation: &str,
) -> Result<Option<Write>, Obstacle> {
    let target = ObjectRef::new(object.kind, &job.namespace, object.name);
    let (why, change) = match s.objects.meta(&target) {
        None => {
            ("the runner needs a place for persisted data", Change::Create(empty(&target, object, &job.name)))
        }
        Some(meta) if meta.cluster.as_deref() != Some(object.cluster) => {
            let text = format!(
                "{} {}/{} exists and does not belong to this cluster: delete it, or label it {}={}",
                target.kind.as_str(),
                target.namespace,
                target.name,
                labels::CLUSTER,
                object.cluster
            );
            return Err(Obstacle::Wait(Wait::Missing(text)));
        }
        Some(meta) if meta.job.as_deref() == Some(&job.name) => return Ok(None),
        Some(_) => {
            let named = ObjectMeta {
                annotations: Some([(labels::JOB.to_owned(), job.name.clone())].into()),
                owner_references: object.owner.is_none().then(Vec::new),
                ..ObjectMeta::default()
            };
            (
                "the runner of the Job may write the persisted data",
                Change::Merge(ObjectPatch::of_metadata(named)),
            )
        }
    };
    Ok(Some(Write { why: why.to_owned(), target, change, operation: Some(operation.to_owned()) }))
}

fn empty(target: &ObjectRef, object: PersistedObject<'_>, job: &str) -> NewObject {
    let metadata = ObjectMeta {
        name: Some(target.name.clone()),
        namespace: Some(target.namespace.clone()),
        labels: Some([(labels::CLUSTER.to_owned(), object.cluster.to_owned())].into()),
        annotations: Some([(labels::JOB.to_owned(), job.to_owned())].into()),
        owner_references: object.owner.map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    if target.kind == ObjectKind::Secret {
        Secret { metadata, type_: Some("Opaque".to_owned()), ..Secret::default() }.into()
    } else {
        ConfigMap { metadata, ..ConfigMap::default() }.into()
    }
}
