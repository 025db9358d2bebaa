//! One operation: its inputs, start, run, end and log.

pub(crate) mod archive;
pub(crate) mod credentials;
pub(crate) mod finish;
pub(crate) mod inputs;
pub(crate) mod job_extras;
pub(crate) mod job_suspension;
pub(crate) mod lost_pods;
pub(crate) mod pause;
pub(crate) mod placement;
pub(crate) mod runner_pod;
pub(crate) mod running;
pub(crate) mod start;
pub(crate) mod suspended_jobs;
pub(crate) mod wait;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kubeon_api::ClusterOperation;
use kubeon_api::kubeonkube::{ClusterCondition, ClusterOperationStatus};

use crate::kstatus;
use crate::object::StatusPatch;
use crate::write::{Change, ClusterChanges, Notice, ObjectKind, ObjectRef, Write};

/// The changes for an operation in this reconcile, and its entry in the status of its cluster.
#[derive(Debug, Default)]
pub(crate) struct OperationChanges {
    /// The writes and events.
    pub changes: ClusterChanges,
    /// The entry in the cluster's status, and the stage that writes it.
    pub shown: Option<(usize, ClusterCondition)>,
    /// Whether the cluster's status must be written first, as a claim.
    pub claims: bool,
    /// Whether the next operation of the cluster may start before it.
    pub is_overtaken: bool,
}

pub(crate) fn name(operation: &ClusterOperation) -> &str {
    operation.metadata.name.as_deref().unwrap_or_default()
}

pub(crate) fn uid(operation: &ClusterOperation) -> &str {
    operation.metadata.uid.as_deref().unwrap_or_default()
}

pub(crate) fn status(operation: &ClusterOperation) -> ClusterOperationStatus {
    operation.status.clone().unwrap_or_default()
}

pub(crate) fn target(operation: &ClusterOperation) -> ObjectRef {
    ObjectRef::new(ObjectKind::Operation, "", name(operation))
}

pub(crate) fn notice(
    operation: &ClusterOperation,
    warning: bool,
    reason: &'static str,
    text: impl Into<String>,
) -> Notice {
    let about = target(operation);
    let (uid, text) = (uid(operation).to_owned(), text.into());
    Notice { with: about.clone(), about, uid, warning, reason, text }
}

/// The message when an object belongs to a deleted operation with the same name and another UID. The garbage
/// collector removes the object.
#[must_use]
pub fn owned_by_deleted(
    target: &ObjectRef,
    owners: &[OwnerReference],
    name: &str,
    uid: &str,
) -> Option<String> {
    let is_another = |owner: &OwnerReference| {
        owner.kind == ObjectKind::Operation.as_str() && owner.name == name && owner.uid != uid
    };
    owners.iter().any(is_another).then(|| {
        format!(
            "{} {}/{} of a deleted operation with the same name still exists",
            target.kind.as_str(),
            target.namespace,
            target.name
        )
    })
}

/// The change of an operation's status to `new`; `None` when it is equal. The write applies only to the
/// observed version, because the runner writes the status as well. Sets the conditions of kstatus.
pub(crate) fn status_write(
    operation: &ClusterOperation,
    new: &mut ClusterOperationStatus,
    now: Timestamp,
    why: impl Into<String>,
) -> Option<Write> {
    kstatus::show_operation(new, now);
    let before = operation.status.clone().unwrap_or_default();
    let patch = StatusPatch::between(operation.metadata.resource_version.as_deref(), Some(&before), new)?;
    Some(Write {
        why: why.into(),
        target: target(operation),
        change: Change::Status(patch),
        operation: Some(name(operation).to_owned()),
    })
}

/// The entry of an operation with this status in the history.
pub(crate) fn shown(operation: &ClusterOperation, status: &ClusterOperationStatus) -> ClusterCondition {
    ClusterCondition {
        cluster_ops: name(operation).to_owned(),
        status: status.status.into(),
        start_time: status.start_time.clone(),
        end_time: status.end_time.clone(),
    }
}

pub(crate) fn at(now: Timestamp) -> Time {
    Time(crate::condition::whole_seconds(now))
}
