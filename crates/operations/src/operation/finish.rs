//! The end of an operation.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubeon_api::kubeonkube::{ClusterOperationStatus, OperationResult};
use kubeon_api::{ClusterOperation, ConditionStatus};

use super::{OperationChanges, at, notice, shown, status, status_write};
use crate::cluster_object::operation_notice;
use crate::condition::{
    self, COMPLETE, ConditionText, FAILED, NOTHING_TO_DO, PAUSED, PRECHECKED, PROGRESSING, STEP_FAILED,
};
use crate::kubernetes_cluster::failure_text;
use crate::names::{COMPLETED_LABEL, DERIVED_UID_LABEL};
use crate::view::View;
use crate::write::Notice;

/// The reason of an operation that a user cancelled.
pub(crate) const CANCELLED: &str = "Cancelled";

/// How an operation ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct End {
    pub result: OperationResult,
    /// The reason in CamelCase.
    pub word: String,
    /// The message for the user; `None` when its Job succeeded.
    pub reason: Option<String>,
    /// The end time of the Job, if it is known.
    pub time: Option<Time>,
}

impl End {
    pub(crate) fn failed(word: impl Into<String>, reason: impl Into<String>) -> Self {
        let (word, reason) = (word.into(), Some(reason.into()));
        Self { result: OperationResult::Failed, word, reason, time: None }
    }

    pub(crate) fn succeeded(time: Option<Time>) -> Self {
        Self { result: OperationResult::Succeeded, word: "JobComplete".to_owned(), reason: None, time }
    }

    /// The end of an operation that ended like this before, and that the limit of the history removed.
    pub(crate) fn repeated(result: OperationResult) -> Self {
        let reason = "it ran before, until the limit of the history removed it; to run it again, create it with another name";
        Self { result, word: "RanBefore".to_owned(), reason: Some(reason.to_owned()), time: None }
    }

    /// The end of an operation that ended before it was restored without its status. Nobody knows how.
    pub(crate) fn without_status() -> Self {
        let reason = format!(
            "it has the label {COMPLETED_LABEL}=done and no status: it ended before it was restored, and how is not known; to run it again, create it without the label"
        );
        Self::failed("RanBefore", reason)
    }

    fn kind(&self) -> EndKind {
        match (self.result, self.word.as_str()) {
            (OperationResult::Succeeded, _) => EndKind::Succeeded,
            (_, CANCELLED) => EndKind::Cancelled,
            _ => EndKind::Failed,
        }
    }
}

/// The kind of an end, for its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndKind {
    Succeeded,
    /// A user cancelled the operation, so its events are no warnings.
    Cancelled,
    Failed,
}

impl EndKind {
    /// The reasons of the events on the operation and on its Cluster.
    fn events(self) -> [&'static str; 2] {
        match self {
            Self::Succeeded => ["Succeeded", "OperationSucceeded"],
            Self::Cancelled => [CANCELLED, "OperationCancelled"],
            Self::Failed => ["Failed", "OperationFailed"],
        }
    }
}

/// Writes the end. The status is written first, because users wait for it; the history follows.
pub(crate) fn finish(s: &View<'_>, operation: &ClusterOperation, end: End) -> OperationChanges {
    finish_from(s, operation, status(operation), end)
}

/// As [`finish`], from a status that was not written yet.
pub(crate) fn finish_from(
    s: &View<'_>,
    operation: &ClusterOperation,
    mut new: ClusterOperationStatus,
    end: End,
) -> OperationChanges {
    let kind = end.kind();
    let [operation_event, cluster_event] = kind.events();
    let warning = kind == EndKind::Failed;
    let generation = operation.metadata.generation;
    let text = end.reason.as_deref().map(|reason| failure_text(operation, reason));
    new.status = Some(end.result);
    new.digest.get_or_insert_with(|| operation.spec.digest());
    let ended = end.time.map_or_else(|| at(s.now), |time| at(time.0));
    new.took = new.start_time.as_ref().map(|began| condition::span(began.0, ended.0));
    new.end_time = Some(ended);
    new.waits_for = None;
    new.observed_generation = generation;
    let type_ = if end.result == OperationResult::Succeeded { COMPLETE } else { FAILED };
    let message = text.as_deref().unwrap_or(success_message(operation));
    let condition_text = ConditionText { status: true, reason: &end.word, message };
    condition::set(&mut new.conditions, type_, condition_text, generation, s.now);
    new.conditions.retain(|condition| condition.type_ != PAUSED);
    let end_notice = notice(operation, warning, operation_event, message);
    new.reason = text;
    let mut progress = OperationChanges::default();
    progress
        .changes
        .stages
        .extend(status_write(operation, &mut new, s.now, "the operation ended").map(|write| vec![write]));
    progress.changes.notices.extend(precheck_notice(operation));
    progress.changes.notices.extend(failed_step_notices(operation));
    let cluster_notice = operation_notice(s, operation, warning, cluster_event, &end_notice.text);
    progress.changes.notices.extend(cluster_notice);
    progress.changes.notices.push(end_notice);
    progress.shown = Some((1, shown(operation, &new)));
    progress
}

/// The message of a success; it says when nothing changed, if the runner reported that.
fn success_message(operation: &ClusterOperation) -> &str {
    let conditions = operation.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let idle = condition::find(conditions, PROGRESSING).filter(|found| found.reason == NOTHING_TO_DO);
    idle.map_or("completed", |found| &found.message)
}

fn is_derived(operation: &ClusterOperation) -> bool {
    operation.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(DERIVED_UID_LABEL))
}

/// Events about failed steps, recorded at the end. For a derived operation, the reconciles of its cluster
/// record them as they occur.
fn failed_step_notices(operation: &ClusterOperation) -> Vec<Notice> {
    let status = operation.status.as_ref().filter(|_| !is_derived(operation));
    let found = status.and_then(|status| condition::find(&status.conditions, STEP_FAILED));
    let lines = found.into_iter().flat_map(|found| found.message.lines());
    lines.map(|line| notice(operation, true, STEP_FAILED, line)).collect()
}

/// The event about the precheck of the hosts. For a derived operation, the reconciles of its cluster record
/// it.
fn precheck_notice(operation: &ClusterOperation) -> Option<Notice> {
    if is_derived(operation) {
        return None;
    }
    let found = condition::find(&operation.status.as_ref()?.conditions, PRECHECKED)?;
    match found.status.parse() {
        Ok(ConditionStatus::True) => Some(notice(operation, false, "Prechecked", found.message.as_str())),
        Ok(ConditionStatus::False) => Some(notice(operation, true, "PrecheckFailed", found.message.as_str())),
        Ok(ConditionStatus::Unknown) | Err(_) => None,
    }
}
