//! Decisions for a `KubernetesCluster`: each change of its spec becomes a derived operation. Its operations
//! run one after the other.
//!
//! ```text
//!   spec ─┐
//!         ├─ next action ──► finalizer ──► operation ──► claim in status.operation ──► Job ──► annotation ──► phase
//!   last applied spec, annotation                                                         (the applied spec)
//! ```

mod applied;
mod approval;
mod bundle_mounts;
mod callback;
mod cluster_action;
mod completion;
mod declared_hosts;
mod derived_operation;
mod health_conditions;
pub(crate) mod history;
mod inventory;
mod job;
mod maintenance;
mod next_action;
mod node_status;
mod object_access;
mod persisted_objects;
mod snapshots;
mod status;
mod upkeep;

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kubeon_api::{ClusterOperation, KubernetesCluster};

use self::object_access::{
    finalizer_name, finalizers_patch, has_finalizer, namespace, object_name, object_notice, object_write,
};
use self::persisted_objects::state_missing_text;
use crate::names::{self, DERIVED_UID_LABEL};
use crate::operation::finish::{End, finish};
use crate::operation::wait::{Wait, refusal};
use crate::operation::{
    OperationChanges, archive, credentials, name, pause, running, suspended_jobs, target, uid, wait,
};
use crate::order;
use crate::view::{ClusterObject, Data, Observed, View};
use crate::write::{Change, ClusterChanges, NeedsReads, ObjectKind, ObjectRef, Write};

pub use applied::without_secrets;
pub(crate) use cluster_action::ClusterAction;
pub(crate) use history::failure_text;
pub use next_action::{Approval, NextAction, next_action};
pub use persisted_objects::{observer_secret, persisted_objects};

/// The next reads or writes for a `KubernetesCluster` and its operations.
pub(crate) fn decide(s: &View<'_>) -> Result<ClusterChanges, NeedsReads> {
    let ClusterObject::KubernetesCluster(observed) = &s.subject else {
        return Ok(ClusterChanges::default());
    };
    let mut operations = s.operations.clone();
    order::queue(&mut operations);
    let object = match observed {
        Observed::Found(object) => object.as_ref(),
        Observed::Unreadable(_) => return continue_running(s, &operations),
        Observed::Absent => return without_object(s, &operations),
    };
    let belongs = |operation: &Arc<ClusterOperation>| {
        operation.metadata.labels.as_ref().and_then(|labels| labels.get(DERIVED_UID_LABEL))
            == object.metadata.uid.as_ref()
    };
    let (mine, others): (Vec<_>, Vec<_>) = operations.into_iter().partition(belongs);
    if let Some(changes) = archive::urgent_logs(s, &mine)? {
        return Ok(changes);
    }
    let mut changes = orphans(s, &others)?;
    if !changes.is_done() || others.iter().any(|other| !order::ended(other)) {
        return Ok(changes);
    }
    changes.merge(step(s, object, &mine)?);
    changes.merge(credentials::delete_copies(s, &mine));
    changes.merge(archive::prune(s, &mine, |_| true));
    changes.merge(archive::prune_logs(s, &mine));
    changes.merge(archive::prune_plans(s, &mine));
    if changes.is_done() {
        if let Some(changes) = archive::logs(s, &mine)? {
            return Ok(changes);
        }
        changes.merge(suspended_jobs::delete(s));
    }
    changes.stages.retain(|stage| !stage.is_empty());
    Ok(changes)
}

/// The next step: continue the current operation, complete an ended one, or begin the next one.
fn step(
    s: &View<'_>,
    object: &KubernetesCluster,
    mine: &[Arc<ClusterOperation>],
) -> Result<ClusterChanges, NeedsReads> {
    let labels_of_ended: Vec<Write> = mine
        .iter()
        .filter(|operation| order::ended(operation))
        .filter_map(|operation| crate::operation::start::metadata_patch(operation, None, true))
        .collect();
    let mut changes = ClusterChanges { stages: vec![labels_of_ended], ..ClusterChanges::default() };
    let claimed = object.status.as_ref().and_then(|status| status.operation.as_deref());
    let next =
        match claimed.map(|claimed| (claimed, mine.iter().find(|operation| name(operation) == claimed))) {
            Some((_, Some(operation))) if order::ended(operation) => {
                completion::complete(s, object, mine, operation)
            }
            Some((_, Some(operation))) => continue_operation(s, object, operation)?,
            Some((claimed, None)) => completion::lost(s, object, claimed)?,
            None => begin(s, object, mine)?,
        };
    changes.merge(next);
    Ok(changes)
}

fn continue_operation(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
) -> Result<ClusterChanges, NeedsReads> {
    let deleting = object.metadata.deletion_timestamp.is_some();
    let is_superseded_by_deletion =
        deleting && ClusterAction::of(operation) != Some(ClusterAction::Terminate);
    let ordered =
        is_superseded_by_deletion.then(|| ("Deleted", "the KubernetesCluster is being deleted".to_owned()));
    let progress = match running::job_of(s, operation) {
        Some(at) => running::decide(s, operation, &at, ordered)?,
        None => match ordered.or_else(|| refusal(s, operation)) {
            Some((word, text)) => finish(s, operation, End::failed(word, text)),
            None => not_started(s, object, operation)?,
        },
    };
    let mut changes = progress.changes;
    changes.merge(status::show_progress(s, object, operation));
    Ok(changes)
}

fn not_started(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
) -> Result<OperationChanges, NeedsReads> {
    if let Some(text) = crate::cluster::remaining_work(s) {
        return Ok(wait::report_wait(s, operation, &Wait::Until(text)));
    }
    if let Some(text) = pause::reason(s, operation) {
        return Ok(wait::report_wait(s, operation, &Wait::Until(text)));
    }
    job::start(s, object, operation)
}

/// Begins the next action: the finalizer before the first effect, then the operation, then its claim.
fn begin(
    s: &View<'_>,
    object: &KubernetesCluster,
    mine: &[Arc<ClusterOperation>],
) -> Result<ClusterChanges, NeedsReads> {
    let wanted = release_without_state(s, object, mine, next_action(s.settings, object, mine))?;
    let (wanted, upkeep) = upkeep::with_due(s, object, mine, wanted);
    let (wanted, due) = snapshots::with_due(object, wanted, s.now);
    let wanted = approval::required(object, mine, wanted);
    let (wanted, opens) = maintenance::in_window(object, wanted, s.now);
    if let Some(changes) = superseded(s, mine, &wanted, object)? {
        return Ok(changes);
    }
    let mut changes = match &wanted {
        NextAction::Operation(desired) if needs_finalizer(object) => finalizer(object, desired.action),
        NextAction::Operation(desired) => derived_operation::begin(s, object, desired, mine),
        NextAction::Release(why) => completion::release(s, object, why),
        NextAction::Answer(word) => completion::answer(object, word),
        NextAction::Nothing | NextAction::Declared | NextAction::Blocked { .. } | NextAction::Refused(_) => {
            status::waiting_or_up_to_date(s, object, &wanted)
        }
    };
    changes.wake_at(due.or(opens));
    changes.wake_at(upkeep);
    Ok(changes)
}

const NOTHING_TO_TAKE_DOWN: NextAction =
    NextAction::Release("nothing was ever written to its hosts: there is nothing to take down");

/// Replaces the teardown of a cluster whose state was never saved. A runner saves the state before its first
/// change of a host, so nothing is on the hosts and no Job is needed. `Err` names the objects that must be
/// read to decide.
fn release_without_state(
    s: &View<'_>,
    object: &KubernetesCluster,
    mine: &[Arc<ClusterOperation>],
    wanted: NextAction,
) -> Result<NextAction, NeedsReads> {
    let is_teardown =
        matches!(&wanted, NextAction::Operation(desired) if desired.action == ClusterAction::Terminate);
    // An applied spec is on the hosts even if the state was deleted; a running Job may be about to save the
    // state.
    if !is_teardown
        || !matches!(applied::applied(object), Ok(None))
        || crate::cluster::remaining_work(s).is_some()
    {
        return Ok(wanted);
    }
    let state = names::state(namespace(object), object_name(object));
    let state = ObjectRef::new(ObjectKind::Secret, namespace(object), state);
    let has_had_job = has_had_job(object, mine);
    if s.objects.meta(&state).is_none() && !has_had_job {
        return Ok(NOTHING_TO_TAKE_DOWN);
    }
    let saved = match s.data_of(&state)? {
        Data::Values { values, .. } => values.get(names::STATE_KEY).is_some_and(|state| !state.is_empty()),
        // The operator creates the Secret before the first Job. So a user deleted it, and with it the list of
        // the changes on the hosts.
        Data::Absent if has_had_job && !status::is_released(object) => {
            return Ok(NextAction::Blocked {
                word: "StateMissing",
                text: state_missing_text(object, &state),
            });
        }
        Data::Absent => false,
        _ => true,
    };
    Ok(if saved { wanted } else { NOTHING_TO_TAKE_DOWN })
}

/// Whether a Job was ever created for the cluster.
fn has_had_job(object: &KubernetesCluster, mine: &[Arc<ClusterOperation>]) -> bool {
    let has_job = |operation: &Arc<ClusterOperation>| {
        operation.status.as_ref().is_some_and(|status| status.job_ref.is_some())
    };
    object.status.as_ref().is_some_and(|status| status.job_name.is_some()) || mine.iter().any(has_job)
}

/// Ends unclaimed operations that are no longer desired. No other operation begins while one of them exists.
fn superseded(
    s: &View<'_>,
    mine: &[Arc<ClusterOperation>],
    wanted: &NextAction,
    object: &KubernetesCluster,
) -> Result<Option<ClusterChanges>, NeedsReads> {
    let desired_name = match wanted {
        NextAction::Operation(desired) => Some(derived_operation::name_of(object, desired)),
        _ => None,
    };
    let unwanted = |operation: &&Arc<ClusterOperation>| {
        !order::ended(operation) && Some(name(operation)) != desired_name.as_deref()
    };
    let mut changes = None;
    for operation in mine.iter().filter(unwanted) {
        let stop = ("Superseded", "another change was requested before the operation began".to_owned());
        let progress = match running::job_of(s, operation) {
            Some(at) => running::decide(s, operation, &at, Some(stop))?,
            None => finish(s, operation, End::failed(stop.0, stop.1)),
        };
        changes.get_or_insert_with(ClusterChanges::default).merge(progress.changes);
    }
    Ok(changes)
}

/// The `KubernetesCluster` was deleted. The Job that took it down has no owner.
fn without_object(s: &View<'_>, operations: &[Arc<ClusterOperation>]) -> Result<ClusterChanges, NeedsReads> {
    let mut changes = orphans(s, operations)?;
    if changes.is_done() {
        changes.merge(suspended_jobs::delete(s));
    }
    Ok(changes)
}

/// Operations of a deleted `KubernetesCluster`: stops running ones, and deletes ended ones.
fn orphans(s: &View<'_>, operations: &[Arc<ClusterOperation>]) -> Result<ClusterChanges, NeedsReads> {
    let mut changes = ClusterChanges::default();
    for operation in operations {
        if order::ended(operation) {
            if operation.metadata.deletion_timestamp.is_none() {
                changes.merge(ClusterChanges::of(Write {
                    why: "its KubernetesCluster was deleted".to_owned(),
                    target: target(operation),
                    change: Change::Delete { uid: uid(operation).to_owned() },
                    operation: None,
                }));
            }
            continue;
        }
        let stop = ("Deleted", "its KubernetesCluster was deleted".to_owned());
        let progress = match running::job_of(s, operation) {
            Some(at) => running::decide(s, operation, &at, Some(stop))?,
            None => finish(s, operation, End::failed(stop.0, stop.1)),
        };
        changes.merge(progress.changes);
    }
    changes.stages.retain(|stage| !stage.is_empty());
    Ok(changes)
}

/// The status of a `KubernetesCluster` when the API server refuses the next write. The status of a `Cluster`
/// has no field for it, because its reason is about references.
#[must_use]
pub fn refused(subject: &ClusterObject, text: &str, now: Timestamp) -> Option<Write> {
    let ClusterObject::KubernetesCluster(Observed::Found(object)) = subject else { return None };
    status::refused(object, text, now)
}

/// While the object cannot be read, operations with a Job continue and no other operation starts.
fn continue_running(
    s: &View<'_>,
    operations: &[Arc<ClusterOperation>],
) -> Result<ClusterChanges, NeedsReads> {
    let mut changes = ClusterChanges::default();
    for operation in operations.iter().filter(|operation| !order::ended(operation)) {
        if let Some(at) = running::job_of(s, operation) {
            let progress = running::decide(s, operation, &at, None)?;
            changes.merge(progress.changes);
        }
    }
    changes.stages.retain(|stage| !stage.is_empty());
    Ok(changes)
}

fn needs_finalizer(object: &KubernetesCluster) -> bool {
    !has_finalizer(object) && object.metadata.deletion_timestamp.is_none()
}

fn finalizer(object: &KubernetesCluster, action: ClusterAction) -> ClusterChanges {
    let mut all = object.metadata.finalizers.clone().unwrap_or_default();
    all.push(finalizer_name(object));
    let metadata = finalizers_patch(object, all);
    let mut changes = ClusterChanges::of(object_write(
        object,
        format!("before {} touches a host", action.as_str()),
        Change::Merge(metadata),
    ));
    changes.notices.push(object_notice(
        object,
        false,
        "SetFinalizersSuccess",
        "deletion of the object takes the cluster down first",
    ));
    changes
}
