//! One operation: what it waits for, its start, its run, its end, its log.

pub(crate) mod archive;
pub(crate) mod finish;
pub(crate) mod inputs;
pub(crate) mod job_extras;
pub(crate) mod running;
pub(crate) mod start;
pub(crate) mod wait;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kubeon_api::ClusterOperation;
use kubeon_api::kubeonkube::{ClusterCondition, ClusterOperationStatus};

use crate::object::StatusPatch;
use crate::write::{Change, ClusterChanges, Notice, ObjectKind, ObjectRef, Write};

/// What an operation does in this turn, and how its cluster shows it then.
#[derive(Debug, Default)]
pub(crate) struct OperationChanges {
    /// What is written.
    pub changes: ClusterChanges,
    /// How the cluster's status shows it, and with which stage that is written.
    pub shown: Option<(usize, ClusterCondition)>,
    /// The stages before which the cluster's status must have been written: a claim.
    pub claims: bool,
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

/// What is waited for when an object belongs to an operation of this name that has another UID: that one was deleted, and
/// the object is collected with it.
#[must_use]
pub fn left_behind(target: &ObjectRef, owners: &[OwnerReference], name: &str, uid: &str) -> Option<String> {
    let is_another = |owner: &OwnerReference| {
        owner.kind == ObjectKind::Operation.as_str() && owner.name == name && owner.uid != uid
    };
    owners.iter().any(is_another).then(|| {
        format!(
            "{} {}/{} of an operation of this name that was deleted is still there",
            target.kind.as_str(),
            target.namespace,
            target.name
        )
    })
}

/// The change of an operation's status to `new`; nothing when it is that already. Only the version that was seen is
/// changed: the runner writes there too.
pub(crate) fn status_write(
    operation: &ClusterOperation,
    new: &ClusterOperationStatus,
    why: impl Into<String>,
) -> Option<Write> {
    let before = operation.status.clone().unwrap_or_default();
    let patch = StatusPatch::between(operation.metadata.resource_version.as_deref(), Some(&before), new)?;
    Some(Write {
        why: why.into(),
        target: target(operation),
        change: Change::Status(patch),
        operation: Some(name(operation).to_owned()),
    })
}

/// How the history shows an operation with this status.
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
