//! An operation that does not start yet, or never will.

use k8s_openapi::jiff::SignedDuration;
use kubeon_api::ClusterOperation;
use kubeon_api::kubeonkube::ClusterOperationStatus;

use super::finish::{CANCELLED, End, finish};
use super::{OperationChanges, notice, shown, status, status_write};
use crate::condition::{self, ConditionText, INPUTS_FOUND};
use crate::settings::INPUTS_TIMEOUT_SECONDS;
use crate::view::View;
use crate::{image, order};

/// What an operation waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wait {
    /// An object; it fails when that takes too long.
    Missing(String),
    /// A person, or the end of something that still works.
    Until(String),
    /// The end of another operation.
    Operation(String),
}

/// Why an operation can never run, from its own words alone. What refers to other objects is looked at when its turn
/// comes.
pub(crate) fn refusal(operation: &ClusterOperation) -> Option<(&'static str, String)> {
    if operation.spec.cancelled {
        return Some((CANCELLED, "cancelled".to_owned()));
    }
    if operation.status.as_ref().is_some_and(|status| changed(operation, status)) {
        let text =
            "its spec was changed while it waited; what was asked for first is lost, make a new operation";
        return Some(("SpecChanged", text.to_owned()));
    }
    image::refusal(&operation.spec.image).map(|text| ("InvalidImage", text))
}

/// Whether the spec is another one than the one that was seen first.
pub(crate) fn changed(operation: &ClusterOperation, status: &ClusterOperationStatus) -> bool {
    let differs = |seen: &Option<String>, now: String| seen.as_ref().is_some_and(|seen| *seen != now);
    differs(&status.digest, operation.spec.digest())
        || differs(&status.spec_digest, operation.spec.whole_digest())
}

/// Says what an operation waits for, once, and ends it when an object did not come in time.
pub(crate) fn waits(s: &View<'_>, operation: &ClusterOperation, wait: &Wait) -> OperationChanges {
    let mut new = status(operation);
    let (reason, waits_for) = match wait {
        Wait::Missing(text) | Wait::Until(text) => (text.clone(), None),
        Wait::Operation(other) => (format!("waits for {other}, which runs first"), Some(other.clone())),
    };
    new.reason = Some(condition::clipped(&reason));
    new.waits_for = waits_for;
    new.digest.get_or_insert_with(|| operation.spec.digest());
    new.spec_digest.get_or_insert_with(|| operation.spec.whole_digest());
    new.observed_generation = operation.metadata.generation;
    let mut progress = OperationChanges::default();
    if matches!(wait, Wait::Missing(_)) {
        let says = ConditionText { status: false, reason: "Missing", message: &reason };
        condition::set(&mut new.conditions, INPUTS_FOUND, says, operation.metadata.generation, s.now);
        let seconds = operation.spec.active_deadline_seconds.filter(|seconds| *seconds > 0);
        let seconds = seconds.unwrap_or(INPUTS_TIMEOUT_SECONDS);
        let since = condition::find(&new.conditions, INPUTS_FOUND)
            .map_or(s.now, |found| found.last_transition_time.0);
        let due = since.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(since);
        if due <= s.now {
            let text = format!("{reason} (waited {seconds} s)");
            return finish(s, operation, End::failed("WaitedTooLong", text));
        }
        progress.changes.wake_at(Some(due));
    }
    if let Some(write) = status_write(operation, &new, format!("it waits: {reason}")) {
        progress.changes.stages.push(vec![write]);
        let about = notice(operation, matches!(wait, Wait::Missing(_)), "Waiting", reason);
        progress.changes.notices.push(about);
    }
    progress.shown = Some((0, shown(operation, &new)));
    progress
}

/// What the operations behind the first one do: nothing but say whom they wait for, or that they can never run.
pub(crate) fn behind(
    s: &View<'_>,
    operation: &ClusterOperation,
    first: &ClusterOperation,
) -> OperationChanges {
    debug_assert!(!order::ended(operation));
    match refusal(operation) {
        Some((word, text)) => finish(s, operation, End::failed(word, text)),
        None => waits(s, operation, &Wait::Operation(super::name(first).to_owned())),
    }
}
