//! The end of an operation.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubeon_api::ClusterOperation;
use kubeon_api::kubeonkube::{ClusterOperationStatus, OperationResult};

use super::{OperationChanges, at, notice, shown, status, status_write};
use crate::cluster_object::operation_notice;
use crate::condition::{
    self, COMPLETE, ConditionText, FAILED, NOTHING_TO_DO, PRECHECKED, PROGRESSING, STEP_FAILED,
};
use crate::kubernetes_cluster::told;
use crate::names::DERIVED_UID_LABEL;
use crate::view::View;
use crate::write::Notice;

/// The word of an end that somebody asked for.
pub(crate) const CANCELLED: &str = "Cancelled";

/// How an operation ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct End {
    pub result: OperationResult,
    /// One word in CamelCase.
    pub word: String,
    /// For a person; none after a success.
    pub reason: Option<String>,
    /// When, if the Job says so.
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

    /// Reasons of its events: the operation's own, and its Cluster's. A cancelled operation gets no warning: a person cancelled
    /// it.
    fn events(&self) -> [&'static str; 2] {
        match (self.result, self.word.as_str()) {
            (OperationResult::Succeeded, _) => ["Succeeded", "OperationSucceeded"],
            (_, CANCELLED) => [CANCELLED, "OperationCancelled"],
            _ => ["Failed", "OperationFailed"],
        }
    }
}

/// Writes the end: the status first, because people wait for it; the history after it.
pub(crate) fn finish(s: &View<'_>, operation: &ClusterOperation, end: End) -> OperationChanges {
    finish_from(s, operation, status(operation), end)
}

/// As [`finish`], of a status that was not written yet.
pub(crate) fn finish_from(
    s: &View<'_>,
    operation: &ClusterOperation,
    mut new: ClusterOperationStatus,
    end: End,
) -> OperationChanges {
    let [its_event, event_of_cluster] = end.events();
    let warning = its_event == "Failed";
    let generation = operation.metadata.generation;
    let text = end.reason.as_deref().map(|reason| told(operation, reason));
    new.status = Some(end.result);
    new.digest.get_or_insert_with(|| operation.spec.digest());
    let ended = end.time.map_or_else(|| at(s.now), |time| at(time.0));
    new.took = new.start_time.as_ref().map(|began| condition::span(began.0, ended.0));
    new.end_time = Some(ended);
    new.waits_for = None;
    new.observed_generation = generation;
    let type_ = if end.result == OperationResult::Succeeded { COMPLETE } else { FAILED };
    let message = text.as_deref().unwrap_or(well(operation));
    let says = ConditionText { status: true, reason: &end.word, message };
    condition::set(&mut new.conditions, type_, says, generation, s.now);
    let about = notice(operation, warning, its_event, message);
    new.reason = text;
    let mut progress = OperationChanges::default();
    progress.changes.stages.extend(status_write(operation, &new, "it ended").map(|write| vec![write]));
    progress.changes.notices.extend(fitness(operation));
    progress.changes.notices.extend(steps(operation));
    let of_cluster = operation_notice(s, operation, warning, event_of_cluster, &about.text);
    progress.changes.notices.extend(of_cluster);
    progress.changes.notices.push(about);
    progress.shown = Some((1, shown(operation, &new)));
    progress
}

/// The message of a success: whether anything changed, if the runner reported it.
fn well(operation: &ClusterOperation) -> &str {
    let conditions = operation.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let idle = condition::find(conditions, PROGRESSING).filter(|found| found.reason == NOTHING_TO_DO);
    idle.map_or("completed", |found| &found.message)
}

fn is_derived(operation: &ClusterOperation) -> bool {
    operation.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(DERIVED_UID_LABEL))
}

/// Steps that failed, told at the end, since nobody keeps what was told before. Of an operation that was derived, its
/// cluster's turns tell them as they come.
fn steps(operation: &ClusterOperation) -> Vec<Notice> {
    let status = operation.status.as_ref().filter(|_| !is_derived(operation));
    let found = status.and_then(|status| condition::find(&status.conditions, STEP_FAILED));
    let lines = found.into_iter().flat_map(|found| found.message.lines());
    lines.map(|line| notice(operation, true, STEP_FAILED, line)).collect()
}

/// What was found about the hosts. Of an operation that was derived, its cluster's turns have told it already.
fn fitness(operation: &ClusterOperation) -> Option<Notice> {
    if is_derived(operation) {
        return None;
    }
    let found = condition::find(&operation.status.as_ref()?.conditions, PRECHECKED)?;
    match found.status.as_str() {
        "True" => Some(notice(operation, false, "Prechecked", found.message.as_str())),
        "False" => Some(notice(operation, true, "PrecheckFailed", found.message.as_str())),
        _ => None,
    }
}
