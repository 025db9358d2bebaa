//! The status of a `KubernetesCluster`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kubeon_api::kubernetes_cluster::SecretName;
use kubeon_api::{
    ClusterOperation, ConditionStatus, HostAddress, KubernetesCluster, KubernetesClusterStatus, Phase, labels,
};

use super::cluster_action::ClusterAction;
use super::health_conditions::{show_health, status_write};
use super::history;
use super::next_action::NextAction;
use super::object_access::{namespace, object_name, object_notice, object_target, status_write_as_given};
use crate::condition::{
    self, ConditionText, DEGRADED, DELETING, DONE, HOST_KEYS_PINNED, PAUSED, PRECHECKED, PROGRESSING, READY,
    RELEASED, STEP_FAILED,
};
use crate::names;
use crate::operation::{at, notice, pause, running};
use crate::view::View;
use crate::write::{ClusterChanges, Notice, ObjectKind, ObjectRef, Write};

/// The most skipped hosts in one message.
const MOST_NAMED: usize = 16;

/// Sets a condition about the generation of the last operation, which may be older than the newest
/// generation.
pub(super) fn set(new: &mut KubernetesClusterStatus, type_: &str, text: ConditionText<'_>, now: Timestamp) {
    condition::set(&mut new.conditions, type_, text, new.observed_generation, now);
}

/// Sets a condition about the newest generation, for which no operation has started.
fn set_for_newest(
    new: &mut KubernetesClusterStatus,
    object: &KubernetesCluster,
    type_: &str,
    text: ConditionText<'_>,
    now: Timestamp,
) {
    condition::set(&mut new.conditions, type_, text, object.metadata.generation, now);
}

/// Conditions while an operation runs in this phase.
pub(super) fn progressing(new: &mut KubernetesClusterStatus, phase: Phase, text: &str, now: Timestamp) {
    let terminating = phase == Phase::Terminating;
    let reason = if terminating { "TearingDown" } else { phase.as_str() };
    let progress = ConditionText { status: true, reason, message: text };
    set(new, PROGRESSING, progress, now);
    if condition::find(&new.conditions, READY).is_none() || terminating {
        set(new, READY, ConditionText { status: false, ..progress }, now);
    }
    if terminating {
        set(new, DELETING, progress, now);
    }
    let not_degraded = ConditionText { status: false, reason: "AsExpected", message: "nothing failed" };
    set(new, DEGRADED, not_degraded, now);
}

/// The condition of a cluster of which nothing is left to take down.
pub(super) fn released(new: &mut KubernetesClusterStatus, why: &str, now: Timestamp) {
    set(new, DELETING, ConditionText { status: true, reason: RELEASED, message: why }, now);
}

/// Whether an earlier leader found that nothing is left to take down.
pub(super) fn is_released(object: &KubernetesCluster) -> bool {
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice());
    let deleting = conditions.and_then(|conditions| condition::find(conditions, DELETING));
    deleting.is_some_and(|condition| condition.reason == RELEASED)
}

/// Conditions after an operation ended.
pub(super) fn settled(
    new: &mut KubernetesClusterStatus,
    (succeeded, creating): (bool, bool),
    text: &str,
    now: Timestamp,
) {
    let word = if succeeded { DONE } else { "Failed" };
    set(new, PROGRESSING, ConditionText { status: false, reason: word, message: text }, now);
    set(new, DEGRADED, ConditionText { status: !succeeded, reason: word, message: text }, now);
    if succeeded || creating {
        set(new, READY, ConditionText { status: succeeded, reason: word, message: text }, now);
    }
}

/// Conditions after an operation that left the cluster as it was.
pub(super) fn operation_over(s: &View<'_>, new: &mut KubernetesClusterStatus, object: &KubernetesCluster) {
    let text = up_to_date_message(object, &history::missing_hosts(object));
    set(new, PROGRESSING, ConditionText { status: false, reason: DONE, message: &text }, s.now);
}

/// Conditions while a change waits for a person.
pub(super) fn waits(new: &mut KubernetesClusterStatus, reason: &str, text: &str, now: Timestamp) {
    set(new, PROGRESSING, ConditionText { status: false, reason, message: text }, now);
}

/// A condition of the operation.
pub(super) fn operation_condition<'o>(operation: &'o ClusterOperation, type_: &str) -> Option<&'o Condition> {
    condition::find(&operation.status.as_ref()?.conditions, type_)
}

/// The phase of a running operation.
fn phase(operation: &ClusterOperation) -> Phase {
    let prechecked =
        operation_condition(operation, PRECHECKED).is_some_and(|found| found.status == ConditionStatus::True);
    match ClusterAction::of(operation) {
        Some(ClusterAction::Terminate) => Phase::Terminating,
        // It changes no host.
        _ if operation.spec.plan => Phase::Prechecking,
        // It changes no host, and checks none before.
        Some(ClusterAction::Snapshot) => Phase::Snapshotting,
        // Its hosts are checked after the cluster was removed from them.
        Some(ClusterAction::Rollback) => Phase::Updating,
        _ if !prechecked => Phase::Prechecking,
        action => phase_of_work(action),
    }
}

/// The phase while an operation changes hosts.
pub(super) fn phase_of_work(action: Option<ClusterAction>) -> Phase {
    match action {
        Some(ClusterAction::Create) => Phase::Creating,
        Some(ClusterAction::ScaleUp | ClusterAction::ScaleDown) | None => Phase::Scaling,
        Some(ClusterAction::Update | ClusterAction::Rollback) => Phase::Updating,
        Some(ClusterAction::Renew | ClusterAction::Repair) => Phase::Repairing,
        Some(ClusterAction::Snapshot) => Phase::Snapshotting,
        Some(ClusterAction::Terminate) => Phase::Terminating,
    }
}

/// Shows the progress of a running operation: its Job, its phase, its step.
pub(super) fn show_progress(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
) -> ClusterChanges {
    let before = object.status.clone().unwrap_or_default();
    let mut new = before.clone();
    let phase = phase(operation);
    // A repeated precheck in a later stage does not reset the phase.
    if new.phase != Some(phase) && !(phase == Phase::Prechecking && new.phase.is_some()) {
        new.phase = Some(phase);
        new.last_transition_time = Some(at(s.now));
    }
    new.job_name = running::job_of(s, operation).map(|job| job.name).or(new.job_name);
    let status = operation.status.as_ref();
    let steps = status.and_then(|status| status.steps.as_ref());
    new.step = steps.map(|steps| match &steps.current {
        Some(current) => format!("{} {current}", steps.text),
        None => steps.text.clone(),
    });
    new.reason = status.and_then(|status| status.reason.clone());
    if object.metadata.deletion_timestamp.is_some() && phase != Phase::Terminating {
        let text = format!("waits until operation {} has ended", crate::operation::name(operation));
        set(
            &mut new,
            DELETING,
            ConditionText { status: true, reason: "EndingOperation", message: &text },
            s.now,
        );
    }
    let mut changes = ClusterChanges::default();
    let was_paused =
        condition::find(&new.conditions, PROGRESSING).is_some_and(|found| found.reason == PAUSED);
    if let Some(text) = pause::message(operation) {
        set(&mut new, PROGRESSING, ConditionText { status: false, reason: PAUSED, message: text }, s.now);
    } else if was_paused {
        let text = work_text(phase, &new);
        progressing(&mut new, phase, &text, s.now);
    }
    if new.phase != before.phase {
        changes.notices.extend(begin_phase(&mut new, object, operation, phase, s.now));
    } else if new.job_name != before.job_name {
        let text = format!("Job {} is created", new.job_name.as_deref().unwrap_or_default());
        changes.notices.push(object_notice(object, false, "JobMade", text));
    }
    changes.notices.extend(pinned_key_notices(&mut new, object, operation));
    changes.notices.extend(failed_step_notices(&mut new, object, operation));
    changes.notices.extend(show_health(s, object, &mut new));
    changes.stages.push(status_write(s, object, new, "the operation runs").into_iter().collect());
    changes
}

/// Shows that the operation was deleted and its Job is being stopped. The event is recorded once.
pub(super) fn operation_deleted(s: &View<'_>, object: &KubernetesCluster, text: &str) -> ClusterChanges {
    let mut new = object.status.clone().unwrap_or_default();
    let deleting = object.metadata.deletion_timestamp.is_some();
    let type_ = if deleting { DELETING } else { PROGRESSING };
    set(&mut new, type_, ConditionText { status: true, reason: "EndingOperation", message: text }, s.now);
    let before = new.reason.replace(text.to_owned());
    let mut changes = ClusterChanges::default();
    if before.as_deref() != Some(text) {
        changes.notices.push(object_notice(object, true, "EndingOperation", text));
    }
    let write = status_write(s, object, new, "the operation was deleted while it ran");
    changes.stages.push(write.into_iter().collect());
    changes
}

fn work_text(phase: Phase, status: &KubernetesClusterStatus) -> String {
    format!("{} by Job {}", phase.as_str(), status.job_name.as_deref().unwrap_or("(none yet)"))
}

/// Enters a phase: the conditions of the object, and the events.
pub(super) fn begin_phase(
    new: &mut KubernetesClusterStatus,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
    phase: Phase,
    now: Timestamp,
) -> Vec<Notice> {
    let text = work_text(phase, new);
    if phase != Phase::Terminating {
        progressing(new, phase, &text, now);
    }
    let mut notices =
        if phase == Phase::Prechecking { Vec::new() } else { precheck_notices(object, operation) };
    notices.push(object_notice(object, false, phase.as_str(), text.as_str()));
    notices.push(notice(operation, false, phase.as_str(), text).with(object_target(object)));
    notices
}

/// The events about the precheck. They are recorded when the phase advances, or when the operation ends
/// because the precheck failed.
pub(super) fn precheck_notices(object: &KubernetesCluster, operation: &ClusterOperation) -> Vec<Notice> {
    let Some(found) =
        operation_condition(operation, PRECHECKED).filter(|found| found.status != ConditionStatus::Unknown)
    else {
        return Vec::new();
    };
    let (warning, reason) =
        if found.status == ConditionStatus::True { (false, "Prechecked") } else { (true, "PrecheckFailed") };
    let text = found.message.as_str();
    let operation_notice = notice(operation, warning, reason, text).with(object_target(object));
    vec![object_notice(object, warning, reason, text), operation_notice]
}

/// The events about newly pinned SSH host keys. The object's status repeats the message, so that each event
/// is recorded once.
pub(super) fn pinned_key_notices(
    new: &mut KubernetesClusterStatus,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
) -> Vec<Notice> {
    let Some(found) = operation_condition(operation, HOST_KEYS_PINNED) else { return Vec::new() };
    let shown = Condition { observed_generation: new.observed_generation, ..found.clone() };
    let is_same = |known: &Condition| {
        (&known.message, &known.last_transition_time) == (&shown.message, &shown.last_transition_time)
    };
    if condition::find(&new.conditions, HOST_KEYS_PINNED).is_some_and(is_same) {
        return Vec::new();
    }
    let text = shown.message.clone();
    condition::put(&mut new.conditions, shown);
    vec![
        object_notice(object, false, HOST_KEYS_PINNED, text.as_str()),
        notice(operation, false, HOST_KEYS_PINNED, text).with(object_target(object)),
    ]
}

/// The events about failed steps: one for each line of the runner. The object's status repeats the lines, so
/// that each event is recorded once.
pub(super) fn failed_step_notices(
    new: &mut KubernetesClusterStatus,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
) -> Vec<Notice> {
    let Some(found) = operation_condition(operation, STEP_FAILED) else { return Vec::new() };
    let known: Vec<String> = condition::find(&new.conditions, STEP_FAILED)
        .map(|shown| shown.message.lines().map(str::to_owned).collect())
        .unwrap_or_default();
    let new_lines: Vec<&str> =
        found.message.lines().filter(|line| !known.iter().any(|old| old == line)).collect();
    if new_lines.is_empty() {
        return Vec::new();
    }
    condition::put(
        &mut new.conditions,
        Condition { observed_generation: new.observed_generation, ..found.clone() },
    );
    let events = |line: &str| {
        let operation_notice = notice(operation, true, STEP_FAILED, line).with(object_target(object));
        [object_notice(object, true, STEP_FAILED, line), operation_notice]
    };
    new_lines.into_iter().flat_map(events).collect()
}

/// The status of a cluster without a current operation: up to date, waiting, or refused.
pub(super) fn waiting_or_up_to_date(
    s: &View<'_>,
    object: &KubernetesCluster,
    wanted: &NextAction,
) -> ClusterChanges {
    let before = object.status.clone().unwrap_or_default();
    let mut new = before.clone();
    let mut changes = ClusterChanges::default();
    let deleting = object.metadata.deletion_timestamp.is_some();
    let mut blocked = false;
    match wanted {
        NextAction::Blocked { word, text } => {
            let type_ = if deleting { DELETING } else { PROGRESSING };
            set_for_newest(
                &mut new,
                object,
                type_,
                ConditionText { status: deleting, reason: word, message: text },
                s.now,
            );
            blocked = reason_and_message(&before, type_) != reason_and_message(&new, type_);
            if new.phase != Some(Phase::Failed) {
                new.reason = Some(text.clone());
            }
        }
        NextAction::Refused(text) => {
            new.observed_generation = object.metadata.generation;
            set_for_newest(
                &mut new,
                object,
                DEGRADED,
                ConditionText { status: true, reason: "NotYet", message: text },
                s.now,
            );
            new.reason = Some(text.clone());
        }
        NextAction::Declared => mark_up_to_date(s, &mut new, object),
        _ => {}
    }
    match (wanted, &new.reason) {
        (NextAction::Blocked { text, .. }, _) if blocked => {
            changes.notices.push(object_notice(object, true, "Held", text.clone()));
        }
        (NextAction::Refused(_), Some(text)) if new.reason != before.reason => {
            changes.notices.push(object_notice(object, true, "Held", text.clone()));
        }
        (NextAction::Declared, _) if new.phase != before.phase => {
            changes.notices.push(object_notice(object, false, Phase::Running.as_str(), "up to date"));
        }
        _ => {}
    }
    changes.notices.extend(show_health(s, object, &mut new));
    changes.stages.push(status_write(s, object, new, "no operation is needed now").into_iter().collect());
    changes
}

/// The status when the API server refuses the next write. The caller records the event.
pub(super) fn refused(object: &KubernetesCluster, text: &str, now: Timestamp) -> Option<Write> {
    let mut new = object.status.clone().unwrap_or_default();
    let deleting = object.metadata.deletion_timestamp.is_some();
    let type_ = if deleting { DELETING } else { PROGRESSING };
    set_for_newest(
        &mut new,
        object,
        type_,
        ConditionText { status: deleting, reason: "Refused", message: text },
        now,
    );
    // While an operation runs, the reason is about that operation.
    if new.phase != Some(Phase::Failed) && new.operation.is_none() {
        new.reason = Some(condition::clipped(text));
    }
    status_write_as_given(object, new, now, "the API server refuses the next write")
}

/// The message after a success, with the command that adds a skipped host.
pub(super) fn up_to_date_message(object: &KubernetesCluster, skipped: &[HostAddress]) -> String {
    if skipped.is_empty() {
        return "up to date".to_owned();
    }
    let hosts: Vec<String> = skipped.iter().take(MOST_NAMED).map(ToString::to_string).collect();
    let more = match skipped.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "up to date, but {0}{more} did not answer and was skipped; when it answers again, run: kubectl -n {1} annotate --overwrite ecs {2} \
         {3}- {4}=scaling-up",
        hosts.join(", "),
        namespace(object),
        object_name(object),
        labels::WITHOUT,
        labels::OPERATION
    )
}

/// The reason and message of the condition of this type.
fn reason_and_message<'a>(status: &'a KubernetesClusterStatus, type_: &str) -> Option<(&'a str, &'a str)> {
    let found = condition::find(&status.conditions, type_)?;
    Some((found.reason.as_str(), found.message.as_str()))
}

/// Marks the cluster as up to date with this generation. After a failure, only a successful operation may do
/// that.
fn mark_up_to_date(s: &View<'_>, new: &mut KubernetesClusterStatus, object: &KubernetesCluster) {
    if new.phase != Some(Phase::Running) {
        new.phase = Some(Phase::Running);
        new.last_transition_time = Some(at(s.now));
    }
    new.reason = None;
    new.observed_generation = object.metadata.generation;
    let text = up_to_date_message(object, &history::missing_hosts(object));
    let text = text.as_str();
    set(new, DEGRADED, ConditionText { status: false, reason: "AsExpected", message: text }, s.now);
    set(new, PROGRESSING, ConditionText { status: false, reason: DONE, message: text }, s.now);
    set(new, READY, ConditionText { status: true, reason: DONE, message: text }, s.now);
    new.kubeconfig_secret = kubeconfig(s, object).or(new.kubeconfig_secret.take());
}

/// The Secret with the admin kubeconfig, if the runner has created it.
pub(super) fn kubeconfig(s: &View<'_>, object: &KubernetesCluster) -> Option<SecretName> {
    let name = names::kubeconfig(namespace(object), object_name(object));
    s.objects.meta(&ObjectRef::new(ObjectKind::Secret, namespace(object), &name))?;
    name.parse().ok().map(|name| SecretName { name })
}
