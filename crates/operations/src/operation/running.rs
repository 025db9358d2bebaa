//! An operation whose Job is there, or was.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kubeon_api::kubeonkube::{ActionType, ClusterOperationStatus, OperationResult, RecordedResult};
use kubeon_api::{ClusterOperation, DataRef};

use super::finish::{CANCELLED, End, finish, finish_from};
use super::wait::changed;
use super::{OperationChanges, at, name, notice, shown, status, status_write, uid};
use crate::cluster_object::operation_notice;
use crate::condition::{self, ConditionText, INPUTS_FOUND, STOPPING};
use crate::job_state::{self, JobState, Stuck};
use crate::kubernetes_cluster::ClusterAction;
use crate::names::{self, OPERATION_LABEL, SPEC_ANNOTATION};
use crate::object::{JobSpecPatch, ObjectPatch};
use crate::queue_key::QueueKey;
use crate::view::{ClusterObject, Data, Observed, View};
use crate::write::{Change, NeedsReads, ObjectKind, ObjectRef, Write};

/// Why a Job must not go on: one word, and a text for a person.
pub(crate) type EndReason = (&'static str, String);

/// Whether a Job bears the UID of this operation.
pub(crate) fn bears_uid_of(job: &Job, operation: &ClusterOperation) -> bool {
    let label = job.metadata.labels.as_ref().and_then(|labels| labels.get(OPERATION_LABEL));
    label.is_some_and(|label| label == uid(operation))
}

/// Whether a Job was created for this operation. A person who may create Jobs may also label them, so the namespace and the
/// name must be those of the operation's Job.
fn is_for(s: &View<'_>, job: &Job, operation: &ClusterOperation) -> bool {
    let home = s.queue_key.job_namespace(&s.settings.namespace);
    bears_uid_of(job, operation)
        && job.metadata.namespace.as_deref() == Some(home)
        && is_called_after(s.queue_key, job.metadata.name.as_deref().unwrap_or_default(), operation)
}

/// Whether this is the name of the operation's Job. What a derived operation does may be another thing by now than when its
/// Job was made, and the name begins with that.
fn is_called_after(queue_key: &QueueKey, job: &str, operation: &ClusterOperation) -> bool {
    match queue_key {
        QueueKey::Cluster(_) => job == names::job(name(operation)),
        QueueKey::KubernetesCluster { namespace, name: cluster } => {
            let is_of = |action: &str| job == names::derived_job(action, namespace, cluster, name(operation));
            is_of(&operation.spec.main.action)
                || ClusterAction::ALL.iter().any(|action| is_of(action.as_str()))
        }
    }
}

/// The Job that an operation has: the one of its status, else the one that was made for it.
pub(crate) fn job_of(s: &View<'_>, operation: &ClusterOperation) -> Option<DataRef> {
    if let Some(job) = operation.status.as_ref().and_then(|status| status.job_ref.clone()) {
        return Some(job);
    }
    let found = s.jobs.iter().find(|job| is_for(s, job, operation))?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(DataRef::new(text(&found.metadata.namespace), text(&found.metadata.name)))
}

/// The status of an operation whose Job was just made, or found after a crash.
fn adopted(s: &View<'_>, operation: &ClusterOperation, job: &DataRef) -> ClusterOperationStatus {
    let mut new = status(operation);
    new.status = Some(OperationResult::Running);
    new.job_ref = Some(job.clone());
    new.action = Some(operation.spec.main.action.clone());
    new.digest.get_or_insert_with(|| operation.spec.digest());
    new.observed_generation = operation.metadata.generation;
    new.waits_for = None;
    new.reason = None;
    let made = || s.job(job).and_then(|job| job.metadata.creation_timestamp.clone());
    // As the claim says, so that the history needs no second write.
    let begun = claimed(s, operation).or_else(made);
    new.start_time.get_or_insert_with(|| begun.map_or_else(|| at(s.now), |time| at(time.0)));
    if let Some(found) = s.job(job) {
        new.inputs = inputs(found);
    }
    // What the Job was made from: the spec may have been changed since.
    let made_from = || s.job(job)?.metadata.annotations.as_ref()?.get(SPEC_ANNOTATION).cloned();
    if new.spec_digest.is_none() {
        new.spec_digest = made_from().or_else(|| Some(operation.spec.whole_digest()));
    }
    if condition::find(&new.conditions, INPUTS_FOUND).is_some() {
        let says = ConditionText { status: true, reason: "Found", message: "what it refers to is there" };
        condition::set(&mut new.conditions, INPUTS_FOUND, says, operation.metadata.generation, s.now);
    }
    new
}

/// Says that the operation runs; one whose Job ended before that could be said has its end told in the same write.
fn adopt(s: &View<'_>, operation: &ClusterOperation, at: &DataRef, job: &Job) -> OperationChanges {
    let new = adopted(s, operation, at);
    let mut begun = vec![notice(operation, false, "Started", format!("runs as Job {at}"))];
    let text = format!("{} runs as Job {at}", operation.spec.main.action_type);
    begun.extend(operation_notice(s, operation, false, "OperationStarted", &text));
    if let Some(end) = ended(s, operation, job) {
        let mut progress = finish_from(s, operation, new, end);
        let notices = std::mem::replace(&mut progress.changes.notices, begun);
        progress.changes.notices.extend(notices);
        return progress;
    }
    let mut progress = OperationChanges::default();
    if let Some(write) = status_write(operation, &new, format!("its Job {at} is made")) {
        progress.changes.stages.push(vec![write]);
        progress.changes.notices.extend(begun);
    }
    progress.shown = Some((0, shown(operation, &new)));
    progress
}

/// When the operation claimed its Cluster, if the Cluster says so.
pub(crate) fn claimed(s: &View<'_>, operation: &ClusterOperation) -> Option<Time> {
    let ClusterObject::Cluster(Observed::Found(cluster)) = &s.subject else { return None };
    let entries = &cluster.status.as_ref()?.conditions;
    let entry = entries.iter().find(|entry| entry.cluster_ops == name(operation))?;
    entry.start_time.clone().filter(|_| entry.status == RecordedResult::Running)
}

/// The copies that a Job reads, in the order of its volumes.
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

/// What is to be done for an operation whose Job is there, or was. `ordered` when somebody else wants it ended.
pub(crate) fn decide(
    s: &View<'_>,
    operation: &ClusterOperation,
    at: &DataRef,
    ordered: Option<EndReason>,
) -> Result<OperationChanges, NeedsReads> {
    let Some(job) = s.job(at) else { return lost(s, operation, at) };
    let current = status(operation);
    if current.job_ref.is_none() || current.status.is_none() {
        return Ok(adopt(s, operation, at, job));
    }
    if let Some(end) = ended(s, operation, job) {
        return Ok(finish(s, operation, end));
    }
    let state = job_state::job_state(job);
    let stopping =
        condition::find(&current.conditions, STOPPING).filter(|stopping| stopping.status == "True");
    let (wanted, wake) = wants_stop(s, operation, job, ordered);
    let mut progress = match (stopping, wanted) {
        (Some(_), _) if state == JobState::Works => suspend(operation, job),
        (None, Some(stop)) if state == JobState::Works => announce_stop(s, operation, job, stop),
        _ => goes_on(s, operation, at, job),
    };
    progress.changes.wake_at(wake);
    if progress.shown.is_none() {
        progress.shown = Some((0, shown(operation, &current)));
    }
    Ok(progress)
}

/// A Job that is not among those that are watched: asked for once more, because a watch may lag.
fn lost(s: &View<'_>, operation: &ClusterOperation, at: &DataRef) -> Result<OperationChanges, NeedsReads> {
    match s.data_of(&ObjectRef::new(ObjectKind::Job, &at.namespace, &at.name))? {
        Data::Absent => {
            let current = status(operation);
            let stopped = condition::find(&current.conditions, STOPPING).map(|stop| stop.message.clone());
            let reason = stopped.unwrap_or_else(|| format!("its Job {at} was deleted"));
            Ok(finish(s, operation, End::failed("JobDeleted", reason)))
        }
        // It is there and the watch will tell, or it cannot be asked for: the next event decides.
        _ => Ok(OperationChanges {
            shown: Some((0, shown(operation, &status(operation)))),
            ..OperationChanges::default()
        }),
    }
}

/// How the operation ended, if its Job and the last of its pods did.
fn ended(s: &View<'_>, operation: &ClusterOperation, job: &Job) -> Option<End> {
    let live = s.pods_of(job).any(job_state::lives);
    end_of(s, operation, job, &job_state::job_state(job)).filter(|_| !live)
}

/// How the operation ended, if its Job did.
fn end_of(s: &View<'_>, operation: &ClusterOperation, job: &Job, state: &JobState) -> Option<End> {
    let current = status(operation);
    let stopped = condition::find(&current.conditions, STOPPING).filter(|stopping| stopping.status == "True");
    match (state, stopped) {
        (JobState::Works, _) => None,
        (JobState::Succeeded { end }, _) => Some(End::succeeded(end.clone())),
        (_, Some(stop)) => Some(End::failed(stop.reason.clone(), stop.message.clone())),
        (JobState::Suspended, None) => Some(End::failed("JobSuspended", "its Job was suspended")),
        (JobState::Failed { reason, message, end }, None) => {
            let said = s.pods_of(job).filter_map(job_state::termination_message).last();
            let text = match reason.as_str() {
                "DeadlineExceeded" => too_late(operation, job),
                _ => said.unwrap_or_else(|| wordless(s, job, &format!("{reason}: {message}"))),
            };
            let word = if reason.is_empty() { "JobFailed" } else { reason };
            Some(End { time: end.clone(), ..End::failed(word, text) })
        }
    }
}

/// Why a Job failed of which no pod said why.
fn wordless(s: &View<'_>, job: &Job, said: &str) -> String {
    match s.pods_of(job).next() {
        Some(_) => format!("its Job failed: {said}"),
        None => format!("its pod is gone and left no message: the pod or its node was removed ({said})"),
    }
}

/// Contract B, case 29.
fn too_late(operation: &ClusterOperation, job: &Job) -> String {
    let seconds = job.spec.as_ref().and_then(|spec| spec.active_deadline_seconds).unwrap_or_default();
    match operation.spec.main.action_type {
        ActionType::Kubeon => {
            format!("the [{}] job running timeout(>{seconds}s)", operation.spec.main.action)
        }
        _ => format!("its Job ran longer than {seconds} s"),
    }
}

/// Whether the Job must not go on, and when that may be known.
fn wants_stop(
    s: &View<'_>,
    operation: &ClusterOperation,
    job: &Job,
    ordered: Option<EndReason>,
) -> (Option<EndReason>, Option<Timestamp>) {
    if operation.spec.cancelled {
        return (Some((CANCELLED, "cancelled".to_owned())), None);
    }
    if ordered.is_some() {
        return (ordered, None);
    }
    let mut wake = None;
    for pod in s.pods_of(job) {
        match job_state::stuck(pod, s.now) {
            Some(Stuck::Hopeless(word, text)) => return (Some((word, text)), None),
            Some(Stuck::Until(when)) => wake = [wake, Some(when)].into_iter().flatten().min(),
            Some(Stuck::Held(_)) | None => {}
        }
    }
    let mut pods: Vec<_> = s.pods_of(job).filter_map(|pod| pod.metadata.name.as_deref()).collect();
    pods.sort_unstable();
    let again = pods.len() > 1 && s.pods_of(job).any(job_state::lives);
    let stop = again.then(|| ("SecondPod", format!("its Job started a second pod ({})", pods.join(", "))));
    (stop, wake)
}

/// Says why the Job is ended, before it is: what a pod said is gone with the pod.
fn announce_stop(
    s: &View<'_>,
    operation: &ClusterOperation,
    job: &Job,
    (word, text): EndReason,
) -> OperationChanges {
    let mut new = status(operation);
    new.reason = Some(condition::clipped(&text));
    let says = ConditionText { status: true, reason: word, message: &text };
    condition::set(&mut new.conditions, STOPPING, says, operation.metadata.generation, s.now);
    let mut progress = suspend(operation, job);
    let said = status_write(operation, &new, format!("it is ended: {text}"));
    progress.changes.stages.insert(0, said.into_iter().collect());
    progress.changes.notices.push(notice(operation, true, "Stopping", text));
    progress
}

fn suspend(operation: &ClusterOperation, job: &Job) -> OperationChanges {
    let mut progress = OperationChanges::default();
    progress.changes.stages.extend(told_to_end(job, Some(name(operation))).map(|write| vec![write]));
    progress
}

/// Tells a Job to end, for its operation if that is still there; nothing when it was told already.
pub(crate) fn told_to_end(job: &Job, operation: Option<&str>) -> Option<Write> {
    if job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true) {
        return None;
    }
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(Write {
        why: "its pod gets the signal to end, so that hooks that always run do".to_owned(),
        target: ObjectRef::new(ObjectKind::Job, text(&job.metadata.namespace), text(&job.metadata.name)),
        change: patched(JobSpecPatch { suspend: Some(true), ..JobSpecPatch::default() }),
        operation: operation.map(str::to_owned),
    })
}

fn patched(spec: JobSpecPatch) -> Change {
    Change::Merge(ObjectPatch { metadata: None, spec: Some(spec) })
}

/// Nobody ends it: a change of its spec is marked, its Job has as long as it may take by now, and what it waits for is
/// said.
fn goes_on(s: &View<'_>, operation: &ClusterOperation, at: &DataRef, job: &Job) -> OperationChanges {
    let mut new = status(operation);
    let mut progress = OperationChanges::default();
    // Contract A, cases 21 and 22: a change while it runs is marked and changes nothing.
    if changed(operation, &new) && !new.has_modified {
        new.has_modified = true;
        let text = "the spec was changed; what runs is what was seen first";
        progress.changes.notices.push(notice(operation, true, "Modified", text));
    }
    let (held, wake) = held(s, job);
    if let Some(text) = held.as_ref().filter(|_| new.reason.is_none()) {
        progress.changes.notices.push(notice(operation, true, "Held", text.as_str()));
    }
    let stopping = condition::find(&new.conditions, STOPPING).filter(|stopping| stopping.status == "True");
    let told: Vec<_> = stopping.map(|stopping| stopping.message.clone()).into_iter().chain(held).collect();
    new.reason = (!told.is_empty()).then(|| condition::clipped(&told.join("; ")));
    let said = status_write(operation, &new, "what it waits for, or that its spec was changed while it runs");
    progress.changes.stages.extend(said.map(|write| vec![write]));
    progress.changes.stages.extend(deadline(operation, at, job).map(|write| vec![write]));
    progress.changes.wake_at(wake);
    progress
}

/// What its pods wait for, and when that may be known.
fn held(s: &View<'_>, job: &Job) -> (Option<String>, Option<Timestamp>) {
    let (mut text, mut wake) = (None, None);
    for pod in s.pods_of(job) {
        match job_state::stuck(pod, s.now) {
            Some(Stuck::Held(said)) => text = Some(said),
            Some(Stuck::Until(when)) => wake = [wake, Some(when)].into_iter().flatten().min(),
            Some(Stuck::Hopeless(..)) | None => {}
        }
    }
    (text, wake)
}

/// How long it may take was changed after its Job was made.
fn deadline(operation: &ClusterOperation, at: &DataRef, job: &Job) -> Option<Write> {
    let wanted = operation.spec.active_deadline_seconds.filter(|seconds| *seconds > 0)?;
    let has = job.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
    let works = job_state::job_state(job) == JobState::Works;
    (works && has != Some(wanted)).then(|| Write {
        why: format!("it may take {wanted} s by now"),
        target: ObjectRef::new(ObjectKind::Job, &at.namespace, &at.name),
        change: patched(JobSpecPatch { active_deadline_seconds: Some(wanted), ..JobSpecPatch::default() }),
        operation: Some(name(operation).to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::World;

    fn declared() -> World {
        let queue_key = QueueKey::KubernetesCluster { namespace: "default".into(), name: "shop".into() };
        let mut world = World::new(queue_key);
        let cluster = json!({"masterList": [{"ip": "10.0.0.1"}], "authConfig": {"password": "hunter2"}});
        world.put(ObjectKind::KubernetesCluster, "default", "shop", json!({"spec": {"cluster": cluster}}));
        world
    }

    /// A declared cluster whose operator was killed as soon as this was so.
    fn killed_when(so: impl Fn(&World) -> bool) -> World {
        let after = |most| {
            let mut world = declared();
            world.settle_within(most);
            world
        };
        (0..20).map(after).find(so).unwrap()
    }

    fn derived(world: &World) -> Option<String> {
        let found = world.objects.keys().find(|target| target.kind == ObjectKind::Operation);
        found.map(|target| target.name.clone())
    }

    /// A Job that ended well and says that it is this operation's.
    fn forged(world: &mut World, (namespace, job): (&str, &str), operation: &str) {
        let labels = json!({OPERATION_LABEL: format!("uid-{operation}")});
        let status = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        let object = json!({"metadata": {"labels": labels}, "spec": {"template": {}}, "status": status});
        world.put(ObjectKind::Job, namespace, job, object);
    }

    #[test]
    fn a_job_in_another_place_or_of_another_name_is_not_the_operations_whatever_it_bears() {
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
    fn a_job_of_another_name_is_not_a_derived_operations_whatever_it_bears() {
        let mut world = killed_when(|world| derived(world).is_some());
        let operation = derived(&world).unwrap();
        assert!(world.jobs().is_empty());
        forged(&mut world, ("default", "create-default-shop-job-zzzzz"), &operation);
        world.settle();
        let status = world.status(&operation);
        assert_eq!(status["status"], "Running", "{status}");
        assert_ne!(status["jobRef"]["name"], "create-default-shop-job-zzzzz");
    }

    /// Its name begins with what it did when it was made.
    #[test]
    fn a_job_is_found_again_though_its_operation_does_another_thing_by_now() {
        let mut world = killed_when(|world| !world.jobs().is_empty());
        let (operation, jobs) = (derived(&world).unwrap(), world.jobs());
        assert!(world.status(&operation)["jobRef"].is_null(), "nobody wrote down that it is there");
        world.change(ObjectKind::Operation, "", &operation, &json!({"spec": {"action": "scaling-up"}}));
        world.settle();
        assert_eq!(world.jobs(), jobs);
        assert_eq!(world.status(&operation)["jobRef"]["name"], json!(jobs[0]));
    }
}
