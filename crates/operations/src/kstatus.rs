//! The conditions of kstatus. Flux, Argo CD and `helm --wait` see by them whether an object is up to date, in work, or stays
//! as it is until a person acts. An entry exists only while it is true. Rules:
//! <https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md>.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kubeon_api::kubeonkube::{ClusterOperationStatus, OperationResult};
use kubeon_api::{ConditionStatus, KubernetesClusterStatus};

use crate::condition::{self, ConditionText, DEGRADED, DONE, FAILED, OBSERVED_DEFECTS, PROGRESSING};

/// The object is being changed, or a change waits.
pub(crate) const RECONCILING: &str = "Reconciling";
/// The object stays as it is until a person acts.
pub(crate) const STALLED: &str = "Stalled";

/// An entry that is true.
struct Entry {
    type_: &'static str,
    reason: String,
    message: String,
}

impl Entry {
    fn from(type_: &'static str, source: &Condition) -> Self {
        Self { type_, reason: source.reason.clone(), message: source.message.clone() }
    }

    fn reconciling(reason: &str, message: &str) -> Self {
        Self { type_: RECONCILING, reason: reason.to_owned(), message: message.to_owned() }
    }
}

/// Sets the entry of a business cluster. kstatus sees a deletion by the object's metadata.
pub(crate) fn show_cluster(new: &mut KubernetesClusterStatus, deleting: bool, now: Timestamp) {
    let entry = if deleting { None } else { of_cluster(new) };
    show(&mut new.conditions, entry.as_ref(), new.observed_generation, now);
}

fn of_cluster(status: &KubernetesClusterStatus) -> Option<Entry> {
    let failed = condition::find_true(&status.conditions, DEGRADED).filter(|degraded| {
        status.operation.is_none() && !OBSERVED_DEFECTS.contains(&degraded.reason.as_str())
    });
    if let Some(failed) = failed {
        return Some(Entry::from(STALLED, failed));
    }
    // While no operation runs, another reason than `Done` says what a change waits for.
    let progress = condition::find(&status.conditions, PROGRESSING)?;
    let is_done = progress.status != ConditionStatus::True && progress.reason == DONE;
    (!is_done).then(|| Entry::from(RECONCILING, progress))
}

/// Sets the entry of an operation.
pub(crate) fn show_operation(new: &mut ClusterOperationStatus, now: Timestamp) {
    let entry = of_operation(new);
    show(&mut new.conditions, entry.as_ref(), new.observed_generation, now);
}

fn of_operation(status: &ClusterOperationStatus) -> Option<Entry> {
    match status.status {
        Some(OperationResult::Succeeded) => None,
        Some(OperationResult::Failed) => {
            condition::find(&status.conditions, FAILED).map(|failed| Entry::from(STALLED, failed))
        }
        Some(OperationResult::Running) => {
            Some(Entry::reconciling("Running", status.reason.as_deref().unwrap_or("its Job runs")))
        }
        None => Some(Entry::reconciling("Waiting", status.reason.as_deref().unwrap_or("it has not started"))),
    }
}

fn show(conditions: &mut Vec<Condition>, entry: Option<&Entry>, generation: Option<i64>, now: Timestamp) {
    let shown = entry.map(|entry| entry.type_);
    conditions.retain(|condition| {
        let type_ = condition.type_.as_str();
        ![RECONCILING, STALLED].contains(&type_) || shown == Some(type_)
    });
    if let Some(Entry { type_, reason, message }) = entry {
        condition::set(conditions, type_, ConditionText { status: true, reason, message }, generation, now);
    }
}
