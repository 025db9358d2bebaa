//! Secrets and ConfigMaps that outlive operations: the engine's state of a cluster, its admin kubeconfig, and
//! the SSH keys of its hosts. The operator creates them empty. Only the runner of the Job in their annotation
//! writes their content.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kubeon_api::{DataRef, labels};

use crate::names;
use crate::object::{NewObject, ObjectPatch};
use crate::operation::inputs::Obstacle;
use crate::operation::wait::Wait;
use crate::view::{Data, View};
use crate::write::{Change, NeedsReads, ObjectKind, ObjectRef, Write};

/// An object that outlives operations.
pub(crate) struct PersistedObject<'a> {
    /// Secret or ConfigMap.
    pub kind: ObjectKind,
    /// The name of the object.
    pub name: &'a str,
    /// The cluster that the object belongs to, as a label value.
    pub cluster: &'a str,
    /// The UID of the `Cluster`, whose name anybody may have after its deletion. `None` for a `KubernetesCluster`: who may create
    /// one in a namespace may have what the namespace's earlier ones left.
    pub cluster_uid: Option<&'a str>,
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
                "{} exists and does not belong to this cluster: delete it, or label it {}={}",
                titled(&target),
                labels::CLUSTER,
                object.cluster
            );
            return Err(Obstacle::Wait(Wait::Missing(text)));
        }
        Some(meta) => {
            if is_of_earlier(s, &target, meta.cluster_uid.as_deref(), object.cluster_uid)? {
                let text = format!(
                    "{} belongs to an earlier Cluster of this name: delete it if its hosts no longer carry that cluster; if \
                     this Cluster continues it, remove its annotation {}",
                    titled(&target),
                    labels::CLUSTER_UID
                );
                return Err(Obstacle::Wait(Wait::Missing(text)));
            }
            if meta.job.as_deref() == Some(&job.name) {
                return Ok(None);
            }
            let named = ObjectMeta {
                annotations: Some(annotations(&object, &job.name)),
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

/// Whether the object has the keys of another `Cluster`. One without a UID, such as that of an earlier version, is adopted, and so
/// is an empty one: the runner empties it when the cluster was removed from its hosts.
fn is_of_earlier(
    s: &View<'_>,
    target: &ObjectRef,
    written: Option<&str>,
    cluster_uid: Option<&str>,
) -> Result<bool, NeedsReads> {
    if written.zip(cluster_uid).is_none_or(|(written, uid)| written == uid) {
        return Ok(false);
    }
    Ok(match s.data_of(target)? {
        Data::Values { values, .. } => [names::STATE_KEY, names::KUBECONFIG_KEY]
            .iter()
            .any(|key| values.get(*key).is_some_and(|value| !value.is_empty())),
        _ => true,
    })
}

fn titled(target: &ObjectRef) -> String {
    format!("{} {}/{}", target.kind.as_str(), target.namespace, target.name)
}

/// The Job whose runner may write the object, and the `Cluster` that it belongs to.
fn annotations(object: &PersistedObject<'_>, job: &str) -> BTreeMap<String, String> {
    let of_cluster = object.cluster_uid.map(|uid| (labels::CLUSTER_UID.to_owned(), uid.to_owned()));
    of_cluster.into_iter().chain([(labels::JOB.to_owned(), job.to_owned())]).collect()
}

fn empty(target: &ObjectRef, object: PersistedObject<'_>, job: &str) -> NewObject {
    let metadata = ObjectMeta {
        name: Some(target.name.clone()),
        namespace: Some(target.namespace.clone()),
        labels: Some([(labels::CLUSTER.to_owned(), object.cluster.to_owned())].into()),
        annotations: Some(annotations(&object, job)),
        owner_references: object.owner.map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    if target.kind == ObjectKind::Secret {
        Secret { metadata, type_: Some("Opaque".to_owned()), ..Secret::default() }.into()
    } else {
        ConfigMap { metadata, ..ConfigMap::default() }.into()
    }
}
