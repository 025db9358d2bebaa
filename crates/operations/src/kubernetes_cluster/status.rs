//! What the status of a `KubernetesCluster` says.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kubeon_api::kubernetes_cluster::SecretName;
use kubeon_api::{ClusterOperation, HostAddress, KubernetesCluster, KubernetesClusterStatus, Phase, labels};

use super::cluster_action::ClusterAction;
use super::history;
use super::next_action::NextAction;
use super::object_access::{namespace, object_name, object_notice, object_target, status_write};
use crate::condition::{
    self, ConditionText, DEGRADED, DELETING, HOST_KEYS_PINNED, PRECHECKED, PROGRESSING, READY, STEP_FAILED,
};
use crate::names;
use crate::operation::{at, notice, running};
use crate::view::View;
use crate::write::{ClusterChanges, Notice, ObjectKind, ObjectRef, Write};

/// Sets a condition. It is about the generation that was worked on, which need not be the newest.
fn set(new: &mut KubernetesClusterStatus, type_: &str, says: ConditionText<'_>, now: Timestamp) {
    condition::set(&mut new.conditions, type_, says, new.observed_generation, now);
}

/// Sets a condition about the newest generation, for which nothing is begun.
fn seen(
    new: &mut KubernetesClusterStatus,
    object: &KubernetesCluster,
    type_: &str,
    says: ConditionText<'_>,
    now: Timestamp,
) {
    condition::set(&mut new.conditions, type_, says, object.metadata.generation, now);
}

/// Conditions while an operation works.
pub(super) fn progressing(new: &mut KubernetesClusterStatus, word: &str, text: &str, now: Timestamp) {
    set(new, PROGRESSING, ConditionText { status: true, reason: word, message: text }, now);
    if condition::find(&new.conditions, READY).is_none() || word == "TearingDown" {
        set(new, READY, ConditionText { status: false, reason: word, message: text }, now);
    }
    if word == "TearingDown" {
        set(new, DELETING, ConditionText { status: true, reason: word, message: text }, now);
    }
    let fine = ConditionText { status: false, reason: "AsExpected", message: "nothing failed" };
    set(new, DEGRADED, fine, now);
}

/// Conditions after an operation ended.
pub(super) fn settled(
    new: &mut KubernetesClusterStatus,
    (succeeded, creating): (bool, bool),
    text: &str,
    now: Timestamp,
) {
    let word = if succeeded { "Done" } else { "Failed" };
    set(new, PROGRESSING, ConditionText { status: false, reason: word, message: text }, now);
    set(new, DEGRADED, ConditionText { status: !succeeded, reason: word, message: text }, now);
    if succeeded || creating {
        set(new, READY, ConditionText { status: succeeded, reason: word, message: text }, now);
    }
}

/// What a condition of the operation says.
pub(super) fn said<'o>(operation: &'o ClusterOperation, type_: &str) -> Option<&'o Condition> {
    condition::find(&operation.status.as_ref()?.conditions, type_)
}

/// The phase of an operation that works.
fn phase(operation: &ClusterOperation) -> Phase {
    let fit = said(operation, PRECHECKED).is_some_and(|found| found.status == "True");
    match ClusterAction::of(operation) {
        Some(ClusterAction::Terminate) => Phase::Terminating,
        _ if !fit => Phase::Prechecking,
        Some(ClusterAction::Create) => Phase::Creating,
        Some(ClusterAction::ScaleUp | ClusterAction::ScaleDown) | None => Phase::Scaling,
    }
}

/// What is seen of an operation that works: its Job, its phase, its step.
pub(super) fn works(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
) -> ClusterChanges {
    let before = object.status.clone().unwrap_or_default();
    let mut new = before.clone();
    let phase = phase(operation);
    // A precheck that is repeated by a later stage does not turn the clock back.
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
        let text = format!("waits until {} is ended", crate::operation::name(operation));
        set(
            &mut new,
            DELETING,
            ConditionText { status: true, reason: "EndingOperation", message: &text },
            s.now,
        );
    }
    let mut changes = ClusterChanges::default();
    if new.phase != before.phase {
        changes.notices.extend(begun(&mut new, object, operation, phase, s.now));
    } else if new.job_name != before.job_name {
        let text = format!("Job {} is made", new.job_name.as_deref().unwrap_or_default());
        changes.notices.push(object_notice(object, false, "JobMade", text));
    }
    changes.notices.extend(pinned(&mut new, object, operation));
    changes.notices.extend(failed_steps(&mut new, object, operation));
    changes.stages.push(status_write(object, &new, "its operation works").into_iter().collect());
    changes
}

/// That its operation was deleted and what works for it is being ended: told once.
pub(super) fn abandoned(s: &View<'_>, object: &KubernetesCluster, text: &str) -> ClusterChanges {
    let mut new = object.status.clone().unwrap_or_default();
    let deleting = object.metadata.deletion_timestamp.is_some();
    let type_ = if deleting { DELETING } else { PROGRESSING };
    set(&mut new, type_, ConditionText { status: true, reason: "EndingOperation", message: text }, s.now);
    let before = new.reason.replace(text.to_owned());
    let mut changes = ClusterChanges::default();
    if before.as_deref() != Some(text) {
        changes.notices.push(object_notice(object, true, "EndingOperation", text));
    }
    let said = status_write(object, &new, "its operation was deleted while it worked");
    changes.stages.push(said.into_iter().collect());
    changes
}

/// That the operation goes into this phase: how the object shows it, and what is told.
pub(super) fn begun(
    new: &mut KubernetesClusterStatus,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
    phase: Phase,
    now: Timestamp,
) -> Vec<Notice> {
    let text = format!("{} by Job {}", phase.as_str(), new.job_name.as_deref().unwrap_or("(none yet)"));
    if phase != Phase::Terminating {
        progressing(new, phase.as_str(), &text, now);
    }
    let mut notices = if phase == Phase::Prechecking { Vec::new() } else { fitness(object, operation) };
    notices.push(object_notice(object, false, phase.as_str(), text.as_str()));
    notices.push(notice(operation, false, phase.as_str(), text).with(object_target(object)));
    notices
}

/// That the hosts were looked at, and what a person should know of it: told when the phase moves on, or when the operation
/// ends because they were not fit.
pub(super) fn fitness(object: &KubernetesCluster, operation: &ClusterOperation) -> Vec<Notice> {
    let Some(found) = said(operation, PRECHECKED).filter(|found| found.status != "Unknown") else {
        return Vec::new();
    };
    let (warning, reason) =
        if found.status == "True" { (false, "Prechecked") } else { (true, "PrecheckFailed") };
    let text = found.message.as_str();
    let its = notice(operation, warning, reason, text).with(object_target(object));
    vec![object_notice(object, warning, reason, text), its]
}

/// That hosts were met for the first time. The object's status shows the same, so that it is told once.
pub(super) fn pinned(
    new: &mut KubernetesClusterStatus,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
) -> Vec<Notice> {
    let Some(found) = said(operation, HOST_KEYS_PINNED) else { return Vec::new() };
    let shown = Condition { observed_generation: new.observed_generation, ..found.clone() };
    let same = |told: &Condition| {
        (&told.message, &told.last_transition_time) == (&shown.message, &shown.last_transition_time)
    };
    if condition::find(&new.conditions, HOST_KEYS_PINNED).is_some_and(same) {
        return Vec::new();
    }
    let text = shown.message.clone();
    condition::put(&mut new.conditions, shown);
    vec![
        object_notice(object, false, HOST_KEYS_PINNED, text.as_str()),
        notice(operation, false, HOST_KEYS_PINNED, text).with(object_target(object)),
    ]
}

/// Steps that failed: one event for each line that the runner wrote. The object's status shows the same lines, so that each
/// is told once.
pub(super) fn failed_steps(
    new: &mut KubernetesClusterStatus,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
) -> Vec<Notice> {
    let Some(found) = said(operation, STEP_FAILED) else { return Vec::new() };
    let told: Vec<String> = condition::find(&new.conditions, STEP_FAILED)
        .map(|shown| shown.message.lines().map(str::to_owned).collect())
        .unwrap_or_default();
    let fresh: Vec<&str> =
        found.message.lines().filter(|line| !told.iter().any(|known| known == line)).collect();
    if fresh.is_empty() {
        return Vec::new();
    }
    condition::put(
        &mut new.conditions,
        Condition { observed_generation: new.observed_generation, ..found.clone() },
    );
    let both = |line: &str| {
        let its = notice(operation, true, STEP_FAILED, line).with(object_target(object));
        [object_notice(object, true, STEP_FAILED, line), its]
    };
    fresh.into_iter().flat_map(both).collect()
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
        NextAction::Held { word, text } => {
            let type_ = if deleting { DELETING } else { PROGRESSING };
            seen(
                &mut new,
                object,
                type_,
                ConditionText { status: deleting, reason: word, message: text },
                s.now,
            );
            blocked = words(&before, type_) != words(&new, type_);
            if new.phase != Some(Phase::Failed) {
                new.reason = Some(text.clone());
            }
        }
        NextAction::Refused(text) => {
            seen(
                &mut new,
                object,
                DEGRADED,
                ConditionText { status: true, reason: "NotYet", message: text },
                s.now,
            );
            new.reason = Some(text.clone());
        }
        NextAction::Declared => declared(s, &mut new, object),
        _ => {}
    }
    match (wanted, &new.reason) {
        (NextAction::Held { text, .. }, _) if blocked => {
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
    changes.stages.push(status_write(object, &new, "no operation is needed now").into_iter().collect());
    changes
}

/// The status that says that the next operation is refused. The refused write itself records the event.
pub(super) fn refused(object: &KubernetesCluster, text: &str, now: Timestamp) -> Option<Write> {
    let mut new = object.status.clone().unwrap_or_default();
    let deleting = object.metadata.deletion_timestamp.is_some();
    let type_ = if deleting { DELETING } else { PROGRESSING };
    seen(&mut new, object, type_, ConditionText { status: deleting, reason: "Refused", message: text }, now);
    // While an operation works, the reason is about that.
    if new.phase != Some(Phase::Failed) && new.operation.is_none() {
        new.reason = Some(condition::clipped(text));
    }
    status_write(object, &new, "what is next is refused")
}

/// The message after a success, with the command that adds a host that was skipped.
pub(super) fn as_declared(object: &KubernetesCluster, left_out: &[HostAddress]) -> String {
    if left_out.is_empty() {
        return "up to date".to_owned();
    }
    let hosts: Vec<String> = left_out.iter().map(ToString::to_string).collect();
    format!(
        "up to date, but {0} did not answer and was skipped; when it answers again, run: kubectl -n {1} annotate --overwrite ecs {2} \
         {3}- {4}=scaling-up",
        hosts.join(", "),
        namespace(object),
        object_name(object),
        labels::WITHOUT,
        labels::OPERATION
    )
}

/// What the condition of this type says.
fn words<'a>(status: &'a KubernetesClusterStatus, type_: &str) -> Option<(&'a str, &'a str)> {
    let found = condition::find(&status.conditions, type_)?;
    Some((found.reason.as_str(), found.message.as_str()))
}

/// Marks the cluster as up to date with this generation. After a failure only a successful operation may do that.
fn declared(s: &View<'_>, new: &mut KubernetesClusterStatus, object: &KubernetesCluster) {
    if new.phase != Some(Phase::Running) {
        new.phase = Some(Phase::Running);
        new.last_transition_time = Some(at(s.now));
    }
    new.reason = None;
    new.observed_generation = object.metadata.generation;
    let text = as_declared(object, &history::lacks(object));
    let text = text.as_str();
    set(new, DEGRADED, ConditionText { status: false, reason: "AsExpected", message: text }, s.now);
    set(new, PROGRESSING, ConditionText { status: false, reason: "Done", message: text }, s.now);
    set(new, READY, ConditionText { status: true, reason: "Done", message: text }, s.now);
    new.kubeconfig_secret = kubeconfig(s, object).or(new.kubeconfig_secret.take());
}

/// The Secret with the admin kubeconfig, when the runner has made it.
pub(super) fn kubeconfig(s: &View<'_>, object: &KubernetesCluster) -> Option<SecretName> {
    let name = names::kubeconfig(namespace(object), object_name(object));
    s.objects.meta(&ObjectRef::new(ObjectKind::Secret, namespace(object), &name))?;
    name.parse().ok().map(|name| SecretName { name })
}
