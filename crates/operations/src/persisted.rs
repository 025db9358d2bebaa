//! Secrets and ConfigMaps that outlive operations: what the engine must remember of a cluster, its admin kubeconfig, the
//! SSH keys of its hosts. The operator makes them empty; the runner of the Job that is named on them, and no other, writes
//! what is in them.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kubeon_api::{DataRef, labels};

use crate::names;
use crate::object::{NewObject, ObjectPatch};
use crate::operation::inputs::Obstacle;
use crate::operation::wait::Wait;
use crate::view::View;
use crate::write::{Change, ObjectKind, ObjectRef, Write};

/// What is kept.
pub(crate) struct PersistedObject<'a> {
    /// Secret or ConfigMap.
    pub kind: ObjectKind,
    /// Its name.
    pub name: &'a str,
    /// The cluster that it is for, as a label has it.
    pub cluster: &'a str,
    /// What it goes with by itself, if anything.
    pub owner: Option<OwnerReference>,
}

/// The cluster of that name in that namespace, as a label has it.
pub(crate) fn cluster(namespace: &str, name: &str) -> String {
    names::label(&format!("{namespace}.{name}"))
}

/// Makes it, or gives it into the hands of this Job; nothing when that is so already.
pub(crate) fn hand_over(
    s: &View<'_>,
    kept: PersistedObject<'_>,
    job: &DataRef,
    operation: &str,
) -> Result<Option<Write>, Obstacle> {
    let target = ObjectRef::new(kept.kind, &job.namespace, kept.name);
    let (why, change) = match s.objects.meta(&target) {
        None => ("what its runner keeps has a place", Change::Create(empty(&target, kept, &job.name))),
        Some(meta) if meta.cluster.as_deref() != Some(kept.cluster) => {
            let text = format!(
                "{} {}/{} is there and was not made for this cluster: take it away, or label it {}={}",
                target.kind.as_str(),
                target.namespace,
                target.name,
                labels::CLUSTER,
                kept.cluster
            );
            return Err(Obstacle::Wait(Wait::Missing(text)));
        }
        Some(meta) if meta.job.as_deref() == Some(&job.name) => return Ok(None),
        Some(_) => {
            let named = ObjectMeta {
                annotations: Some([(labels::JOB.to_owned(), job.name.clone())].into()),
                ..ObjectMeta::default()
            };
            ("what its runner keeps is handed over to it", Change::Merge(ObjectPatch::of_metadata(named)))
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
