//! The state of a Job, and the problems that its pods report.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubeon_api::{ClusterOperation, ConditionStatus};

use crate::names::OPERATION_LABEL;

/// How long the kubelet may fail to run an image before the operation is ended.
const PERMANENT_AFTER: SignedDuration = SignedDuration::from_secs(20);
/// How long a pod may wait for a node, prepare its start, or exceed its grace period before a problem is
/// reported.
const REPORTED_AFTER: SignedDuration = SignedDuration::from_secs(20);

/// The state of a Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// It runs, or is about to.
    Running,
    /// It completed.
    Succeeded {
        /// The end time.
        end: Option<Time>,
    },
    /// It failed.
    Failed {
        /// The condition's reason.
        reason: JobFailure,
        /// The condition's message.
        message: String,
        /// The end time.
        end: Option<Time>,
    },
    /// It was suspended.
    Suspended,
}

/// Why a Job failed: the reason that Kubernetes gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobFailure {
    /// It ran longer than its deadline.
    DeadlineExceeded,
    /// Another reason, such as `BackoffLimitExceeded`; empty when there is none.
    Other(String),
}

impl JobFailure {
    const DEADLINE: &str = "DeadlineExceeded";

    /// The word of Kubernetes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::DeadlineExceeded => Self::DEADLINE,
            Self::Other(reason) => reason,
        }
    }
}

impl Default for JobFailure {
    fn default() -> Self {
        Self::Other(String::new())
    }
}

impl From<&str> for JobFailure {
    fn from(reason: &str) -> Self {
        if reason == Self::DEADLINE { Self::DeadlineExceeded } else { Self::Other(reason.to_owned()) }
    }
}

impl std::fmt::Display for JobFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Whether the label of a Job has the UID of this operation.
#[must_use]
pub fn has_uid_label_of(job: &Job, operation: &ClusterOperation) -> bool {
    let label = job.metadata.labels.as_ref().and_then(|labels| labels.get(OPERATION_LABEL));
    label.is_some_and(|label| Some(label) == operation.metadata.uid.as_ref())
}

/// The state of a Job, by its first condition that is true. Contract A, case 28.
#[must_use]
pub fn job_state(job: &Job) -> JobState {
    let status = job.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    for condition in conditions.iter().filter(|condition| condition.status == ConditionStatus::True) {
        let end = status
            .and_then(|status| status.completion_time.clone())
            .or_else(|| condition.last_transition_time.clone());
        match condition.type_.as_str() {
            "Complete" => return JobState::Succeeded { end },
            "Failed" | "FailureTarget" => {
                return JobState::Failed {
                    reason: condition.reason.as_deref().map(JobFailure::from).unwrap_or_default(),
                    message: condition.message.clone().unwrap_or_default(),
                    end,
                };
            }
            "Suspended" => return JobState::Suspended,
            _ => {}
        }
    }
    JobState::Running
}

/// Since when a Job is suspended; `None` when it is not.
#[must_use]
pub fn suspended_since(job: &Job) -> Option<Timestamp> {
    if job_state(job) != JobState::Suspended {
        return None;
    }
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let suspended = conditions
        .iter()
        .find(|condition| condition.type_ == "Suspended" && condition.status == ConditionStatus::True);
    let since = suspended.and_then(|condition| condition.last_transition_time.as_ref());
    since.or(job.metadata.creation_timestamp.as_ref()).map(|time| time.0)
}

/// Whether a container of the pod may still run.
#[must_use]
pub fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// The message of a pod that ends because of its node or because of another pod, and not by itself.
#[must_use]
pub fn loss(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_deref().unwrap_or_default();
    let is_loss = |type_: &str, status: &str| type_ == "DisruptionTarget" && status == "True";
    let found = conditions.iter().find(|condition| is_loss(&condition.type_, &condition.status))?;
    Some(found.message.as_deref().or(found.reason.as_deref()).unwrap_or("disrupted"))
}

/// The pod that was created last.
#[must_use]
pub fn newest<'p>(pods: impl Iterator<Item = &'p Pod>) -> Option<&'p Pod> {
    pods.max_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

/// When the last container of a pod ended; `None` while one may still run.
#[must_use]
pub fn ended_at(pod: &Pod) -> Option<Timestamp> {
    let ended = |container: &ContainerStatus| {
        Some(container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0)
    };
    containers(pod).filter_map(ended).max().filter(|_| !is_running(pod))
}

/// Why a pod makes no progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stuck {
    /// It cannot recover by itself: a reason in CamelCase, and the pod's message.
    Permanent(&'static str, String),
    /// It continues when something else changes, for example when a node has room or answers again.
    Waiting(String),
    /// It may be stuck; check again at this time.
    Until(Timestamp),
}

/// Whether a pod is stuck before its start, or at its end.
#[must_use]
pub fn problem(pod: &Pod, now: Timestamp) -> Option<Stuck> {
    let status = pod.status.as_ref().filter(|_| is_running(pod))?;
    // The deletion timestamp is the time by which the pod should be removed.
    if let Some(due) = &pod.metadata.deletion_timestamp {
        let place = status.host_ip.as_deref().unwrap_or("its node");
        let text = format!("pod {} was asked to terminate, and {place} has not confirmed its end", name(pod));
        return Some(once_due(now, Some(due.0), REPORTED_AFTER, Stuck::Waiting(text)));
    }
    image_problem(pod, now).or_else(|| start_problem(pod, now)).or_else(|| scheduling_problem(pod, now))
}

/// Returns `then` once `since` is longer ago than `limit`; until then the time of the next check.
fn once_due(now: Timestamp, since: Option<Timestamp>, limit: SignedDuration, then: Stuck) -> Stuck {
    let due = since.unwrap_or(now).saturating_add(limit).unwrap_or(now);
    if due <= now { then } else { Stuck::Until(due) }
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// The containers in the order in which they run.
fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let lists = status.map(|status| [&status.init_container_statuses, &status.container_statuses]);
    lists.into_iter().flatten().flatten().flatten()
}

/// A container whose image cannot be run.
fn image_problem(pod: &Pod, now: Timestamp) -> Option<Stuck> {
    containers(pod).find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let message = waiting.message.as_deref().unwrap_or(reason);
        let text =
            || format!("image {:?} of pod {} cannot be run: {reason}: {message}", container.image, name(pod));
        match reason {
            "InvalidImageName" | "ErrImageNeverPull" => Some(Stuck::Permanent("ImageCannotBePulled", text())),
            "ImagePullBackOff"
            | "ErrImagePull"
            | "RegistryUnavailable"
            | "ImageInspectError"
            | "CreateContainerConfigError"
            | "CreateContainerError"
            | "RunContainerError" => {
                let then = Stuck::Permanent("ImageCannotBePulled", text());
                Some(once_due(now, tried_since(pod), PERMANENT_AFTER, then))
            }
            _ => None,
        }
    })
}

/// A pod that is scheduled but has no running container, and for which no error is reported. It may be
/// pulling an image or waiting for a volume or a network. While an init container runs, the later containers
/// only wait for it.
fn start_problem(pod: &Pod, now: Timestamp) -> Option<Stuck> {
    if containers(pod).any(container_runs) {
        return None;
    }
    let next = containers(pod).find(|container| is_prepared(container))?;
    let text = format!(
        "pod {0} has not started: its image {1} is still being fetched, or a volume or network is not ready; \
         kubectl -n {2} describe pod {0}",
        name(pod),
        next.image,
        pod.metadata.namespace.as_deref().unwrap_or_default()
    );
    Some(once_due(now, tried_since(pod), REPORTED_AFTER, Stuck::Waiting(text)))
}

fn container_runs(container: &ContainerStatus) -> bool {
    container.state.as_ref().is_some_and(|state| state.running.is_some())
}

/// Whether the kubelet reports that it prepares the start of the container.
fn is_prepared(container: &ContainerStatus) -> bool {
    let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
    matches!(reason, Some("ContainerCreating" | "PodInitializing"))
}

/// A pod that cannot be scheduled.
fn scheduling_problem(pod: &Pod, now: Timestamp) -> Option<Stuck> {
    let unscheduled = pod.status.as_ref()?.conditions.iter().flatten().find(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == ConditionStatus::False
            && condition.reason.as_deref() == Some("Unschedulable")
    })?;
    let message = unscheduled.message.as_deref().unwrap_or("no node can run it");
    let since = unscheduled.last_transition_time.as_ref().or(pod.metadata.creation_timestamp.as_ref());
    let text = format!("pod {} waits for a node: {message}", name(pod));
    Some(once_due(now, since.map(|since| since.0), REPORTED_AFTER, Stuck::Waiting(text)))
}

/// Since when the next container could start: since its pod was scheduled and the previous container ended.
fn tried_since(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let placed =
        status.conditions.iter().flatten().filter(|condition| {
            condition.type_ == "PodScheduled" && condition.status == ConditionStatus::True
        });
    let placed = placed.filter_map(|condition| condition.last_transition_time.as_ref());
    let before = status.init_container_statuses.iter().flatten();
    let before =
        before.filter_map(|container| container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    pod.metadata.creation_timestamp.iter().chain(placed).chain(before).map(|time| time.0).max()
}

/// The message that the process of an ended pod wrote, or how its container ended.
#[must_use]
pub fn termination_message(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let message = containers(pod).find_map(failure);
    message.or_else(|| Some(format!("pod {}: {}", name(pod), status.message.as_ref()?)))
}

fn failure(container: &ContainerStatus) -> Option<String> {
    let states = [container.state.as_ref(), container.last_state.as_ref()];
    let ended = states.into_iter().flatten().find_map(|state: &ContainerState| state.terminated.as_ref())?;
    if ended.exit_code == 0 {
        return None;
    }
    let message = ended.message.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(runner_message);
    let how = match ended.reason.as_deref() {
        Some("OOMKilled") => "its container needed more memory than it may use (OOMKilled)".to_owned(),
        _ => format!("its container ended with exit code {}", ended.exit_code),
    };
    Some(match message {
        Some(text) => format!("{text} ({how})"),
        None => how,
    })
}

/// The runner writes JSON with a `reason` or `message`; any other image may write any text.
fn runner_message(text: &str) -> String {
    let read: Option<serde_json::Value> = serde_json::from_str(text).ok();
    let message = read.as_ref().and_then(|value| {
        ["reason", "message"].iter().find_map(|key| value.get(key)?.as_str().filter(|text| !text.is_empty()))
    });
    message.unwrap_or(text).to_owned()
}

/// Whether a container of the pod has started, so that it has a log.
#[must_use]
pub fn has_log(pod: &Pod) -> bool {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    containers.unwrap_or_default().iter().any(|container| {
        let state = container.state.as_ref();
        state.is_some_and(|state| state.terminated.is_some() || state.running.is_some())
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{Value, from_value, json};

    use super::*;

    fn job(conditions: &Value) -> Job {
        from_value(json!({"metadata": {}, "status": {"conditions": conditions}})).unwrap()
    }

    fn pod(status: &Value) -> Pod {
        let meta = json!({"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"});
        from_value(json!({"metadata": meta, "status": status})).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(second)
    }

    /// Contract A, case 28.
    #[test]
    fn a28_conditions_of_a_job_are_its_state() {
        let state_of = |type_: &str, status: &str| {
            job_state(&job(&json!([{"type": type_, "status": status, "reason": "R", "message": "M"}])))
        };
        assert!(matches!(state_of("Complete", "True"), JobState::Succeeded { .. }));
        for failed in ["Failed", "FailureTarget"] {
            assert!(matches!(state_of(failed, "True"), JobState::Failed { .. }));
        }
        assert_eq!(state_of("Suspended", "True"), JobState::Suspended);
        for condition in ["Failed", "Complete", "Suspended", "SuccessCriteriaMet"] {
            assert_eq!(state_of(condition, "False"), JobState::Running);
        }
    }

    /// Contract B, case 32.
    #[test]
    fn b32_an_image_that_cannot_be_pulled_is_named_within_thirty_seconds() {
        let waiting = |reason: &str| {
            pod(&json!({"phase": "Pending", "containerStatuses": [{
                "name": "c", "image": "no/such:1", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason, "message": "not found"}}}]}))
        };
        assert_eq!(problem(&waiting("ImagePullBackOff"), at(5)), Some(Stuck::Until(at(20))));
        let Some(Stuck::Permanent(_, text)) = problem(&waiting("ErrImagePull"), at(20)) else {
            panic!("it waits")
        };
        assert!(text.contains("no/such:1") && text.contains("not found"), "{text}");
        assert!(matches!(problem(&waiting("InvalidImageName"), at(0)), Some(Stuck::Permanent(..))));
        assert_eq!(problem(&waiting("CrashLoopBackOff"), at(99)), None);
    }

    /// Contract B, case 32: while a registry does not answer, the kubelet reports no error for minutes.
    #[test]
    fn b32_a_pod_that_does_not_start_is_named_within_thirty_seconds() {
        let mut pod = pod(
            &json!({"phase": "Pending", "containerStatuses": [waiting_container("c", "ContainerCreating")]}),
        );
        pod.metadata.namespace = Some("ns".to_owned());
        assert_eq!(problem(&pod, at(5)), Some(Stuck::Until(at(20))));
        let Some(Stuck::Waiting(text)) = problem(&pod, at(20)) else { panic!("it waits") };
        assert!(text.contains("its image image-c is"), "{text}");
        assert!(text.ends_with("; kubectl -n ns describe pod p"), "{text}");
    }

    /// A container that waits for this reason.
    fn waiting_container(name: &str, reason: &str) -> Value {
        json!({"name": name, "image": format!("image-{name}"), "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason}}})
    }

    #[test]
    fn a_running_init_container_is_not_a_problem() {
        let of = |state: Value| {
            let mut init = waiting_container("b", "PodInitializing");
            init["state"] = state;
            pod(&json!({"phase": "Pending", "initContainerStatuses": [init],
                "containerStatuses": [waiting_container("c", "PodInitializing")]}))
        };
        let waits = of(json!({"waiting": {"reason": "PodInitializing"}}));
        assert!(matches!(problem(&waits, at(20)), Some(Stuck::Waiting(text)) if text.contains("image-b")));
        let running = of(json!({"running": {"startedAt": "2026-01-01T00:00:05Z"}}));
        assert_eq!(problem(&running, at(99)), None);
        let ended = of(json!({"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:01:40Z"}}));
        assert_eq!(problem(&ended, at(101)), Some(Stuck::Until(at(120))));
        assert!(matches!(problem(&ended, at(120)), Some(Stuck::Waiting(text)) if text.contains("image-c")));
    }

    #[test]
    fn the_time_limit_of_an_image_begins_when_the_previous_container_ended() {
        let waits = pod(&json!({"phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:50Z"}],
            "initContainerStatuses": [{"name": "b", "image": "b", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:01:40Z"}}}],
            "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": "ErrImagePull"}}}]}));
        assert_eq!(problem(&waits, at(101)), Some(Stuck::Until(at(120))));
        assert!(matches!(problem(&waits, at(120)), Some(Stuck::Permanent(..))));
    }

    #[test]
    fn a_pod_that_exceeds_its_grace_period_is_reported() {
        let mut pod = pod(&json!({"phase": "Running", "hostIP": "10.0.0.9"}));
        assert_eq!(problem(&pod, at(99)), None);
        pod.metadata.deletion_timestamp = Some(Time(at(30)));
        assert_eq!(problem(&pod, at(31)), Some(Stuck::Until(at(50))));
        assert!(matches!(problem(&pod, at(50)), Some(Stuck::Waiting(text)) if text.contains("10.0.0.9")));
    }

    #[test]
    fn a_pod_that_cannot_be_scheduled_is_reported() {
        let pod = pod(&json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/1 nodes", "lastTransitionTime": "2026-01-01T00:00:03Z"}]}));
        assert_eq!(problem(&pod, at(4)), Some(Stuck::Until(at(23))));
        assert!(matches!(problem(&pod, at(23)), Some(Stuck::Waiting(text)) if text.contains("0/1 nodes")));
    }

    #[test]
    fn the_termination_message_of_a_pod_says_why_it_failed() {
        let ended = |state: &Value| {
            pod(&json!({"phase": "Failed", "containerStatuses": [{"name": "c", "image": "i", "imageID": "",
                "ready": false, "restartCount": 0, "state": {"terminated": state}}]}))
        };
        let words = |state: &Value| termination_message(&ended(state)).unwrap();
        assert!(words(&json!({"exitCode": 3, "message": "boom\n"})).starts_with("boom (its container"));
        assert!(
            words(&json!({"exitCode": 1, "message": "{\"reason\": \"h2: no disk\"}"}))
                .starts_with("h2: no disk (")
        );
        assert!(words(&json!({"exitCode": 137, "reason": "OOMKilled"})).contains("memory"));
        assert!(termination_message(&ended(&json!({"exitCode": 0}))).is_none());
    }
}
