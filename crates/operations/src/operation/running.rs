//! An operation whose Job was created.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kubeon_api::kubeonkube::{ActionType, ClusterOperationStatus, OperationResult, RecordedResult};
use kubeon_api::{ClusterOperation, DataRef};

use super::finish::{CANCELLED, End, finish, finish_from};
use super::job_suspension::{STOPPED, StopReason, job_write, suspend_job};
use super::wait::changed;
use super::{OperationChanges, at, lost_pods, name, notice, pause, runner_pod, shown, status, status_write};
use crate::cluster_object::operation_notice;
use crate::condition::{self, ConditionText, INPUTS_FOUND, STOPPING};
use crate::job_state::{self, JobFailure, JobState, Stuck};
use crate::kubernetes_cluster::ClusterAction;
use crate::names::{self, SPEC_ANNOTATION};
use crate::object::JobSpecPatch;
use crate::queue_key::QueueKey;
use crate::view::{ClusterObject, Data, Observed, View};
use crate::write::{NeedsReads, ObjectKind, ObjectRef, Write};

/// Whether a Job was created for this operation. A user who may create Jobs may also set labels, so the
/// namespace and the name must be those of the operation's Job.
fn is_for(s: &View<'_>, job: &Job, operation: &ClusterOperation) -> bool {
    let job_namespace = s.queue_key.job_namespace(&s.settings.namespace);
    job_state::has_uid_label_of(job, operation)
        && job.metadata.namespace.as_deref() == Some(job_namespace)
        && has_job_name_of(s.queue_key, job.metadata.name.as_deref().unwrap_or_default(), operation)
}

/// Whether this is the name of the operation's Job. The name begins with the action at the time the Job was
/// created; the action of a derived operation may have changed since then.
fn has_job_name_of(queue_key: &QueueKey, job: &str, operation: &ClusterOperation) -> bool {
    match queue_key {
        QueueKey::Cluster(_) => job == names::job(name(operation)),
        QueueKey::KubernetesCluster { namespace, name: cluster } => {
            let is_of = |action: &str| job == names::derived_job(action, namespace, cluster, name(operation));
            is_of(&operation.spec.main.action)
                || ClusterAction::ALL.iter().any(|action| is_of(action.as_str()))
        }
    }
}

/// The Job of an operation: the one in its status, else the one that was created for it.
pub(crate) fn job_of(s: &View<'_>, operation: &ClusterOperation) -> Option<DataRef> {
    if let Some(job) = operation.status.as_ref().and_then(|status| status.job_ref.clone()) {
        return Some(job);
    }
    let found = s.jobs.iter().find(|job| is_for(s, job, operation))?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(DataRef::new(text(&found.metadata.namespace), text(&found.metadata.name)))
}

/// The status of an operation whose Job was just created, or found after a crash.
fn adopted(s: &View<'_>, operation: &ClusterOperation, job: &DataRef) -> ClusterOperationStatus {
    let mut new = status(operation);
    new.status = Some(OperationResult::Running);
    new.job_ref = Some(job.clone());
    new.action = Some(operation.spec.main.action.clone());
    new.digest.get_or_insert_with(|| operation.spec.digest());
    new.observed_generation = operation.metadata.generation;
    new.waits_for = None;
    new.reason = None;
    let job_created = || s.job(job).and_then(|job| job.metadata.creation_timestamp.clone());
    // Use the start time of the claim, so that the history needs no second write.
    let start = claimed(s, operation).or_else(job_created);
    new.start_time.get_or_insert_with(|| start.map_or_else(|| at(s.now), |time| at(time.0)));
    if let Some(found) = s.job(job) {
        new.inputs = inputs(found);
    }
    // The digest of the spec that the Job was created from; the spec may have changed since then.
    let digest_of_job = || s.job(job)?.metadata.annotations.as_ref()?.get(SPEC_ANNOTATION).cloned();
    if new.spec_digest.is_none() {
        new.spec_digest = digest_of_job().or_else(|| Some(operation.spec.whole_digest()));
    }
    if condition::find(&new.conditions, INPUTS_FOUND).is_some() {
        let text = ConditionText { status: true, reason: "Found", message: "all referenced objects exist" };
        condition::set(&mut new.conditions, INPUTS_FOUND, text, operation.metadata.generation, s.now);
    }
    new
}

/// Writes that the operation runs. When its Job has already ended, the same write contains the end.
fn adopt(s: &View<'_>, operation: &ClusterOperation, at: &DataRef, job: &Job) -> OperationChanges {
    let mut new = adopted(s, operation, at);
    let mut start = vec![notice(operation, false, "Started", format!("runs as Job {at}"))];
    let text = format!("{} runs as Job {at}", operation.spec.main.action_type);
    start.extend(operation_notice(s, operation, false, "OperationStarted", &text));
    if let Some(end) = ended(s, operation, job) {
        let mut progress = finish_from(s, operation, new, end);
        let notices = std::mem::replace(&mut progress.changes.notices, start);
        progress.changes.notices.extend(notices);
        return progress;
    }
    new.runner_pod = runner_pod::uid(s, operation, job);
    let mut progress = OperationChanges::default();
    if let Some(write) = status_write(operation, &mut new, s.now, format!("its Job {at} is made")) {
        progress.changes.stages.push(vec![write]);
        progress.changes.notices.extend(start);
    }
    progress.shown = Some((0, shown(operation, &new)));
    progress
}

/// When the operation claimed its Cluster; `None` when the Cluster has no claim of it.
pub(crate) fn claimed(s: &View<'_>, operation: &ClusterOperation) -> Option<Time> {
    let ClusterObject::Cluster(Observed::Found(cluster)) = &s.subject else { return None };
    let entries = &cluster.status.as_ref()?.conditions;
    let entry = entries.iter().find(|entry| entry.cluster_ops == name(operation))?;
    entry.start_time.clone().filter(|_| entry.status == RecordedResult::Running)
}

/// The copied ConfigMaps and Secrets that a Job reads, in the order of its volumes.
fn inputs(job: &Job) -> Vec<DataRef> {
    let namespace = job.metadata.namespace.clone().unwrap_or_default();
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let mut found: Vec<DataRef> = Vec::new();
    for volume in pod.iter().flat_map(|pod| pod.volumes.iter().flatten()) {
        let map = volume.config_map.as_ref().filter(|map| map.optional != Some(true));
        let map = map.map(|source| source.name.clone());
        let secret = volume.secret.as_ref().filter(|secret| secret.optional != Some(true));
        let name = map.or_else(|| secret.and_then(|source| source.secret_name.clone()));
        if let Some(reference) = name.map(|name| DataRef::new(&namespace, name))
            && !found.contains(&reference)
        {
            found.push(reference);
        }
    }
    found
}

/// The changes for an operation whose Job was created. `ordered`: why the caller wants to stop it.
pub(crate) fn decide(
    s: &View<'_>,
    operation: &ClusterOperation,
    at: &DataRef,
    ordered: Option<StopReason>,
) -> Result<OperationChanges, NeedsReads> {
    let Some(job) = s.job(at) else { return lost(s, operation, at) };
    let current = status(operation);
    if current.job_ref.is_none() || current.status.is_none() {
        return Ok(adopt(s, operation, at, job));
    }
    let changed_pods = lost_pods::record(s, operation, job)
        .or_else(|| pause::continued(s, operation, job))
        .or_else(|| lost_pods::forget_log(s, operation, job));
    if let Some(changes) = changed_pods {
        return Ok(changes);
    }
    if let Some(end) = ended(s, operation, job) {
        return Ok(finish(s, operation, end));
    }
    let state = job_state::job_state(job);
    let may_stop = state == JobState::Running || pause::is_paused(operation);
    let stopping = condition::find_true(&current.conditions, STOPPING);
    let (wanted, wake) = stop_reason(s, operation, job, ordered);
    let mut progress = match (stopping, wanted) {
        (Some(_), _) if state == JobState::Running => suspend(operation, job),
        (None, Some(stop)) if may_stop => announce_stop(s, operation, job, stop),
        (None, None) => pause::pause_or_resume(s, operation, job, &state)
            .unwrap_or_else(|| continue_running(s, operation, job)),
        _ => continue_running(s, operation, job),
    };
    progress.changes.wake_at(wake);
    if progress.shown.is_none() {
        progress.shown = Some((0, shown(operation, &current)));
    }
    Ok(progress)
}

/// The Job is not in the cache. It is read from the API server, because a watch may lag.
fn lost(s: &View<'_>, operation: &ClusterOperation, at: &DataRef) -> Result<OperationChanges, NeedsReads> {
    match s.data_of(&ObjectRef::new(ObjectKind::Job, &at.namespace, &at.name))? {
        Data::Absent => {
            let current = status(operation);
            let stopped = condition::find(&current.conditions, STOPPING).map(|stop| stop.message.clone());
            let reason = stopped.unwrap_or_else(|| format!("its Job {at} was deleted"));
            Ok(finish(s, operation, End::failed("JobDeleted", reason)))
        }
        // The Job exists or cannot be read: the next event decides.
        _ => Ok(OperationChanges {
            shown: Some((0, shown(operation, &status(operation)))),
            ..OperationChanges::default()
        }),
    }
}

/// How the operation ended; `None` until its Job and all of its pods have ended.
fn ended(s: &View<'_>, operation: &ClusterOperation, job: &Job) -> Option<End> {
    let live = s.pods_of(job).any(job_state::is_running);
    end_of(s, operation, job, &job_state::job_state(job)).filter(|_| !live)
}

/// How the operation ended; `None` until its Job has ended.
fn end_of(s: &View<'_>, operation: &ClusterOperation, job: &Job, state: &JobState) -> Option<End> {
    let current = status(operation);
    let stopped = condition::find_true(&current.conditions, STOPPING);
    match (state, stopped) {
        (JobState::Running, _) => None,
        (JobState::Succeeded { end }, _) => Some(End::succeeded(end.clone())),
        (_, Some(stop)) => Some(End::failed(stop.reason.clone(), stop.message.clone())),
        (JobState::Suspended, None) if pause::is_paused(operation) => None,
        (JobState::Suspended, None) => Some(End::failed("JobSuspended", "its Job was suspended")),
        (JobState::Failed { reason, message, end }, None) => {
            let with_message = s.pods_of(job).filter(|pod| job_state::termination_message(pod).is_some());
            let message_of_pod = job_state::newest(with_message).and_then(job_state::termination_message);
            let text = match reason {
                JobFailure::DeadlineExceeded => deadline_message(operation, job),
                JobFailure::Other(_) => {
                    message_of_pod.unwrap_or_else(|| without_message(s, job, &format!("{reason}: {message}")))
                }
            };
            let word = if reason.as_str().is_empty() { "JobFailed" } else { reason.as_str() };
            Some(End { time: end.clone(), ..End::failed(word, text) })
        }
    }
}

/// The cause of a failed Job whose pods wrote no message.
fn without_message(s: &View<'_>, job: &Job, condition: &str) -> String {
    match s.pods_of(job).next() {
        Some(_) => format!("its Job failed: {condition}"),
        None => format!("its pod is gone and left no message: the pod or its node was removed ({condition})"),
    }
}

/// Contract B, case 29.
fn deadline_message(operation: &ClusterOperation, job: &Job) -> String {
    let seconds = job.spec.as_ref().and_then(|spec| spec.active_deadline_seconds).unwrap_or_default();
    match operation.spec.main.action_type {
        ActionType::Kubeon => {
            format!("the [{}] job running timeout(>{seconds}s)", operation.spec.main.action)
        }
        _ => format!("its Job ran longer than {seconds} s"),
    }
}

/// Why the Job is stopped, if it is, and when to check again.
fn stop_reason(
    s: &View<'_>,
    operation: &ClusterOperation,
    job: &Job,
    ordered: Option<StopReason>,
) -> (Option<StopReason>, Option<Timestamp>) {
    if operation.spec.cancelled {
        return (Some((CANCELLED, "cancelled".to_owned())), None);
    }
    if ordered.is_some() {
        return (ordered, None);
    }
    let mut wake = None;
    for pod in s.pods_of(job) {
        match job_state::problem(pod, s.now) {
            Some(Stuck::Permanent(word, text)) => return (Some((word, text)), None),
            Some(Stuck::Until(when)) => wake = [wake, Some(when)].into_iter().flatten().min(),
            Some(Stuck::Waiting(_)) | None => {}
        }
    }
    (lost_pods::stop_reason(s, operation, job), wake)
}

/// Writes why the Job is stopped, and then suspends it. The message of a pod is removed with the pod.
fn announce_stop(
    s: &View<'_>,
    operation: &ClusterOperation,
    job: &Job,
    (word, text): StopReason,
) -> OperationChanges {
    let mut new = status(operation);
    new.reason = Some(condition::clipped(&text));
    let condition_text = ConditionText { status: true, reason: word, message: &text };
    condition::set(&mut new.conditions, STOPPING, condition_text, operation.metadata.generation, s.now);
    let mut progress = suspend(operation, job);
    let announcement = status_write(operation, &mut new, s.now, format!("the operation is stopped: {text}"));
    progress.changes.stages.insert(0, announcement.into_iter().collect());
    progress.changes.notices.push(notice(operation, true, "Stopping", text));
    progress
}

fn suspend(operation: &ClusterOperation, job: &Job) -> OperationChanges {
    let mut progress = OperationChanges::default();
    progress.changes.stages.extend(suspend_job(job, Some(name(operation)), STOPPED).map(|write| vec![write]));
    progress
}

/// The Job continues. Reports a change of the spec and problems of the pods, and updates the deadline of the
/// Job.
fn continue_running(s: &View<'_>, operation: &ClusterOperation, job: &Job) -> OperationChanges {
    let mut new = status(operation);
    let mut progress = OperationChanges::default();
    // Contract A, cases 21 and 22: a change of the spec during the run is reported and has no effect.
    if changed(operation, &new) && !new.has_modified {
        new.has_modified = true;
        let text = "the spec was changed; the running Job uses the original spec";
        progress.changes.notices.push(notice(operation, true, "Modified", text));
    }
    let (held, wake) = held(s, job);
    if let Some(text) = held.as_ref().filter(|_| new.reason.is_none()) {
        progress.changes.notices.push(notice(operation, true, "Held", text.as_str()));
    }
    let stopping = condition::find_true(&new.conditions, STOPPING);
    let stopped = stopping.map(|stopping| stopping.message.as_str()).or_else(|| pause::message(operation));
    // A pod that is being stopped needs no record.
    let recorded = if stopped.is_none() { runner_pod::uid(s, operation, job) } else { None };
    let reasons: Vec<_> = stopped.map(str::to_owned).into_iter().chain(held).collect();
    new.reason = (!reasons.is_empty()).then(|| condition::clipped(&reasons.join("; ")));
    new.runner_pod = recorded.or(new.runner_pod);
    let report = status_write(
        operation,
        &mut new,
        s.now,
        "a pod is new or has a problem, or the spec was changed during the run",
    );
    progress.changes.stages.extend(report.map(|write| vec![write]));
    progress.changes.stages.extend(deadline(operation, job).map(|write| vec![write]));
    progress.changes.wake_at(wake);
    progress
}

/// The problem of a pod, if there is one, and when to check again.
fn held(s: &View<'_>, job: &Job) -> (Option<String>, Option<Timestamp>) {
    let (mut text, mut wake) = (None, None);
    for pod in s.pods_of(job) {
        match job_state::problem(pod, s.now) {
            Some(Stuck::Waiting(problem)) => text = Some(problem),
            Some(Stuck::Until(when)) => wake = [wake, Some(when)].into_iter().flatten().min(),
            Some(Stuck::Permanent(..)) | None => {}
        }
    }
    (text, wake)
}

/// Updates the deadline of a running Job when the deadline of the operation was changed.
fn deadline(operation: &ClusterOperation, job: &Job) -> Option<Write> {
    let wanted = operation.spec.active_deadline_seconds.filter(|seconds| *seconds > 0)?;
    let has = job.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
    let runs = job_state::job_state(job) == JobState::Running;
    let spec = JobSpecPatch { active_deadline_seconds: Some(wanted), ..JobSpecPatch::default() };
    (runs && has != Some(wanted)).then(|| Write {
        operation: Some(name(operation).to_owned()),
        ..job_write(job, &format!("the deadline is {wanted} s now"), spec)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::names::OPERATION_LABEL;
    use crate::testing::World;

    fn declared() -> World {
        let queue_key = QueueKey::KubernetesCluster { namespace: "default".into(), name: "shop".into() };
        let mut world = World::new(queue_key);
        let cluster = json!({"masterList": [{"ip": "10.0.0.1"}], "authConfig": {"password": "hunter2"}});
        world.put(ObjectKind::KubernetesCluster, "default", "shop", json!({"spec": {"cluster": cluster}}));
        world
    }

    /// A declared cluster whose operator was killed as soon as `condition` was true.
    fn killed_when(condition: impl Fn(&World) -> bool) -> World {
        let after = |most| {
            let mut world = declared();
            world.settle_within(most);
            world
        };
        (0..20).map(after).find(condition).unwrap()
    }

    fn derived(world: &World) -> Option<String> {
        let found = world.objects.keys().find(|target| target.kind == ObjectKind::Operation);
        found.map(|target| target.name.clone())
    }

    /// A completed Job with the UID label of this operation.
    fn forged(world: &mut World, (namespace, job): (&str, &str), operation: &str) {
        let labels = json!({OPERATION_LABEL: format!("uid-{operation}")});
        let status = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        let object = json!({"metadata": {"labels": labels}, "spec": {"template": {}}, "status": status});
        world.put(ObjectKind::Job, namespace, job, object);
    }

    #[test]
    fn a_job_with_another_namespace_or_name_is_ignored_whatever_its_labels_are() {
        let mut world = World::with_cluster();
        world.ask("o", |_| {});
        for at in [("ns", "another-job"), ("default", "kubeonkube-o-job")] {
            forged(&mut world, at, "o");
        }
        world.settle();
        let status = world.status("o");
        assert_eq!(status["status"], "Running", "{status}");
        assert_eq!(status["jobRef"], json!({"namespace": "ns", "name": "kubeonkube-o-job"}));
    }

    #[test]
    fn a_job_with_another_name_is_ignored_for_a_derived_operation() {
        let mut world = killed_when(|world| derived(world).is_some());
        let operation = derived(&world).unwrap();
        assert!(world.jobs().is_empty());
        forged(&mut world, ("default", "create-default-shop-job-zzzzz"), &operation);
        world.settle();
        let status = world.status(&operation);
        assert_eq!(status["status"], "Running", "{status}");
        assert_ne!(status["jobRef"]["name"], "create-default-shop-job-zzzzz");
    }

    /// The name of the Job begins with the action at the time the Job was created.
    #[test]
    fn a_job_is_found_again_though_its_operation_does_another_thing_by_now() {
        let mut world = killed_when(|world| !world.jobs().is_empty());
        let (operation, jobs) = (derived(&world).unwrap(), world.jobs());
        assert!(world.status(&operation)["jobRef"].is_null(), "the status does not name the Job yet");
        world.change(ObjectKind::Operation, "", &operation, &json!({"spec": {"action": "scaling-up"}}));
        world.settle();
        assert_eq!(world.jobs(), jobs);
        assert_eq!(world.status(&operation)["jobRef"]["name"], json!(jobs[0]));
    }
}
