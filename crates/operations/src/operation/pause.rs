//! A running operation that a user pauses: its Job is suspended, and continues later with another pod.
//!
//! ```text
//!   spec.paused ─► condition Paused ─► Job suspended ─► pod ends after its running steps
//!   not any more ─► Job resumed, once no pod is left ─► its new pod has started ─► condition removed
//! ```

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kubeon_api::ClusterOperation;
use kubeon_api::kubeonkube::ActionType;

use super::job_suspension::{job_write, suspend_job};
use super::{OperationChanges, archive, name, notice, runner_pod, status, status_write};
use crate::condition::{self, ConditionText, PAUSED};
use crate::job_state::{self, JobState};
use crate::object::JobSpecPatch;
use crate::view::{ClusterObject, View};
use crate::write::Write;

/// Why an operation is paused, if it is.
pub(crate) fn reason(s: &View<'_>, operation: &ClusterOperation) -> Option<String> {
    let object = match &s.subject {
        ClusterObject::KubernetesCluster(observed) => observed.object(),
        ClusterObject::Cluster(_) => None,
    };
    let paused_object = match (object.is_some_and(|object| object.spec.paused), operation.spec.paused) {
        (true, _) => "KubernetesCluster",
        (false, true) => "operation",
        (false, false) => return None,
    };
    Some(format!("paused: spec.paused of the {paused_object} is true"))
}

/// Whether a running operation was paused, and no pod of it has started since.
pub(super) fn is_paused(operation: &ClusterOperation) -> bool {
    message(operation).is_some()
}

/// The message of a paused operation.
pub(crate) fn message(operation: &ClusterOperation) -> Option<&str> {
    let conditions = &operation.status.as_ref()?.conditions;
    condition::find_true(conditions, PAUSED).map(|paused| paused.message.as_str())
}

/// Pauses or resumes a running operation; `None` when there is nothing to do. kubeon's own work continues where
/// it was stopped. A playbook or a script would begin again, so it is not paused.
pub(super) fn pause_or_resume(
    s: &View<'_>,
    operation: &ClusterOperation,
    job: &Job,
    state: &JobState,
) -> Option<OperationChanges> {
    let wanted = reason(s, operation).filter(|_| operation.spec.main.action_type == ActionType::Kubeon);
    match (wanted, is_paused(operation)) {
        (Some(text), false) if *state == JobState::Running => Some(pause(s, operation, job, &text)),
        (Some(_), true) => suspend_job(job, Some(name(operation)), SUSPENDED).map(only),
        (None, true) if is_suspended(job) && s.pods_of(job).all(|pod| is_over(operation, pod)) => {
            let resumed = JobSpecPatch { suspend: Some(false), ..JobSpecPatch::default() };
            let write = job_write(job, "the operation is not paused any more", resumed);
            Some(only(Write { operation: Some(name(operation).to_owned()), ..write }))
        }
        _ => None,
    }
}

const SUSPENDED: &str = "the operation is paused: the pod gets SIGTERM and ends after its running steps";

fn only(write: Write) -> OperationChanges {
    let mut progress = OperationChanges::default();
    progress.changes.stages.push(vec![write]);
    progress
}

/// Whether nothing remains of the pod but its object. Kubernetes removes the object of a pod that a pause ended.
fn is_over(operation: &ClusterOperation, pod: &Pod) -> bool {
    runner_pod::is_lost(operation, pod) && !job_state::is_running(pod)
}

fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true)
}

/// Writes that the operation is paused, and then suspends its Job: a suspended Job without this condition counts as
/// stopped.
fn pause(s: &View<'_>, operation: &ClusterOperation, job: &Job, text: &str) -> OperationChanges {
    let mut new = status(operation);
    new.reason = Some(condition::clipped(text));
    let paused = ConditionText { status: true, reason: PAUSED, message: text };
    condition::set(&mut new.conditions, PAUSED, paused, operation.metadata.generation, s.now);
    // The next pod is recorded when it has started.
    new.runner_pod = None;
    let mut progress = OperationChanges::default();
    let announcement = status_write(operation, &mut new, s.now, text);
    progress.changes.stages.push(announcement.into_iter().collect());
    progress
        .changes
        .stages
        .extend(suspend_job(job, Some(name(operation)), SUSPENDED).map(|write| vec![write]));
    progress.changes.notices.push(notice(operation, false, PAUSED, text));
    progress
}

/// A new pod of a paused operation has started: removes the condition, and the log that the pod before it left.
/// The new pod has read that log and begins its own with it. `None` while this is not so.
pub(super) fn continued(s: &View<'_>, operation: &ClusterOperation, job: &Job) -> Option<OperationChanges> {
    let has_started = || s.pods_of(job).any(|pod| job_state::has_log(pod) && !is_over(operation, pod));
    if !is_paused(operation) || reason(s, operation).is_some() || is_suspended(job) || !has_started() {
        return None;
    }
    let mut new = status(operation);
    new.conditions.retain(|condition| condition.type_ != PAUSED);
    new.reason = None;
    new.runner_pod = runner_pod::uid(s, operation, job);
    let mut progress = OperationChanges::default();
    progress.changes.stages.push(archive::forgotten_log(s, job).into_iter().collect());
    let text = "continues after a pause";
    progress.changes.stages.push(status_write(operation, &mut new, s.now, text).into_iter().collect());
    progress.changes.notices.push(notice(operation, false, "Resumed", text));
    Some(progress)
}
