//! Kubernetes conditions: one entry per type, whose transition time changes with its status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kubeon_api::{ConditionStatus, clip};

/// The objects that an operation refers to exist.
pub const INPUTS_FOUND: &str = "InputsFound";
/// An operation is being ended early.
pub const STOPPING: &str = "Stopping";
/// A running operation is paused: its Job is suspended, and continues later.
pub const PAUSED: &str = "Paused";
/// An operation completed.
pub const COMPLETE: &str = "Complete";
/// An operation failed.
pub const FAILED: &str = "Failed";
/// The runner's precheck: written by the runner.
pub const PRECHECKED: &str = "Prechecked";
/// The SSH keys of new hosts were pinned. The runner writes it, and the business cluster shows it.
pub const HOST_KEYS_PINNED: &str = "HostKeysPinned";
/// Steps of an operation failed; the message has a line for each. The runner writes it, and the business
/// cluster shows it.
pub const STEP_FAILED: &str = "StepFailed";
/// Whether the runner executes an operation. On a business cluster: whether an operation runs.
pub const PROGRESSING: &str = "Progressing";
/// The reason of `Progressing` when all steps were up to date.
pub const NOTHING_TO_DO: &str = "NothingToDo";
/// The reason of `Progressing` on a business cluster whose last operation succeeded.
pub const DONE: &str = "Done";
/// A business cluster is usable: it was created, and its API server answers. Unknown while the API server refuses the observer.
pub const READY: &str = "Ready";
/// The last operation of a business cluster failed, its spec cannot be applied, or nodes or members of etcd
/// do not work.
pub const DEGRADED: &str = "Degraded";
/// The reason of `Degraded` when some nodes of a business cluster are not ready.
pub const NODES_NOT_READY: &str = "NodesNotReady";
/// The reason of `Degraded` when some members of the etcd of a business cluster do not serve.
pub const MEMBERS_DOWN: &str = "EtcdMembersDown";
/// The reason of `Degraded` when nodes run another version than the cluster.
pub const OTHER_VERSIONS: &str = "OtherVersions";
/// The reasons of `Degraded` that come from the observation of a business cluster. What they report may end without a person.
pub const OBSERVED_DEFECTS: [&str; 3] = [NODES_NOT_READY, MEMBERS_DOWN, OTHER_VERSIONS];
/// Whether the masters of a business cluster renew their certificates in time.
pub const CERTIFICATES_RENEWED: &str = "CertificatesRenewed";
/// A certificate of the masters of a business cluster ends within 14 days.
pub const CERTIFICATES_EXPIRING: &str = "CertificatesExpiring";
/// Files, links, units or kernel parameters of masters of a business cluster differ from what operations wrote.
pub const DRIFTED: &str = "Drifted";
/// A business cluster is being deleted; the reason says what the deletion waits for.
pub const DELETING: &str = "Deleting";
/// The reason of `Deleting` when nothing is left to take down. It is written before the objects are deleted that prove it.
pub const RELEASED: &str = "Released";
/// Condition type: the last snapshot of etcd was written.
pub const SNAPSHOT_TAKEN: &str = "SnapshotTaken";

/// The values of a condition.
#[derive(Debug, Clone, Copy)]
pub struct ConditionText<'a> {
    /// True or false.
    pub status: bool,
    /// One word in CamelCase.
    pub reason: &'a str,
    /// The message for the user.
    pub message: &'a str,
}

/// The entry of this type.
#[must_use]
pub fn find<'c>(conditions: &'c [Condition], type_: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// The entry of this type, if it is true.
#[must_use]
pub fn find_true<'c>(conditions: &'c [Condition], type_: &str) -> Option<&'c Condition> {
    find(conditions, type_).filter(|condition| condition.status == ConditionStatus::True)
}

/// Sets an entry. Its transition time is kept while its status does not change.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    text: ConditionText<'_>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let ConditionText { status, reason, message } = text;
    set_status(conditions, type_, (status.into(), reason, message), generation, now);
}

/// As [`set`], when it is not known whether the condition is met. The text is a reason and a message.
pub fn set_unknown(
    conditions: &mut Vec<Condition>,
    type_: &str,
    (reason, message): (&str, &str),
    generation: Option<i64>,
    now: Timestamp,
) {
    set_status(conditions, type_, (ConditionStatus::Unknown, reason, message), generation, now);
}

fn set_status(
    conditions: &mut Vec<Condition>,
    type_: &str,
    (status, reason, message): (ConditionStatus, &str, &str),
    generation: Option<i64>,
    now: Timestamp,
) {
    let since = match find(conditions, type_) {
        Some(before) if before.status == status => before.last_transition_time.clone(),
        _ => Time(whole_seconds(now)),
    };
    let entry = Condition {
        type_: type_.to_owned(),
        status: status.to_string(),
        reason: reason.to_owned(),
        message: clipped(message),
        last_transition_time: since,
        observed_generation: generation,
    };
    put(conditions, entry);
}

/// Replaces the entry of the same type; keeps the transition time of the new entry.
pub fn put(conditions: &mut Vec<Condition>, entry: Condition) {
    match conditions.iter_mut().find(|condition| condition.type_ == entry.type_) {
        Some(place) => *place = entry,
        None => conditions.push(entry),
    }
}

/// The time in whole seconds, as Kubernetes stores it, so that a written time equals the time that is read
/// back.
#[must_use]
pub fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// The duration in at most two units: `33s`, `5m12s`, `2h5m`.
#[must_use]
pub fn span(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.as_second().saturating_sub(from.as_second()).max(0);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{}s", seconds % 60),
        _ => format!("{hours}h{minutes}m"),
    }
}

/// The longest message of a condition, in bytes.
const LONGEST: usize = 2048;

/// The message, cut to the longest length of a condition.
#[must_use]
pub fn clipped(text: &str) -> String {
    clipped_before(text, "")
}

/// As [`clipped`], with an end that is never cut.
#[must_use]
pub fn clipped_before(text: &str, end: &str) -> String {
    let most = LONGEST.saturating_sub(end.len());
    if text.len() <= most {
        return format!("{text}{end}");
    }
    format!("{} …{end}", clip(text, most.saturating_sub(4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_at_most_two_units() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (seconds, text) in [(0, "0s"), (33, "33s"), (312, "5m12s"), (7500, "2h5m"), (-5, "0s")] {
            assert_eq!(span(at(100), at(100 + seconds)), text);
        }
    }

    #[test]
    fn the_end_of_a_message_is_never_cut() {
        assert_eq!(clipped_before("short", " end"), "short end");
        let long = clipped_before(&"ä".repeat(3000), " end");
        assert!(long.ends_with("… end") && long.len() <= LONGEST, "{}", long.len());
    }
}
