//! Snapshots of etcd: when one is due, what its Job needs, and what remains of it in the status. A snapshot that failed does not
//! make the cluster fail.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubeon_api::kubeonkube::OperationResult;
use kubeon_api::kubernetes_cluster::{Snapshots, SnapshotsStatus};
use kubeon_api::{ClusterOperation, KubernetesCluster, KubernetesClusterStatus, Phase};
use kubeon_render::job::{Mount, MountSource};

use super::cluster_action::ClusterAction;
use super::health_conditions::status_write;
use super::next_action::{NextAction, by_itself};
use super::object_access::{namespace, object_notice};
use super::status;
use crate::condition::{ConditionText, DONE, SNAPSHOT_TAKEN};
use crate::operation::at;
use crate::operation::inputs::Obstacle;
use crate::operation::wait::Wait;
use crate::view::View;
use crate::write::{ClusterChanges, ObjectKind, ObjectRef};

/// How long after a failed snapshot another one is tried, unless one is due earlier.
const RETRY: SignedDuration = SignedDuration::from_hours(1);
/// Where the Secret of the object store is mounted.
const FOLDER: &str = "/snapshots";

/// Replaces "nothing to do" by a snapshot that is due. Otherwise, when the next one is due.
pub(super) fn with_due(
    object: &KubernetesCluster,
    wanted: NextAction,
    now: Timestamp,
) -> (NextAction, Option<Timestamp>) {
    let (NextAction::Declared, Some(due)) = (&wanted, due(object)) else { return (wanted, None) };
    if now < due {
        return (wanted, Some(due));
    }
    let hours =
        object.spec.snapshots.as_ref().and_then(|snapshots| snapshots.every_hours).unwrap_or_default();
    let why = format!("a snapshot is taken every {hours} h");
    (by_itself(object, ClusterAction::Snapshot, &why).unwrap_or(wanted), None)
}

/// When the next snapshot is due; `None` without a schedule.
fn due(object: &KubernetesCluster) -> Option<Timestamp> {
    let every = SignedDuration::from_hours(object.spec.snapshots.as_ref()?.every_hours?.into());
    let taken = object.status.as_ref().and_then(|status| status.snapshots.clone()).unwrap_or_default();
    let Some(attempt) = taken.last_attempt_time.as_ref() else { return Some(Timestamp::MIN) };
    let pause = if taken.last_success_time == taken.last_attempt_time { every } else { every.min(RETRY) };
    attempt.0.checked_add(pause).ok()
}

/// What a Job needs to reach the object store.
pub(super) struct ObjectStoreInputs {
    /// Environment variables. They contain no secret.
    pub(super) variables: Vec<(String, String)>,
    /// The Secret.
    pub(super) mount: Mount,
}

/// What the Job needs to reach the object store; `None` unless the operation takes a snapshot, or begins with one. A change to
/// another version takes one before, if the cluster has a place for snapshots.
pub(super) fn inputs(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
    other_version: bool,
) -> Result<Option<ObjectStoreInputs>, Obstacle> {
    let action = ClusterAction::of(operation);
    let restored = object.spec.snapshots.as_ref().and_then(|snapshots| snapshots.restore_from.clone());
    let restored =
        restored.filter(|_| matches!(action, Some(ClusterAction::Create | ClusterAction::Rollback)));
    let is_needed = match action {
        Some(ClusterAction::Snapshot | ClusterAction::Rollback) => true,
        Some(ClusterAction::Update) => other_version && object.spec.snapshots.is_some(),
        _ => restored.is_some(),
    };
    if !is_needed || operation.spec.plan {
        return Ok(None);
    }
    if action == Some(ClusterAction::Rollback) && restored.is_none() {
        let text = "spec.snapshots.restoreFrom names no snapshot to go back to".to_owned();
        return Err(Obstacle::Refuse("NoSnapshot", text));
    }
    let Some(snapshots) = &object.spec.snapshots else {
        return Err(Obstacle::Refuse("NoObjectStore", "spec.snapshots names no object store".to_owned()));
    };
    let name = snapshots.credentials_ref.name.clone();
    let secret = ObjectRef::new(ObjectKind::Secret, namespace(object), &name);
    if s.objects.meta(&secret).is_none() {
        let text = format!("spec.snapshots.credentialsRef {}/{name} not found", namespace(object));
        // A creation waits for its inputs. A snapshot would delay every other change of the cluster meanwhile.
        return Err(match action {
            Some(ClusterAction::Create) => Obstacle::Wait(Wait::Missing(text)),
            _ => Obstacle::Refuse("NoCredentials", text),
        });
    }
    let keep = snapshots.keep.unwrap_or(Snapshots::KEEP).to_string();
    let all = [
        ("SNAPSHOT_RESTORE", restored),
        ("SNAPSHOT_FOLDER", Some(snapshots.folder.clone())),
        ("SNAPSHOT_KEEP", Some(keep)),
        ("SNAPSHOT_ENDPOINT", snapshots.endpoint.clone()),
        ("SNAPSHOT_REGION", snapshots.region.clone()),
    ];
    let variables = all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    let source = MountSource::Secret { name, optional: false };
    let mount = Mount { volume: "snapshots", source, path: FOLDER.to_owned(), key: None };
    Ok(Some(ObjectStoreInputs { variables, mount }))
}

/// The status after a snapshot ended, and an event with the reason `event`. `new` has the cause of a failure. The cluster is as
/// it was.
pub(super) fn ended(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
    (mut new, event): (KubernetesClusterStatus, &'static str),
) -> ClusterChanges {
    let result = operation.status.as_ref();
    let succeeded = result.and_then(|status| status.status) == Some(OperationResult::Succeeded);
    let time = result.and_then(|status| status.end_time.clone()).unwrap_or_else(|| at(s.now));
    new.phase = Some(Phase::Running);
    let failure = new.reason.take();
    let before = new.snapshots.take().unwrap_or_default();
    new.snapshots = Some(SnapshotsStatus {
        last_success_time: if succeeded { Some(time.clone()) } else { before.last_success_time },
        last_attempt_time: Some(time),
    });
    status::operation_over(s, &mut new, object);
    let folder =
        object.spec.snapshots.as_ref().map(|snapshots| snapshots.folder.as_str()).unwrap_or_default();
    let text = failure.unwrap_or_else(|| format!("in {folder}"));
    let reason = if succeeded { DONE } else { "Failed" };
    status::set(&mut new, SNAPSHOT_TAKEN, ConditionText { status: succeeded, reason, message: &text }, s.now);
    ClusterChanges {
        stages: vec![status_write(s, object, new, "the snapshot ended").into_iter().collect()],
        notices: vec![object_notice(object, !succeeded, event, text)],
        wake: None,
    }
}
