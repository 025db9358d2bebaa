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

/// The reason of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A missing object. The operation fails when the wait takes too long.
    Missing(String),
    /// A user, or the end of something that still runs.
    Until(String),
    /// The end of another operation.
    Operation(String),
    /// The end of operations of other clusters.
    Place {
        /// The most operations that run at the same time.
        limit: usize,
        /// The number of operations that start before it.
        before: usize,
        /// The region, if the limit is that of the clusters of a region.
        region: Option<String>,
    },
}

/// The age of an operation from which on others do not wait for its missing objects. Objects that are applied together with it
/// arrive before.
const OVERTAKEN_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// How often the number of operations that start before a waiting one is updated.
const PLACE_SHOWN_EVERY: SignedDuration = SignedDuration::from_secs(60);

/// Why an operation can never run, as far as its own spec shows. Referenced objects are checked when the
/// operation is the first of its queue.
pub(crate) fn refusal(s: &View<'_>, operation: &ClusterOperation) -> Option<(&'static str, String)> {
    if operation.spec.cancelled {
        return Some((CANCELLED, "cancelled".to_owned()));
    }
    if operation.status.as_ref().is_some_and(|status| changed(operation, status)) {
        let text = "its spec was changed while it waited; create a new operation";
        return Some(("SpecChanged", text.to_owned()));
    }
    let image = &operation.spec.image;
    let not_allowed = || s.settings.image_refusal(image).map(|text| ("ImageNotAllowed", text));
    image::refusal(image).map(|text| ("InvalidImage", text)).or_else(not_allowed)
}

/// Whether the spec differs from the spec that was observed first.
pub(crate) fn changed(operation: &ClusterOperation, status: &ClusterOperationStatus) -> bool {
    let spec = &operation.spec;
    status.digest.as_ref().is_some_and(|first| *first != spec.digest())
        || status.spec_digest.as_ref().is_some_and(|first| !spec.has_whole_digest(first))
}

/// Reports once what an operation waits for, and ends it when an object stays missing for too long.
pub(crate) fn report_wait(s: &View<'_>, operation: &ClusterOperation, wait: &Wait) -> OperationChanges {
    let mut new = status(operation);
    let (reason, waits_for) = match wait {
        Wait::Missing(text) | Wait::Until(text) => (text.clone(), None),
        Wait::Operation(other) => (format!("waits for {other}, which runs first"), Some(other.clone())),
        Wait::Place { limit, before, region } => {
            let place = region.as_ref().map(|region| format!(" of region {region}")).unwrap_or_default();
            let text = format!(
                "waits: {limit} operations{place} run, which is the limit, and {before} start before this one"
            );
            (text, None)
        }
    };
    new.reason = Some(condition::clipped(&reason));
    new.waits_for = waits_for;
    new.digest.get_or_insert_with(|| operation.spec.digest());
    new.spec_digest.get_or_insert_with(|| operation.spec.whole_digest());
    new.observed_generation = operation.metadata.generation;
    let mut progress = OperationChanges::default();
    if matches!(wait, Wait::Missing(_)) {
        let text = ConditionText { status: false, reason: "Missing", message: &reason };
        condition::set(&mut new.conditions, INPUTS_FOUND, text, operation.metadata.generation, s.now);
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
        let created = operation.metadata.creation_timestamp.as_ref().map_or(s.now, |created| created.0);
        let overtaken = created.saturating_add(OVERTAKEN_AFTER).unwrap_or(created);
        progress.is_overtaken = overtaken <= s.now;
        progress.changes.wake_at(Some(overtaken).filter(|overtaken| *overtaken > s.now));
    }
    if matches!(wait, Wait::Place { .. }) {
        progress.changes.wake_at(s.now.checked_add(PLACE_SHOWN_EVERY).ok());
    }
    if let Some(write) = status_write(operation, &mut new, s.now, format!("the operation waits: {reason}")) {
        progress.changes.stages.push(vec![write]);
        let wait_notice = notice(operation, matches!(wait, Wait::Missing(_)), "Waiting", reason);
        progress.changes.notices.push(wait_notice);
    }
    progress.shown = Some((0, shown(operation, &new)));
    progress
}

/// Operations that are not the first of their queue: they only report the wait, or that they can never run.
pub(crate) fn queued(
    s: &View<'_>,
    operation: &ClusterOperation,
    first: &ClusterOperation,
) -> OperationChanges {
    debug_assert!(!order::ended(operation));
    match refusal(s, operation) {
        Some((word, text)) => finish(s, operation, End::failed(word, text)),
        None => report_wait(s, operation, &Wait::Operation(super::name(first).to_owned())),
    }
}
