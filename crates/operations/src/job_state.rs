//! How a Job stands, and what its pods say about it.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How long an image may be tried before that ends the operation.
const HOPELESS_AFTER: SignedDuration = SignedDuration::from_secs(20);
/// How long a pod may look for a machine, prepare its start, or be on its way out beyond the time that it was given, before
/// people are told.
const TOLD_AFTER: SignedDuration = SignedDuration::from_secs(20);

/// How a Job stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// It works, or is about to.
    Works,
    /// It did what it was made for.
    Succeeded {
        /// When.
        end: Option<Time>,
    },
    /// It did not.
    Failed {
        /// The condition's reason: `BackoffLimitExceeded`, `DeadlineExceeded`.
        reason: String,
        /// The condition's message.
        message: String,
        /// When.
        end: Option<Time>,
    },
    /// It was told not to go on.
    Suspended,
}

/// How a Job stands, by the first of its conditions that is true. Contract A, case 28.
#[must_use]
pub fn job_state(job: &Job) -> JobState {
    let status = job.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    for condition in conditions.iter().filter(|condition| condition.status == "True") {
        let end = status
            .and_then(|status| status.completion_time.clone())
            .or_else(|| condition.last_transition_time.clone());
        match condition.type_.as_str() {
            "Complete" => return JobState::Succeeded { end },
            "Failed" | "FailureTarget" => {
                return JobState::Failed {
                    reason: condition.reason.clone().unwrap_or_default(),
                    message: condition.message.clone().unwrap_or_default(),
                    end,
                };
            }
            "Suspended" => return JobState::Suspended,
            _ => {}
        }
    }
    JobState::Works
}

/// Whether anything of a pod may still work.
#[must_use]
pub fn lives(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// When the last container of a pod ended, if all did.
#[must_use]
pub fn ended_at(pod: &Pod) -> Option<Timestamp> {
    let ended =
        |one: &ContainerStatus| Some(one.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0);
    containers(pod).filter_map(ended).max().filter(|_| !lives(pod))
}

/// Why a pod does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stuck {
    /// It will not by itself; one word and the pod's own message.
    Hopeless(&'static str, String),
    /// It will when something else changes: a machine has room, a node is heard of again.
    Held(String),
    /// It may be; to be judged at that time.
    Until(Timestamp),
}

/// Whether a pod is stuck before its start, or at its end.
#[must_use]
pub fn stuck(pod: &Pod, now: Timestamp) -> Option<Stuck> {
    let status = pod.status.as_ref().filter(|_| lives(pod))?;
    // A deletion's time is when the pod should be gone at the latest.
    if let Some(due) = &pod.metadata.deletion_timestamp {
        let place = status.host_ip.as_deref().unwrap_or("its node");
        let text = format!("pod {} was told to end, and {place} has not said that it did", name(pod));
        return Some(after(now, Some(due.0), TOLD_AFTER, Stuck::Held(text)));
    }
    unfit(pod, now).or_else(|| unstarted(pod, now)).or_else(|| unplaced(pod, now))
}

/// What is to be said once this is so for longer than `patience`; until then, when that will be.
fn after(now: Timestamp, since: Option<Timestamp>, patience: SignedDuration, then: Stuck) -> Stuck {
    let due = since.unwrap_or(now).saturating_add(patience).unwrap_or(now);
    if due <= now { then } else { Stuck::Until(due) }
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// In the order in which they run.
fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let lists = status.map(|status| [&status.init_container_statuses, &status.container_statuses]);
    lists.into_iter().flatten().flatten().flatten()
}

/// A container that cannot be run.
fn unfit(pod: &Pod, now: Timestamp) -> Option<Stuck> {
    containers(pod).find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let said = waiting.message.as_deref().unwrap_or(reason);
        let text =
            || format!("image {:?} of pod {} cannot be run: {reason}: {said}", container.image, name(pod));
        match reason {
            "InvalidImageName" | "ErrImageNeverPull" => Some(Stuck::Hopeless("ImageCannotBePulled", text())),
            "ImagePullBackOff"
            | "ErrImagePull"
            | "RegistryUnavailable"
            | "ImageInspectError"
            | "CreateContainerConfigError"
            | "CreateContainerError"
            | "RunContainerError" => {
                let then = Stuck::Hopeless("ImageCannotBePulled", text());
                Some(after(now, tried_since(pod), HOPELESS_AFTER, then))
            }
            _ => None,
        }
    })
}

/// A pod that has a machine and of which nothing works yet, though nobody names an error. An image that is being fetched, and
/// a volume or a network that is not ready, look alike. While an init container works, those after it wait for that alone.
fn unstarted(pod: &Pod, now: Timestamp) -> Option<Stuck> {
    if containers(pod).any(works) {
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
    Some(after(now, tried_since(pod), TOLD_AFTER, Stuck::Held(text)))
}

fn works(container: &ContainerStatus) -> bool {
    container.state.as_ref().is_some_and(|state| state.running.is_some())
}

/// Whether a kubelet prepares its start, as far as it says.
fn is_prepared(container: &ContainerStatus) -> bool {
    let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
    matches!(reason, Some("ContainerCreating" | "PodInitializing"))
}

/// A pod for which no machine has room.
fn unplaced(pod: &Pod, now: Timestamp) -> Option<Stuck> {
    let unscheduled = pod.status.as_ref()?.conditions.iter().flatten().find(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    })?;
    let said = unscheduled.message.as_deref().unwrap_or("no machine takes it");
    let since = unscheduled.last_transition_time.as_ref().or(pod.metadata.creation_timestamp.as_ref());
    let text = format!("pod {} waits for a machine: {said}", name(pod));
    Some(after(now, since.map(|since| since.0), TOLD_AFTER, Stuck::Held(text)))
}

/// Since when the container that is next has been tried: since its pod has a machine, and the one before it ended.
fn tried_since(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let placed = status
        .conditions
        .iter()
        .flatten()
        .filter(|condition| condition.type_ == "PodScheduled" && condition.status == "True");
    let placed = placed.filter_map(|condition| condition.last_transition_time.as_ref());
    let before = status.init_container_statuses.iter().flatten();
    let before =
        before.filter_map(|container| container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    pod.metadata.creation_timestamp.iter().chain(placed).chain(before).map(|time| time.0).max()
}

/// What the containers of an ended pod left behind: the message that its process wrote, or how it ended.
#[must_use]
pub fn termination_message(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let said = containers(pod).find_map(ended_badly);
    said.or_else(|| Some(format!("pod {}: {}", name(pod), status.message.as_ref()?)))
}

fn ended_badly(container: &ContainerStatus) -> Option<String> {
    let states = [container.state.as_ref(), container.last_state.as_ref()];
    let ended = states.into_iter().flatten().find_map(|state: &ContainerState| state.terminated.as_ref())?;
    if ended.exit_code == 0 {
        return None;
    }
    let left = ended.message.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(said_by_runner);
    let how = match ended.reason.as_deref() {
        Some("OOMKilled") => "its container needed more memory than it may use (OOMKilled)".to_owned(),
        _ => format!("its container ended with exit code {}", ended.exit_code),
    };
    Some(match left {
        Some(text) => format!("{text} ({how})"),
        None => how,
    })
}

/// The runner leaves JSON with a `reason` or `message`; any other image leaves what it likes.
fn said_by_runner(text: &str) -> String {
    let read: Option<serde_json::Value> = serde_json::from_str(text).ok();
    let said = read.as_ref().and_then(|value| {
        ["reason", "message"].iter().find_map(|key| value.get(key)?.as_str().filter(|text| !text.is_empty()))
    });
    said.unwrap_or(text).to_owned()
}

/// Whether a container of the pod has run, so that there is a log.
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
        let one = |type_: &str, status: &str| {
            job_state(&job(&json!([{"type": type_, "status": status, "reason": "R", "message": "M"}])))
        };
        assert!(matches!(one("Complete", "True"), JobState::Succeeded { .. }));
        for failed in ["Failed", "FailureTarget"] {
            assert!(matches!(one(failed, "True"), JobState::Failed { .. }));
        }
        assert_eq!(one("Suspended", "True"), JobState::Suspended);
        for works in ["Failed", "Complete", "Suspended", "SuccessCriteriaMet"] {
            assert_eq!(one(works, "False"), JobState::Works);
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
        assert_eq!(stuck(&waiting("ImagePullBackOff"), at(5)), Some(Stuck::Until(at(20))));
        let Some(Stuck::Hopeless(_, text)) = stuck(&waiting("ErrImagePull"), at(20)) else {
            panic!("it waits")
        };
        assert!(text.contains("no/such:1") && text.contains("not found"), "{text}");
        assert!(matches!(stuck(&waiting("InvalidImageName"), at(0)), Some(Stuck::Hopeless(..))));
        assert_eq!(stuck(&waiting("CrashLoopBackOff"), at(99)), None);
    }

    /// Contract B, case 32: a registry that does not answer names no error for minutes.
    #[test]
    fn b32_a_pod_that_does_not_start_is_named_within_thirty_seconds() {
        let mut pod = pod(&json!({"phase": "Pending", "containerStatuses": [one("c", "ContainerCreating")]}));
        pod.metadata.namespace = Some("ns".to_owned());
        assert_eq!(stuck(&pod, at(5)), Some(Stuck::Until(at(20))));
        let Some(Stuck::Held(text)) = stuck(&pod, at(20)) else { panic!("it waits") };
        assert!(text.contains("its image image-c is"), "{text}");
        assert!(text.ends_with("; kubectl -n ns describe pod p"), "{text}");
    }

    /// A container of a pod, which waits for this reason.
    fn one(name: &str, reason: &str) -> Value {
        json!({"name": name, "image": format!("image-{name}"), "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason}}})
    }

    #[test]
    fn an_init_container_that_works_holds_up_nothing() {
        let of = |state: Value| {
            let mut init = one("b", "PodInitializing");
            init["state"] = state;
            pod(&json!({"phase": "Pending", "initContainerStatuses": [init],
                "containerStatuses": [one("c", "PodInitializing")]}))
        };
        let waits = of(json!({"waiting": {"reason": "PodInitializing"}}));
        assert!(matches!(stuck(&waits, at(20)), Some(Stuck::Held(text)) if text.contains("image-b")));
        let works = of(json!({"running": {"startedAt": "2026-01-01T00:00:05Z"}}));
        assert_eq!(stuck(&works, at(99)), None);
        let ended = of(json!({"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:01:40Z"}}));
        assert_eq!(stuck(&ended, at(101)), Some(Stuck::Until(at(120))));
        assert!(matches!(stuck(&ended, at(120)), Some(Stuck::Held(text)) if text.contains("image-c")));
    }

    #[test]
    fn an_image_is_tried_from_when_its_turn_came() {
        let waits = pod(&json!({"phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:50Z"}],
            "initContainerStatuses": [{"name": "b", "image": "b", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:01:40Z"}}}],
            "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": "ErrImagePull"}}}]}));
        assert_eq!(stuck(&waits, at(101)), Some(Stuck::Until(at(120))));
        assert!(matches!(stuck(&waits, at(120)), Some(Stuck::Hopeless(..))));
    }

    #[test]
    fn a_pod_that_does_not_say_that_it_ended_is_named() {
        let mut pod = pod(&json!({"phase": "Running", "hostIP": "10.0.0.9"}));
        assert_eq!(stuck(&pod, at(99)), None);
        pod.metadata.deletion_timestamp = Some(Time(at(30)));
        assert_eq!(stuck(&pod, at(31)), Some(Stuck::Until(at(50))));
        assert!(matches!(stuck(&pod, at(50)), Some(Stuck::Held(text)) if text.contains("10.0.0.9")));
    }

    #[test]
    fn a_pod_that_finds_no_machine_is_named_too() {
        let pod = pod(&json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/1 nodes", "lastTransitionTime": "2026-01-01T00:00:03Z"}]}));
        assert_eq!(stuck(&pod, at(4)), Some(Stuck::Until(at(23))));
        assert!(matches!(stuck(&pod, at(23)), Some(Stuck::Held(text)) if text.contains("0/1 nodes")));
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
