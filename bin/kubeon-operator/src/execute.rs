//! Sends the writes of a decision, and puts the answers into the cache.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kubeon_api::{Cluster, ClusterOperation, KubernetesCluster, labels};
use kubeon_link_kube::{LinkError, Priority, RequestPermit, RetryClass, Verb};
use kubeon_operations::operation::owned_by_deleted;
use kubeon_operations::{Change, Data, Notice, ObjectKind, ObjectRef, Write, WriteRefusal, names};
use serde_json::{Value, json};

use crate::context::OperatorContext;
use crate::location::path;
use crate::request_priority::RequestPriority;

/// Why not all writes of a decision were sent.
pub(crate) enum WriteFailure {
    /// The objects have changed: decide again at once.
    Replan,
    /// The write was executed although its answer was lost, or a second attempt was refused: decide again at once.
    Executed,
    /// Nothing was written, because a reconcile with a higher priority is due.
    Preempted,
    /// A temporary error: the key is retried later.
    Link(LinkError),
    /// The API server refused a write of an operation.
    Refused {
        /// The operation that the write belongs to, if any.
        operation: Option<String>,
        /// The verb and the object of the write.
        what: (&'static str, ObjectRef),
        /// The refusal.
        refusal: WriteRefusal,
    },
}

impl WriteFailure {
    /// The text for a trace.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Replan => "decided again: the objects have changed".to_owned(),
            Self::Executed => "decided again: the answer of the write was lost".to_owned(),
            Self::Preempted => "decided again: a reconcile with a higher priority is due".to_owned(),
            Self::Link(error) => error.to_string(),
            Self::Refused { refusal, .. } => refusal.text.clone(),
        }
    }
}

/// Sends the writes of one stage at the same time. The events of a write are recorded after it.
pub(crate) async fn execute(
    context: &OperatorContext,
    stage: Vec<(Write, Vec<Notice>)>,
    request_priority: &RequestPriority,
) -> Result<(), WriteFailure> {
    let sent = stage.into_iter().map(|(write, notices)| async move {
        let sent = async |write| {
            let permit = request_priority.permit(&context.writer).await.ok_or(WriteFailure::Preempted)?;
            request_priority.start();
            send(context, permit, write).await
        };
        let result = if write.makes_a_job() {
            context.job_rate.acquire().await.during(sent(write)).await
        } else {
            sent(write).await
        };
        // An executed write is not planned again, so its events would be lost.
        if matches!(result, Ok(()) | Err(WriteFailure::Executed)) {
            context.record_events(notices);
        }
        result
    });
    let answers = futures::future::join_all(sent).await;
    // All writes of the stage are awaited; the first error is returned.
    answers.into_iter().collect()
}

async fn send(
    context: &OperatorContext,
    permit: RequestPermit<'_>,
    write: Write,
) -> Result<(), WriteFailure> {
    let Write { target, change, operation, .. } = write;
    let verb = verb(change).map_err(|error| WriteFailure::Refused {
        operation: operation.clone(),
        what: ("serialize", target.clone()),
        refusal: WriteRefusal { text: error.to_string(), permanent: true },
    })?;
    let answer = context.writer.send_with(permit, path(&target), &verb).await;
    let result = answer.as_ref().map_or_else(|error| error.category(), |_| "done");
    context.metrics.request(verb.word(), target.kind.as_str(), result);
    match answer {
        Ok(value) => {
            if matches!(verb, Verb::Delete(_)) {
                // The watch reports the deletion of an operation; other objects are removed at once.
                if matches!(target.kind, ObjectKind::ConfigMap | ObjectKind::Secret | ObjectKind::Job) {
                    forget(context, &target);
                }
            } else {
                update_cache(context, &target, value);
            }
            Ok(())
        }
        Err(error) => refused(context, &target, &verb, operation, error).await,
    }
}

/// The request of a change, with its body as JSON.
fn verb(change: Change) -> Result<Verb, serde_json::Error> {
    Ok(match change {
        Change::Create(object) => Verb::Create(serde_json::to_value(object)?),
        Change::Merge(patch) => Verb::Merge(serde_json::to_value(patch)?),
        Change::Disown { owner } => Verb::Strategic(without_owner(&owner)),
        Change::Status(patch) => Verb::Status(serde_json::to_value(patch)?),
        Change::Delete { uid } => Verb::Delete(uid),
    })
}

/// A strategic merge patch, which removes one entry of a list by its key.
fn without_owner(uid: &str) -> Value {
    json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": uid}]}})
}

async fn refused(
    context: &OperatorContext,
    target: &ObjectRef,
    verb: &Verb,
    operation: Option<String>,
    error: LinkError,
) -> Result<(), WriteFailure> {
    let refused = |text: String, permanent| WriteFailure::Refused {
        operation: operation.clone(),
        what: (verb.word(), target.clone()),
        refusal: WriteRefusal { text, permanent },
    };
    match (error.retry_class(), verb) {
        (_, Verb::Delete(_)) if error.is_absent() => Ok(()),
        (RetryClass::Exists, Verb::Create(wanted)) => match reread(context, target).await? {
            Some(found) if is_same(target, wanted, &found) => {
                update_cache(context, target, found);
                Ok(())
            }
            // A persisted object gets another Job: decide again with the existing object.
            Some(found) if persisted_for(wanted).is_some() => {
                update_cache(context, target, found);
                Err(WriteFailure::Replan)
            }
            Some(found) => {
                let WriteRefusal { text, permanent } = conflict(target, wanted, &found);
                Err(refused(text, permanent))
            }
            None => Err(WriteFailure::Link(error)),
        },
        (RetryClass::Reread | RetryClass::Exists, _) => {
            let executed = find_effect(context, target, verb).await?;
            Err(if executed { WriteFailure::Executed } else { WriteFailure::Replan })
        }
        (RetryClass::AfterChange, _) if error.is_absent() && !matches!(verb, Verb::Create(_)) => {
            forget(context, target);
            Err(WriteFailure::Replan)
        }
        (RetryClass::Never, _) => Err(refused(error.message(), true)),
        (RetryClass::AfterChange, _) => Err(refused(error.message(), false)),
        (RetryClass::Later, _) => {
            let executed = error.may_be_executed() && find_effect(context, target, verb).await?;
            Err(if executed { WriteFailure::Executed } else { WriteFailure::Link(error) })
        }
    }
}

/// Reads the object of a failed write into the cache. Returns whether the object is as the write wants it.
async fn find_effect(
    context: &OperatorContext,
    target: &ObjectRef,
    verb: &Verb,
) -> Result<bool, WriteFailure> {
    let found = reread(context, target).await?;
    let executed = match (&found, verb) {
        (Some(found), Verb::Create(wanted)) => is_same(target, wanted, found),
        (Some(found), Verb::Merge(patch) | Verb::Status(patch)) => is_patched(patch, found),
        (None, Verb::Delete(_)) => true,
        _ => false,
    };
    if let Some(found) = found {
        update_cache(context, target, found);
    }
    Ok(executed)
}

/// Whether a merge patch was applied to the object: each field has the value of the patch, except the version that the
/// patch applies to.
fn is_patched(patch: &Value, found: &Value) -> bool {
    let Value::Object(fields) = patch else { return patch == found };
    fields.iter().all(|(field, value)| {
        field == "resourceVersion" || is_patched(value, found.get(field).unwrap_or(&Value::Null))
    })
}

async fn reread(context: &OperatorContext, target: &ObjectRef) -> Result<Option<Value>, WriteFailure> {
    context.metrics.request("get", target.kind.as_str(), "sent");
    match context.writer.send(path(target), &Verb::Get, Priority::High).await {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_absent() => {
            forget(context, target);
            Ok(None)
        }
        Err(error) => Err(WriteFailure::Link(error)),
    }
}

/// Whether the existing object counts as the created one: a Job by its operation, a copy by its content.
fn is_same(target: &ObjectRef, wanted: &Value, found: &Value) -> bool {
    let label = |value: &Value| value["metadata"]["labels"][names::OPERATION_LABEL].clone();
    match target.kind {
        ObjectKind::Job => label(wanted) == label(found) && !label(found).is_null(),
        ObjectKind::ConfigMap if target.name.ends_with("-log") => label(wanted) == label(found),
        ObjectKind::ConfigMap | ObjectKind::Secret if persisted_for(wanted).is_some() => {
            persisted_for(wanted) == persisted_for(found)
        }
        ObjectKind::ConfigMap | ObjectKind::Secret => {
            let remains = blocked_by_deleted(target, wanted, found).is_none();
            wanted["data"] == found["data"] && found["immutable"] == true && remains
        }
        ObjectKind::Operation => {
            wanted["metadata"]["labels"][names::DERIVED_UID_LABEL]
                == found["metadata"]["labels"][names::DERIVED_UID_LABEL]
        }
        ObjectKind::Cluster | ObjectKind::KubernetesCluster | ObjectKind::Log => true,
    }
}

/// Why an existing object prevents the creation. If the object is being deleted, the refusal is temporary.
fn conflict(target: &ObjectRef, wanted: &Value, found: &Value) -> WriteRefusal {
    if let Some(text) = blocked_by_deleted(target, wanted, found) {
        return WriteRefusal { text, permanent: false };
    }
    let (kind, at) = (target.kind.as_str(), format!("{}/{}", target.namespace, target.name));
    let text = format!("{kind} {at} exists and does not belong to this operation");
    WriteRefusal { text, permanent: found["metadata"]["deletionTimestamp"].is_null() }
}

/// The message when a deleted operation with the same name left the object behind.
fn blocked_by_deleted(target: &ObjectRef, wanted: &Value, found: &Value) -> Option<String> {
    let owners = |object: &Value| -> Vec<OwnerReference> {
        serde_json::from_value(object["metadata"]["ownerReferences"].clone()).unwrap_or_default()
    };
    let (found_owners, mut wanted_owners) = (owners(found), owners(wanted));
    wanted_owners.retain(|owner| owner.kind == ObjectKind::Operation.as_str());
    wanted_owners.iter().find_map(|owner| owned_by_deleted(target, &found_owners, &owner.name, &owner.uid))
}

/// The cluster and the Job of a persisted object; `None` for other objects.
fn persisted_for(object: &Value) -> Option<(&str, &str)> {
    let meta = &object["metadata"];
    Some((meta["labels"][labels::CLUSTER].as_str()?, meta["annotations"][labels::JOB].as_str()?))
}

/// Puts an answer into the cache. The current reconcile sees it at once; the watch adds other keys to the queue.
fn update_cache(context: &OperatorContext, target: &ObjectRef, value: Value) {
    fn read<K: serde::de::DeserializeOwned + kube::Resource<DynamicType = ()>>(value: Value) -> Option<K> {
        let mut object: K = serde_json::from_value(value).ok()?;
        kubeon_link_kube::slim(&mut object);
        Some(object)
    }
    // The watch reports an answer that cannot be parsed.
    match target.kind {
        ObjectKind::Cluster => read::<Cluster>(value).map(|object| context.cache.apply(object)),
        ObjectKind::Operation => read::<ClusterOperation>(value).map(|object| context.cache.apply(object)),
        ObjectKind::KubernetesCluster => {
            read::<KubernetesCluster>(value).map(|object| context.cache.apply(object))
        }
        ObjectKind::Job => read::<Job>(value).map(|object| context.cache.apply(object)),
        ObjectKind::ConfigMap | ObjectKind::Secret => {
            serde_json::from_value::<ObjectMeta>(value["metadata"].clone())
                .ok()
                .map(|meta| context.cache.apply_meta(target.clone(), &meta))
        }
        ObjectKind::Log => None,
    };
}

fn forget(context: &OperatorContext, target: &ObjectRef) {
    let meta = ObjectMeta {
        name: Some(target.name.clone()),
        namespace: Some(target.namespace.clone()).filter(|namespace| !namespace.is_empty()),
        ..ObjectMeta::default()
    };
    match target.kind {
        ObjectKind::Cluster => context.cache.remove::<Cluster>(&meta),
        ObjectKind::Operation => context.cache.remove::<ClusterOperation>(&meta),
        ObjectKind::KubernetesCluster => context.cache.remove::<KubernetesCluster>(&meta),
        ObjectKind::Job => context.cache.remove::<Job>(&meta),
        ObjectKind::ConfigMap | ObjectKind::Secret => context.cache.remove_meta(target, None),
        ObjectKind::Log => Vec::new(),
    };
}

/// The data of a read object for a decision.
pub(crate) fn data(context: &OperatorContext, target: &ObjectRef, value: Value) -> Data {
    match target.kind {
        ObjectKind::ConfigMap => {
            let texts: BTreeMap<String, String> =
                serde_json::from_value(value["data"].clone()).unwrap_or_default();
            let values = texts.into_iter().map(|(key, text)| (key, text.into_bytes())).collect();
            Data::Values { values, kind: String::new() }
        }
        ObjectKind::Secret => {
            let bytes: BTreeMap<String, ByteString> =
                serde_json::from_value(value["data"].clone()).unwrap_or_default();
            let values = bytes.into_iter().map(|(key, bytes)| (key, bytes.0)).collect();
            Data::Values { values, kind: value["type"].as_str().unwrap_or_default().to_owned() }
        }
        _ => {
            update_cache(context, target, value);
            Data::Exists
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owned(kind: &str, name: &str, uid: &str) -> Value {
        let owner = json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid});
        json!({"metadata": {"ownerReferences": [owner]}, "data": {"a": "b"}, "immutable": true})
    }

    #[test]
    fn the_refusal_is_temporary_only_for_an_object_of_a_deleted_operation_with_the_same_name() {
        let job = ObjectRef::new(ObjectKind::Job, "ns", "kubeonkube-o-job");
        let wanted = owned("ClusterOperation", "o", "new");
        let refusal = conflict(&job, &wanted, &owned("ClusterOperation", "o", "old"));
        let text = "Job ns/kubeonkube-o-job of a deleted operation with the same name still exists";
        assert_eq!((refusal.text.as_str(), refusal.permanent), (text, false));
        for foreign in
            [owned("ClusterOperation", "p", "old"), owned("CronJob", "o", "old"), json!({"metadata": {}})]
        {
            let WriteRefusal { text, permanent } = conflict(&job, &wanted, &foreign);
            assert!(permanent && text.ends_with("does not belong to this operation"), "{text}");
        }
    }

    #[test]
    fn a_patch_is_applied_if_each_field_has_its_value() {
        let patch =
            json!({"metadata": {"resourceVersion": "7"}, "status": {"a": {"b": 1, "c": null}, "d": [1]}});
        let applied =
            json!({"metadata": {"resourceVersion": "8"}, "status": {"a": {"b": 1}, "d": [1], "e": 2}});
        assert!(is_patched(&patch, &applied));
        for (field, other) in
            [("a", json!({"b": 2})), ("a", json!({"b": 1, "c": 0})), ("a", json!(null)), ("d", json!([1, 2]))]
        {
            let mut found = applied.clone();
            found["status"][field] = other;
            assert!(!is_patched(&patch, &found), "{found}");
        }
        let set = json!({"status": {"a": {}}});
        assert!(is_patched(&set, &json!({"status": {"a": {}}})));
    }

    #[test]
    fn a_copy_of_a_deleted_operation_is_not_used_by_the_new_one() {
        let map = ObjectRef::new(ObjectKind::ConfigMap, "ns", "copy");
        let wanted = owned("ClusterOperation", "o", "new");
        assert!(is_same(&map, &wanted, &wanted));
        assert!(!is_same(&map, &wanted, &owned("ClusterOperation", "o", "old")));
    }
}
