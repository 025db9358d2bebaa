//! Logs that outlive their pods, and operations that the history lets go.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use kubeon_api::ClusterOperation;
use serde_json::json;

use super::{name, target, uid};
use crate::job_state;
use crate::names;
use crate::order;
use crate::view::{Data, View};
use crate::write::{Change, ClusterChanges, Decision, ObjectKind, ObjectRef, Write};

/// Keeps the log of operations that ended, one after the other.
pub(crate) fn logs(s: &View<'_>, operations: &[Arc<ClusterOperation>]) -> Option<Decision> {
    let mut ended = operations.iter().filter(|operation| order::ended(operation));
    ended.find_map(|operation| log(s, operation, |_| true))
}

/// How long everything else waits for the log of a pod that is being removed, or whose operation just ended: its node may
/// never answer.
const AWAITED: SignedDuration = SignedDuration::from_secs(30);

/// Keeps the log of a pod that is being removed, or whose operation just ended, before anything else is done: a moment later
/// there may be none to read.
pub(crate) fn before_all_else(s: &View<'_>, operations: &[Arc<ClusterOperation>]) -> Option<Decision> {
    let lately = |time: &Time| time.0.saturating_add(AWAITED).is_ok_and(|due| s.now < due);
    let parts =
        |pod: &Pod| !job_state::lives(pod) && pod.metadata.deletion_timestamp.as_ref().is_some_and(lately);
    operations.iter().find_map(|operation| {
        let ended = operation.status.as_ref().and_then(|status| status.end_time.as_ref());
        let just_ended = order::ended(operation) && ended.is_some_and(lately);
        log(s, operation, |pod| just_ended || parts(pod))
    })
}

fn log(s: &View<'_>, operation: &ClusterOperation, of: impl Fn(&Pod) -> bool) -> Option<Decision> {
    let at = operation.status.as_ref()?.job_ref.as_ref()?;
    let kept = ObjectRef::new(ObjectKind::ConfigMap, &at.namespace, names::log(&at.name));
    if !s.settings.watches(&at.namespace) || s.objects.meta(&kept).is_some() {
        return None;
    }
    let job = s.job(at)?;
    let pod = s.pods_of(job).filter(|pod| job_state::has_log(pod) && of(pod)).last()?;
    let pod = pod.metadata.name.as_deref()?;
    let source = ObjectRef::new(ObjectKind::Log, &at.namespace, pod);
    let text = match s.data.get(&source) {
        None => return Some(Decision::Read(vec![source])),
        Some(Data::Log(text)) => text.clone(),
        Some(Data::Denied(why)) => format!("(the log of pod {pod} could not be read: {why})\n"),
        Some(_) => format!("(pod {pod} was gone before its log was read)\n"),
    };
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": kept.name,
            "namespace": kept.namespace,
            "labels": {names::OPERATION_LABEL: uid(operation)},
            "ownerReferences": [owner(operation)],
        },
        "immutable": true,
        "data": {"log": text},
    });
    Some(Decision::Apply(ClusterChanges::of(Write {
        why: "the log outlives its pod".to_owned(),
        target: kept,
        change: Change::Create(map),
        operation: None,
    })))
}

/// What goes with an operation when it is deleted.
pub(crate) fn owner(operation: &ClusterOperation) -> serde_json::Value {
    json!({
        "apiVersion": "kubeonkube.clay.io/v1alpha1",
        "kind": ObjectKind::Operation.as_str(),
        "name": name(operation),
        "uid": uid(operation),
        "controller": true,
        "blockOwnerDeletion": false,
    })
}

/// Removes operations that the history lets go.
pub(crate) fn prune(s: &View<'_>, operations: &[Arc<ClusterOperation>]) -> ClusterChanges {
    let gone = order::excess(operations, s.settings.history_limit);
    let gone = gone.iter().filter(|operation| operation.metadata.deletion_timestamp.is_none());
    let writes = gone.map(|operation| Write {
        why: format!("the history keeps {} operations", s.settings.history_limit),
        target: target(operation),
        change: Change::Delete { uid: uid(operation).to_owned() },
        operation: None,
    });
    let writes: Vec<Write> = writes.collect();
    ClusterChanges {
        stages: if writes.is_empty() { Vec::new() } else { vec![writes] },
        ..ClusterChanges::default()
    }
}
