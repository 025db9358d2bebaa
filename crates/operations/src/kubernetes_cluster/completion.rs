//! After an operation: what was applied is written down, then the phase says how it went.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubeon_api::kubeonkube::OperationResult;
use kubeon_api::refusal::FAILED_WITH;
use kubeon_api::{ClusterOperation, KubernetesCluster, KubernetesClusterSpec, Operation, Phase, labels};

use super::cluster_action::ClusterAction;
use super::object_access::{
    finalizers_patch, has_finalizer, namespace, object_name, object_notice, object_write, our_finalizer,
    status_write,
};
use super::persisted_objects::persisted_objects;
use super::{derived_operation, history, node_status, status};
use crate::cluster;
use crate::condition::{self, PRECHECKED, STEP_FAILED};
use crate::job_state::{self, JobState};
use crate::object::ObjectPatch;
use crate::operation::{at, running};
use crate::view::{Data, View};
use crate::write::{Change, ClusterChanges, NeedsReads, ObjectKind, ObjectRef, Write};

/// Settles an operation that ended, one write at a time: each leaves a state from which the next follows.
pub(super) fn settle(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
) -> ClusterChanges {
    let succeeded =
        operation.status.as_ref().and_then(|status| status.status) == Some(OperationResult::Succeeded);
    let action = ClusterAction::of(operation);
    if action == Some(ClusterAction::Terminate) && succeeded {
        return release(s, object, &taken_down(object, operation));
    }
    let phase = object.status.as_ref().and_then(|status| status.phase);
    if succeeded && phase == Some(Phase::Prechecking) {
        // Who watches the phases sees all of them.
        let phase = if action == Some(ClusterAction::Create) { Phase::Creating } else { Phase::Scaling };
        return moved_on(s, object, operation, phase);
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

/// The annotations that are not there yet.
fn annotate(object: &KubernetesCluster, mut wanted: BTreeMap<String, String>) -> Option<ClusterChanges> {
    let there = object.metadata.annotations.as_ref();
    wanted.retain(|key, value| there.and_then(|all| all.get(key)) != Some(value));
    if wanted.is_empty() {
        return None;
    }
    let patch = Change::Merge(ObjectPatch::of_metadata(ObjectMeta {
        annotations: Some(wanted),
        ..ObjectMeta::default()
    }));
    Some(ClusterChanges::of(object_write(object, "how it went, for older clients", patch)))
}

/// Tells who asked by annotation that nothing is left to do.
pub(super) fn answer(object: &KubernetesCluster, word: &Operation) -> ClusterChanges {
    let wanted = BTreeMap::from([(labels::OPERATION.to_owned(), word.as_str().to_owned())]);
    annotate(object, wanted).unwrap_or_default()
}

fn moved_on(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
    phase: Phase,
) -> ClusterChanges {
    let mut new = object.status.clone().unwrap_or_default();
    new.phase = Some(phase);
    new.last_transition_time = Some(at(s.now));
    let notices = status::begun(&mut new, object, operation, phase, s.now);
    let writes = status_write(object, &new, "its hosts were fit").into_iter().collect();
    ClusterChanges { stages: vec![writes], notices, wake: None }
}

/// Whether its hosts were looked at and something was in the way.
fn unfit(operation: &ClusterOperation) -> bool {
    status::said(operation, PRECHECKED).is_some_and(|found| found.status == "False")
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
    new.reason = (!succeeded).then(|| failure(operation));
    let action = ClusterAction::of(operation);
    let left_out = history::left_out(operation);
    let text = new.reason.clone().unwrap_or_else(|| status::as_declared(object, &left_out));
    status::settled(&mut new, (succeeded, action == Some(ClusterAction::Create)), &text, s.now);
    if succeeded {
        let spec = operation.metadata.annotations.as_ref().and_then(|all| all.get(labels::APPLIED_SPEC));
        let spec: Option<KubernetesClusterSpec> = spec.and_then(|text| serde_json::from_str(text).ok());
        let cluster = spec.map(|spec| spec.cluster);
        let version = cluster.as_ref().and_then(|cluster| cluster.kube_version);
        new.version = version.or(new.version).or_else(|| s.settings.default_version.parse().ok());
        new.kubeconfig_secret = status::kubeconfig(s, object);
        if let Some(cluster) = &cluster {
            node_status::show(&mut new, cluster, &left_out);
        }
    }
    let mut changes =
        ClusterChanges { notices: status::pinned(&mut new, object, operation), ..ClusterChanges::default() };
    changes.notices.extend(status::failed_steps(&mut new, object, operation));
    if unfit(operation) {
        changes.notices.extend(status::fitness(object, operation));
    }
    new.conditions.retain(|condition| !succeeded || condition.type_ != STEP_FAILED);
    changes.stages.push(status_write(object, &new, "its operation ended").into_iter().collect());
    let warning = !succeeded || !left_out.is_empty();
    changes.notices.push(object_notice(object, warning, reason(action, succeeded), text));
    if let Some(way) = history::way_out(operation).filter(|_| !succeeded) {
        let hosts: Vec<String> = way.hosts.iter().map(ToString::to_string).collect();
        let text = format!(
            "{} cannot be reached; bring it back, or go on without: {}",
            hosts.join(", "),
            way.command
        );
        changes.notices.push(object_notice(object, true, "HostUnreachable", text));
    }
    changes
}

/// The reason of the event that it ended, but for a cluster that was taken down: that is told by [`release`].
fn reason(action: Option<ClusterAction>, succeeded: bool) -> &'static str {
    match (action, succeeded) {
        (Some(ClusterAction::Create), true) => "CreateKubeJobSuccess",
        (Some(ClusterAction::Create), false) => "CreateKubeJobFailed",
        (Some(ClusterAction::ScaleUp), true) => "CreateScaleUpJobSuccess",
        (Some(ClusterAction::ScaleUp), false) => "CreateScaleUpJobFailed",
        (Some(ClusterAction::ScaleDown), true) => "CreateScaleDownJobSuccess",
        (Some(ClusterAction::ScaleDown), false) => "CreateScaleDownJobFailed",
        (Some(ClusterAction::Terminate) | None, _) => "DeleteKubeJobFailed",
    }
}

fn taken_down(object: &KubernetesCluster, operation: &ClusterOperation) -> String {
    let without = operation.metadata.annotations.as_ref().and_then(|all| all.get(labels::WITHOUT));
    match without {
        None => "the cluster was taken down".to_owned(),
        Some(hosts) => format!(
            "the cluster was taken down; whichever of {hosts} did not answer keeps what it has of it: before it is started \
             again, have it reset: kubeon-node reset --cluster {}",
            object_name(object)
        ),
    }
}

/// Why it failed, with what can be typed. Contract B, cases 17 and 33.
fn failure(operation: &ClusterOperation) -> String {
    history::told(operation, &words(operation))
}

fn words(operation: &ClusterOperation) -> String {
    let status = operation.status.clone().unwrap_or_default();
    match condition::find(&status.conditions, PRECHECKED) {
        Some(found) if found.status == "False" => format!("{FAILED_WITH}\n {}", found.message),
        _ => status.reason.unwrap_or_else(|| "it failed and left no message".to_owned()),
    }
}

/// The operation that was claimed is gone: somebody deleted it.
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
    if let Some(left) = cluster::left_over(s) {
        return Ok(abandoned(s, object, claimed, &left));
    }
    let mut new = object.status.clone().unwrap_or_default();
    let text = format!("its operation {claimed} was deleted before it ended");
    let creating = new.phase != Some(Phase::Scaling);
    new.phase = Some(Phase::Failed);
    new.reason = Some(text.clone());
    new.operation = None;
    new.step = None;
    new.last_transition_time = Some(at(s.now));
    status::settled(&mut new, (false, creating), &text, s.now);
    let mut changes = ClusterChanges::default();
    changes.stages.push(status_write(object, &new, text.as_str()).into_iter().collect());
    changes.notices.push(object_notice(object, true, "OperationDeleted", text));
    Ok(changes)
}

/// What works for an operation that was deleted. Its Job is the object's or nobody's, so that it does not go with it: it is
/// told to end, after the object says what it waits for. `left` says so where there is no Job any more.
fn abandoned(s: &View<'_>, object: &KubernetesCluster, claimed: &str, left: &str) -> ClusterChanges {
    let works = |job: &&Job| job_state::job_state(job) == JobState::Works;
    let holds = |job: &&Job| works(job) || s.pods_of(job).any(job_state::lives);
    let text = match cluster::abandoned(s).find(holds).and_then(|job| job.metadata.name.as_deref()) {
        Some(job) => {
            format!("operation {claimed} was deleted while its Job {job} worked; waits until that has ended")
        }
        None => format!("operation {claimed} was deleted while it worked; {left}"),
    };
    let mut changes = status::abandoned(s, object, &text);
    let told = cluster::abandoned(s).filter(works).filter_map(|job| running::told_to_end(job, None));
    changes.stages.push(told.collect());
    changes
}

/// Takes away what the operator keeps for the cluster, then the finalizer; those of others stay.
pub(super) fn release(s: &View<'_>, object: &KubernetesCluster, why: &str) -> ClusterChanges {
    if !has_finalizer(object) {
        return ClusterChanges::default();
    }
    let ns = namespace(object);
    let retained =
        object.spec.deletion_policy == Some(kubeon_api::kubernetes_cluster::DeletionPolicy::Retain);
    let kept = persisted_objects(ns, object_name(object)).into_iter();
    let gone = kept.filter(|target| !retained && s.settings.watches(ns) && s.objects.meta(target).is_some());
    let removed: Vec<Write> = gone
        .map(|target| Write {
            why: why.to_owned(),
            target,
            change: Change::Delete { uid: String::new() },
            operation: None,
        })
        .collect();
    let ours = our_finalizer(object);
    let left = object.metadata.finalizers.iter().flatten().filter(|one| **one != ours).cloned().collect();
    let free = object_write(object, why, Change::Merge(finalizers_patch(object, left)));
    ClusterChanges {
        stages: vec![removed, vec![free]],
        notices: vec![object_notice(object, false, "DeleteKubeJobSuccess", why)],
        wake: None,
    }
}
