//! Stored logs of pods, and the removal of logs and operations that exceed their limits, and of plans that are over.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::SignedDuration;
use kubeon_api::ClusterOperation;
use kubeon_api::kubeonkube::OperationResult;
use kubeon_operation_log::StoredLog;

use super::{name, target, uid};
use crate::job_state;
use crate::names;
use crate::order;
use crate::view::{Data, View};
use crate::write::{Change, ClusterChanges, NeedsReads, ObjectKind, ObjectRef, Write};

/// Stores the logs of operations that ended, one after the other.
pub(crate) fn logs(
    s: &View<'_>,
    operations: &[Arc<ClusterOperation>],
) -> Result<Option<ClusterChanges>, NeedsReads> {
    for operation in operations.iter().filter(|operation| order::ended(operation)) {
        if let Some(changes) = log(s, operation, |_| true)? {
            return Ok(Some(changes));
        }
    }
    Ok(None)
}

/// How long other writes wait for the log of a pod that is being removed or whose operation just ended. Its
/// node may never answer.
const AWAITED: SignedDuration = SignedDuration::from_secs(30);

/// Stores the log of a pod that is being removed or whose operation just ended, before other writes. The log
/// is removed with the pod.
pub(crate) fn urgent_logs(
    s: &View<'_>,
    operations: &[Arc<ClusterOperation>],
) -> Result<Option<ClusterChanges>, NeedsReads> {
    let recent = |time: &Time| time.0.saturating_add(AWAITED).is_ok_and(|due| s.now < due);
    let is_terminating = |pod: &Pod| {
        !job_state::is_running(pod) && pod.metadata.deletion_timestamp.as_ref().is_some_and(recent)
    };
    for operation in operations {
        let ended = operation.status.as_ref().and_then(|status| status.end_time.as_ref());
        let just_ended = order::ended(operation) && ended.is_some_and(recent);
        if let Some(changes) = log(s, operation, |pod| just_ended || is_terminating(pod))? {
            return Ok(Some(changes));
        }
    }
    Ok(None)
}

/// Writes the log of the last matching pod of the operation's Job to its ConfigMap, unless the ConfigMap
/// exists.
fn log(
    s: &View<'_>,
    operation: &ClusterOperation,
    has_wanted_pod: impl Fn(&Pod) -> bool,
) -> Result<Option<ClusterChanges>, NeedsReads> {
    let Some((archive, source)) = unarchived(s, operation, has_wanted_pod) else { return Ok(None) };
    let pod = &source.name;
    let text = match s.data_of(&source)? {
        Data::Log(text) => text.clone(),
        Data::Denied(why) => format!("(the log of pod {pod} could not be read: {why})\n"),
        _ => format!("(pod {pod} was removed before its log was read)\n"),
    };
    let stored = StoredLog::new(&text, None).unwrap_or_else(|error| {
        StoredLog::plain(&format!("(the log of pod {pod} could not be compressed: {error})\n"))
    });
    let (annotation, bytes) = stored.annotation();
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(archive.name.clone()),
            namespace: Some(archive.namespace.clone()),
            labels: Some([(names::OPERATION_LABEL.to_owned(), uid(operation).to_owned())].into()),
            annotations: Some([(annotation.to_owned(), bytes)].into()),
            owner_references: Some(vec![owner(operation)]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        data: Some(stored.data),
        binary_data: Some(stored.binary_data).filter(|values| !values.is_empty()),
    };
    Ok(Some(ClusterChanges::of(Write {
        why: "the log is kept after its pod is removed".to_owned(),
        target: archive,
        change: Change::Create(map.into()),
        operation: None,
    })))
}

/// The ConfigMap for the log of the operation's Job, and the pod that has the log; `None` when the ConfigMap
/// exists or no pod has a log.
fn unarchived(
    s: &View<'_>,
    operation: &ClusterOperation,
    has_wanted_pod: impl Fn(&Pod) -> bool,
) -> Option<(ObjectRef, ObjectRef)> {
    let at = operation.status.as_ref()?.job_ref.as_ref()?;
    let archive = ObjectRef::new(ObjectKind::ConfigMap, &at.namespace, names::log(&at.name));
    if !s.settings.watches(&at.namespace) || s.objects.meta(&archive).is_some() {
        return None;
    }
    let job = s.job(at)?;
    let pod = job_state::newest(s.pods_of(job).filter(|pod| job_state::has_log(pod) && has_wanted_pod(pod)))?;
    Some((archive, ObjectRef::new(ObjectKind::Log, &at.namespace, pod.metadata.name.as_deref()?)))
}

/// Whether the log of the operation's Job is stored, or no pod of it has one.
pub(super) fn is_stored(s: &View<'_>, operation: &ClusterOperation) -> bool {
    unarchived(s, operation, |_| true).is_none()
}

/// The ConfigMap of the Job's log.
pub(super) fn log_of(job: &Job) -> ObjectRef {
    let log = names::log(job.metadata.name.as_deref().unwrap_or_default());
    ObjectRef::new(ObjectKind::ConfigMap, job.metadata.namespace.as_deref().unwrap_or_default(), log)
}

/// Deletes the log that an earlier pod of the Job left; `None` without one.
pub(super) fn forgotten_log(s: &View<'_>, job: &Job) -> Option<Write> {
    let target = log_of(job);
    s.objects.meta(&target).is_some().then(|| Write {
        why: "the pod that runs now has the log of the one before it".to_owned(),
        target,
        change: Change::Delete { uid: String::new() },
        operation: None,
    })
}

/// The owner reference of an object that is deleted with its operation.
pub(crate) fn owner(operation: &ClusterOperation) -> OwnerReference {
    OwnerReference {
        api_version: "kubeonkube.clay.io/v1alpha1".to_owned(),
        kind: ObjectKind::Operation.as_str().to_owned(),
        name: name(operation).to_owned(),
        uid: uid(operation).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    }
}

/// The size of a log whose size is not known, because an earlier version wrote it: those were not compressed.
const UNKNOWN_BYTES: u64 = 64 * 1024;

/// Deletes the logs of a cluster that exceed its limit, the oldest first. The newest one and that of the last failure stay, and
/// those whose Job exists, because a log would be stored again while its pod does.
pub(crate) fn prune_logs(s: &View<'_>, operations: &[Arc<ClusterOperation>]) -> ClusterChanges {
    let mut ended: Vec<_> = operations.iter().filter(|operation| order::ended(operation)).cloned().collect();
    order::history(&mut ended);
    let failed = |operation: &Arc<ClusterOperation>| {
        operation.status.as_ref().and_then(|status| status.status) == Some(OperationResult::Failed)
    };
    let last_failure = ended.iter().position(failed);
    let mut bytes: u64 = 0;
    let mut writes = Vec::new();
    for (index, operation) in ended.iter().enumerate() {
        let Some((log, size)) = stored_log(s, operation) else { continue };
        // A runner wrote the number.
        bytes = bytes.saturating_add(size);
        if bytes > u64::from(s.settings.log_kib) * 1024 && index > 0 && Some(index) != last_failure {
            writes.push(Write {
                why: format!("the logs of the cluster exceed {} KiB", s.settings.log_kib),
                target: log,
                change: Change::Delete { uid: String::new() },
                operation: None,
            });
        }
    }
    ClusterChanges {
        stages: if writes.is_empty() { Vec::new() } else { vec![writes] },
        ..ClusterChanges::default()
    }
}

/// Deletes the plans of a cluster that nobody can approve any more, because a later operation ended. One that an operation
/// applies stays until that has ended. `operations` are in the order of time.
pub(crate) fn prune_plans(s: &View<'_>, operations: &[Arc<ClusterOperation>]) -> ClusterChanges {
    let last = operations.iter().rposition(|operation| order::ended(operation));
    let earlier = operations.iter().take(last.unwrap_or_default());
    let is_applied = |planned: &ClusterOperation| {
        let mut open = operations.iter().filter(|operation| !order::ended(operation));
        open.any(|operation| operation.spec.approves.as_deref() == Some(name(planned)))
    };
    let over =
        earlier.filter(|operation| operation.spec.plan && order::ended(operation) && !is_applied(operation));
    let writes = over.filter_map(|operation| {
        Some(Write {
            why: format!("the plan of {} was applied, or a later operation ended", name(operation)),
            target: stored_plan(s, operation)?,
            change: Change::Delete { uid: String::new() },
            operation: None,
        })
    });
    let writes: Vec<Write> = writes.collect();
    ClusterChanges {
        stages: if writes.is_empty() { Vec::new() } else { vec![writes] },
        ..ClusterChanges::default()
    }
}

/// The stored plan of an operation.
fn stored_plan(s: &View<'_>, operation: &ClusterOperation) -> Option<ObjectRef> {
    let at = operation.status.as_ref()?.job_ref.as_ref()?;
    let plan = ObjectRef::new(ObjectKind::ConfigMap, &at.namespace, names::plan(&at.name));
    let is_its_own = s.objects.meta(&plan)?.owners.iter().any(|owner| owner == uid(operation));
    is_its_own.then_some(plan)
}

/// The stored log of an operation whose Job is gone, and its bytes.
fn stored_log(s: &View<'_>, operation: &ClusterOperation) -> Option<(ObjectRef, u64)> {
    let at = operation.status.as_ref()?.job_ref.as_ref()?;
    let log = ObjectRef::new(ObjectKind::ConfigMap, &at.namespace, names::log(&at.name));
    let known = s.objects.meta(&log)?;
    let is_its_own = known.owners.iter().any(|owner| owner == uid(operation));
    (is_its_own && s.job(at).is_none()).then(|| (log, known.stored_bytes.unwrap_or(UNKNOWN_BYTES)))
}

/// Deletes operations that exceed the limit of the history, as far as they may be deleted now.
pub(crate) fn prune(
    s: &View<'_>,
    operations: &[Arc<ClusterOperation>],
    may_go: impl Fn(&ClusterOperation) -> bool,
) -> ClusterChanges {
    let excess = order::excess(operations, s.settings.history_limit);
    let excess = excess
        .iter()
        .filter(|operation| operation.metadata.deletion_timestamp.is_none() && may_go(operation));
    let writes = excess.map(|operation| Write {
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
