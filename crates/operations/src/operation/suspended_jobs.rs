//! Suspended Jobs that are not resumed: those of operations that were stopped. Kubernetes counts a suspended Job as not
//! finished, so it never removes it by its time to live.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::SignedDuration;

use super::archive;
use crate::job_state;
use crate::names::OPERATION_LABEL;
use crate::order;
use crate::view::{ClusterObject, Observed, View};
use crate::write::{Change, ClusterChanges, ObjectKind, ObjectRef, Write};

/// How long a suspended Job stays, for people who look for the cause.
const SHOWN_FOR: SignedDuration = SignedDuration::from_hours(1);

/// Deletes the suspended Jobs of operations that ended or were deleted, an hour after they were suspended.
pub(crate) fn delete(s: &View<'_>) -> ClusterChanges {
    let mut changes = ClusterChanges::default();
    let mut writes = Vec::new();
    for job in s.jobs.iter().map(AsRef::as_ref).filter(|job: &&Job| is_left(s, job)) {
        let Some(since) = job_state::suspended_since(job) else { continue };
        let due = since.saturating_add(SHOWN_FOR).unwrap_or(since);
        if due <= s.now {
            writes.push(deletion(job));
        } else {
            changes.wake_at(Some(due));
        }
    }
    if !writes.is_empty() {
        changes.stages.push(writes);
    }
    changes
}

/// Whether nothing needs the Job: its operation ended or was deleted, its log is stored, and no pod of it runs.
fn is_left(s: &View<'_>, job: &Job) -> bool {
    if job.metadata.deletion_timestamp.is_some() || s.pods_of(job).any(job_state::is_running) {
        return false;
    }
    match s.operations.iter().find(|operation| job_state::has_uid_label_of(job, operation)) {
        Some(operation) => order::ended(operation) && archive::is_stored(s, operation),
        None => has_operation(job) && !may_resume(&s.subject),
    }
}

/// Whether the Job was created for an operation.
fn has_operation(job: &Job) -> bool {
    job.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(OPERATION_LABEL))
}

/// Whether an operation that was not read may resume its Job after a pause. Only the operations of a `KubernetesCluster` are
/// paused, and it names the one that runs.
fn may_resume(subject: &ClusterObject) -> bool {
    match subject {
        ClusterObject::Cluster(_) | ClusterObject::KubernetesCluster(Observed::Absent) => false,
        ClusterObject::KubernetesCluster(Observed::Unreadable(_)) => true,
        ClusterObject::KubernetesCluster(Observed::Found(object)) => {
            object.status.as_ref().is_some_and(|status| status.operation.is_some())
        }
    }
}

fn deletion(job: &Job) -> Write {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Write {
        why: "the Job of an operation that was stopped is not resumed".to_owned(),
        target: ObjectRef::new(ObjectKind::Job, text(&job.metadata.namespace), text(&job.metadata.name)),
        change: Change::Delete { uid: text(&job.metadata.uid) },
        operation: None,
    }
}
