//! After an operation: writes the applied spec, and then the phase.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubeon_api::kubeonkube::OperationResult;
use kubeon_api::refusal::failed_with;
use kubeon_api::{
    ClusterOperation, ConditionStatus, KubernetesCluster, KubernetesClusterSpec, Operation, Phase, labels,
};

use super::cluster_action::ClusterAction;
use super::health_conditions::status_write;
use super::object_access::{
    finalizer_name, finalizers_patch, has_finalizer, namespace, object_name, object_notice, object_write,
    running_version,
};
use super::persisted_objects::persisted_objects;
use super::{applied, approval, derived_operation, history, node_status, snapshots, status};
use crate::cluster;
use crate::condition::{self, PRECHECKED, STEP_FAILED};
use crate::job_state::{self, JobState};
use crate::object::ObjectPatch;
use crate::operation::at;
use crate::operation::job_suspension::{STOPPED, suspend_job};
use crate::view::{Data, View};
use crate::write::{Change, ClusterChanges, NeedsReads, ObjectKind, ObjectRef, Write};

/// Completes an ended operation, one write at a time. Each write leaves a state from which the next one
/// follows.
pub(super) fn complete(
    s: &View<'_>,
    object: &KubernetesCluster,
    mine: &[Arc<ClusterOperation>],
    operation: &ClusterOperation,
) -> ClusterChanges {
    let succeeded =
        operation.status.as_ref().and_then(|status| status.status) == Some(OperationResult::Succeeded);
    let action = ClusterAction::of(operation);
    if action == Some(ClusterAction::Terminate) && succeeded {
        return release(s, object, &teardown_message(object, operation));
    }
    if operation.spec.plan && succeeded {
        return approval::planned(s, object, mine, operation);
    }
    let phase = object.status.as_ref().and_then(|status| status.phase);
    if succeeded && phase == Some(Phase::Prechecking) {
        // Clients that watch the phase must see every phase.
        return advance_phase(s, object, operation, status::phase_of_work(action));
    }
    let (finished, failed) = derived_operation::words(action);
    let mut wanted = BTreeMap::new();
    let word = if succeeded { finished } else { failed };
    wanted.insert(labels::OPERATION.to_owned(), word.as_str().to_owned());
    let spec = operation.metadata.annotations.as_ref().and_then(|all| all.get(labels::APPLIED_SPEC));
    if let (true, Some(spec)) = (succeeded, spec) {
        wanted.insert(labels::APPLIED_SPEC.to_owned(), spec.clone());
    }
    annotate(object, wanted).unwrap_or_else(|| ended(s, object, operation, succeeded))
}

/// Writes missing annotations; `None` when nothing is missing.
fn annotate(object: &KubernetesCluster, mut wanted: BTreeMap<String, String>) -> Option<ClusterChanges> {
    let existing = object.metadata.annotations.as_ref();
    wanted.retain(|key, value| existing.and_then(|all| all.get(key)) != Some(value));
    if wanted.is_empty() {
        return None;
    }
    let patch = Change::Merge(ObjectPatch::of_metadata(ObjectMeta {
        annotations: Some(wanted),
        ..ObjectMeta::default()
    }));
    Some(ClusterChanges::of(object_write(object, "the result of the operation, for older clients", patch)))
}

/// Answers a request by annotation when nothing is left to do.
pub(super) fn answer(object: &KubernetesCluster, word: &Operation) -> ClusterChanges {
    let wanted = BTreeMap::from([(labels::OPERATION.to_owned(), word.as_str().to_owned())]);
    annotate(object, wanted).unwrap_or_default()
}

fn advance_phase(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
    phase: Phase,
) -> ClusterChanges {
    let mut new = object.status.clone().unwrap_or_default();
    new.phase = Some(phase);
    new.last_transition_time = Some(at(s.now));
    let notices = status::begin_phase(&mut new, object, operation, phase, s.now);
    let writes = status_write(s, object, new, "the precheck succeeded").into_iter().collect();
    ClusterChanges { stages: vec![writes], notices, wake: None }
}

/// Whether the precheck failed.
fn precheck_failed(operation: &ClusterOperation) -> bool {
    status::operation_condition(operation, PRECHECKED)
        .is_some_and(|found| found.status == ConditionStatus::False)
}

fn ended(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
    succeeded: bool,
) -> ClusterChanges {
    let mut new = object.status.clone().unwrap_or_default();
    new.phase = Some(if succeeded { Phase::Running } else { Phase::Failed });
    new.last_transition_time = Some(at(s.now));
    new.operation = None;
    new.step = None;
    new.reason = (!succeeded).then(|| with_way_back(object, operation, failure(operation)));
    let action = ClusterAction::of(operation);
    if action == Some(ClusterAction::Snapshot) {
        return snapshots::ended(s, object, operation, (new, reason(action, succeeded)));
    }
    let skipped = history::skipped_hosts(operation);
    let text = new.reason.clone().unwrap_or_else(|| status::up_to_date_message(object, &skipped));
    status::settled(&mut new, (succeeded, action == Some(ClusterAction::Create)), &text, s.now);
    if succeeded {
        let spec = operation.metadata.annotations.as_ref().and_then(|all| all.get(labels::APPLIED_SPEC));
        let spec: Option<KubernetesClusterSpec> = spec.and_then(|text| serde_json::from_str(text).ok());
        let cluster = spec.map(|spec| spec.cluster);
        let version = cluster.as_ref().and_then(|cluster| cluster.kube_version);
        new.version = version.or(new.version).or_else(|| s.settings.default_version.parse().ok());
        new.kubeconfig_secret = status::kubeconfig(s, object);
        if let Some(cluster) = &cluster {
            node_status::show(&mut new, cluster, &skipped);
        }
    }
    let mut changes = ClusterChanges {
        notices: status::pinned_key_notices(&mut new, object, operation),
        ..ClusterChanges::default()
    };
    changes.notices.extend(status::failed_step_notices(&mut new, object, operation));
    if precheck_failed(operation) {
        changes.notices.extend(status::precheck_notices(object, operation));
    }
    new.conditions.retain(|condition| !succeeded || condition.type_ != STEP_FAILED);
    changes.stages.push(status_write(s, object, new, "the operation ended").into_iter().collect());
    let warning = !succeeded || !skipped.is_empty();
    changes.notices.push(object_notice(object, warning, reason(action, succeeded), text));
    if let Some(proposal) = history::skip_proposal(operation).filter(|_| !succeeded) {
        let hosts: Vec<String> = proposal.hosts.iter().map(ToString::to_string).collect();
        let text = format!(
            "{} cannot be reached; bring it back, or go on without: {}",
            hosts.join(", "),
            proposal.command
        );
        changes.notices.push(object_notice(object, true, "HostUnreachable", text));
    }
    changes
}

/// The reason of the event at the end. [`release`] records the end of a successful teardown.
fn reason(action: Option<ClusterAction>, succeeded: bool) -> &'static str {
    match (action, succeeded) {
        (Some(ClusterAction::Create), true) => "CreateKubeJobSuccess",
        (Some(ClusterAction::Create), false) => "CreateKubeJobFailed",
        (Some(ClusterAction::ScaleUp), true) => "CreateScaleUpJobSuccess",
        (Some(ClusterAction::ScaleUp), false) => "CreateScaleUpJobFailed",
        (Some(ClusterAction::ScaleDown), true) => "CreateScaleDownJobSuccess",
        (Some(ClusterAction::ScaleDown), false) => "CreateScaleDownJobFailed",
        (Some(ClusterAction::Update), true) => "UpdateSucceeded",
        (Some(ClusterAction::Update), false) => "UpdateFailed",
        (Some(ClusterAction::Rollback), true) => "RollbackSucceeded",
        (Some(ClusterAction::Rollback), false) => "RollbackFailed",
        (Some(ClusterAction::Renew), true) => "RenewSucceeded",
        (Some(ClusterAction::Renew), false) => "RenewFailed",
        (Some(ClusterAction::Repair), true) => "RepairSucceeded",
        (Some(ClusterAction::Repair), false) => "RepairFailed",
        (Some(ClusterAction::Snapshot), true) => "SnapshotSucceeded",
        (Some(ClusterAction::Snapshot), false) => "SnapshotFailed",
        (Some(ClusterAction::Terminate) | None, _) => "DeleteKubeJobFailed",
    }
}

fn teardown_message(object: &KubernetesCluster, operation: &ClusterOperation) -> String {
    let skip_hosts = operation.metadata.annotations.as_ref().and_then(|all| all.get(labels::WITHOUT));
    match skip_hosts {
        None => "the cluster was taken down".to_owned(),
        Some(hosts) => format!(
            "the cluster was taken down; hosts of {hosts} that did not answer still have parts of it: before such a host \
             is used again, reset it: kubeon-node reset --cluster {}",
            object_name(object)
        ),
    }
}

/// The cause of the failure, with a command to continue. Contract B, cases 17 and 33.
fn failure(operation: &ClusterOperation) -> String {
    let status = operation.status.clone().unwrap_or_default();
    match (condition::find(&status.conditions, PRECHECKED), status.reason) {
        (Some(found), _) if found.status == ConditionStatus::False => {
            history::failure_text(operation, &failed_with([&found.message]))
        }
        // The reason of an ended operation already has the command.
        (_, Some(reason)) => reason,
        (_, None) => history::failure_text(operation, "it failed and left no message"),
    }
}

/// The cause of a failed upgrade, with the declaration that ends it: hosts, also one that is lost, change before the version only
/// when the version of before is declared again.
fn with_way_back(object: &KubernetesCluster, operation: &ClusterOperation, cause: String) -> String {
    let before = applied::applied(object).ok().flatten().and_then(|spec| spec.cluster.kube_version);
    let before = before.or(running_version(object));
    let wanted = history::version_of_update(operation).filter(|_| !operation.spec.plan);
    let Some((before, _)) = before.zip(wanted).filter(|(before, wanted)| before != wanted) else {
        return cause;
    };
    let way = format!(
        "\nto go back, or to replace a host that is lost, declare spec.cluster.kubeVersion {before} again, alone or with the other hosts"
    );
    condition::clipped_before(&cause, &way)
}

/// The claimed operation was deleted.
pub(super) fn lost(
    s: &View<'_>,
    object: &KubernetesCluster,
    claimed: &str,
) -> Result<ClusterChanges, NeedsReads> {
    let target = ObjectRef::new(ObjectKind::Operation, "", claimed);
    // A watch may lag behind what another operator wrote.
    if *s.data_of(&target)? != Data::Absent {
        return Ok(ClusterChanges::default());
    }
    if let Some(remaining) = cluster::remaining_work(s) {
        return Ok(abandoned(s, object, claimed, &remaining));
    }
    let mut new = object.status.clone().unwrap_or_default();
    let text = format!("its operation {claimed} was deleted before it ended");
    let creating = !matches!(new.phase, Some(Phase::Scaling | Phase::Updating | Phase::Repairing));
    new.phase = Some(Phase::Failed);
    new.reason = Some(text.clone());
    new.operation = None;
    new.step = None;
    new.last_transition_time = Some(at(s.now));
    status::settled(&mut new, (false, creating), &text, s.now);
    let mut changes = ClusterChanges::default();
    changes.stages.push(status_write(s, object, new, text.as_str()).into_iter().collect());
    changes.notices.push(object_notice(object, true, "OperationDeleted", text));
    Ok(changes)
}

/// Stops what still runs for a deleted operation. The Job is not owned by the operation, so it is not deleted
/// with it. It is suspended after the object's status says what the cluster waits for. `remaining` says that
/// when there is no Job any more.
fn abandoned(s: &View<'_>, object: &KubernetesCluster, claimed: &str, remaining: &str) -> ClusterChanges {
    let runs = |job: &&Job| job_state::job_state(job) == JobState::Running;
    let blocks = |job: &&Job| runs(job) || s.pods_of(job).any(job_state::is_running);
    let text = match cluster::abandoned_jobs(s).find(blocks).and_then(|job| job.metadata.name.as_deref()) {
        Some(job) => {
            format!("operation {claimed} was deleted while its Job {job} worked; waits until that has ended")
        }
        None => format!("operation {claimed} was deleted while it worked; {remaining}"),
    };
    let mut changes = status::operation_deleted(s, object, &text);
    let suspended = cluster::abandoned_jobs(s).filter(runs).filter_map(|job| suspend_job(job, None, STOPPED));
    changes.stages.push(suspended.collect());
    changes
}

/// Says in the status that the cluster is released. When that is saved, deletes its persisted objects and removes the operator's
/// finalizer; other finalizers stay. A leader that ends in between is followed by one that cannot see the deleted objects and
/// reads the status.
pub(super) fn release(s: &View<'_>, object: &KubernetesCluster, why: &str) -> ClusterChanges {
    if !has_finalizer(object) {
        return ClusterChanges::default();
    }
    if !status::is_released(object) {
        let mut new = object.status.clone().unwrap_or_default();
        status::released(&mut new, why, s.now);
        return ClusterChanges {
            stages: vec![status_write(s, object, new, why).into_iter().collect()],
            notices: vec![object_notice(object, false, "DeleteKubeJobSuccess", why)],
            wake: None,
        };
    }
    let ns = namespace(object);
    let retained =
        object.spec.deletion_policy == Some(kubeon_api::kubernetes_cluster::DeletionPolicy::Retain);
    let persisted = persisted_objects(ns, object_name(object)).into_iter();
    let deleted =
        persisted.filter(|target| !retained && s.settings.watches(ns) && s.objects.meta(target).is_some());
    let removed: Vec<Write> = deleted
        .map(|target| Write {
            why: why.to_owned(),
            target,
            change: Change::Delete { uid: String::new() },
            operation: None,
        })
        .collect();
    let own_finalizer = finalizer_name(object);
    let remaining = object
        .metadata
        .finalizers
        .iter()
        .flatten()
        .filter(|finalizer| **finalizer != own_finalizer)
        .cloned()
        .collect();
    let release = object_write(object, why, Change::Merge(finalizers_patch(object, remaining)));
    ClusterChanges { stages: vec![removed, vec![release]], ..ClusterChanges::default() }
}
