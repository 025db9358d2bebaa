//! Conditions in the manner of Kubernetes: one entry per type, whose time changes with its status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// The objects that an operation refers to are there.
pub const INPUTS_FOUND: &str = "InputsFound";
/// An operation is being ended early.
pub const STOPPING: &str = "Stopping";
/// An operation did what was asked.
pub const COMPLETE: &str = "Complete";
/// An operation did not.
pub const FAILED: &str = "Failed";
/// The runner's precheck: written by the runner.
pub const PRECHECKED: &str = "Prechecked";
/// Hosts were met for the first time, and their SSH keys pinned: written by the runner, shown by the business cluster.
pub const HOST_KEYS_PINNED: &str = "HostKeysPinned";
/// Steps of an operation failed, a line for each: written by the runner, shown by the business cluster.
pub const STEP_FAILED: &str = "StepFailed";
/// Whether the runner works on an operation; of a business cluster: whether an operation does.
pub const PROGRESSING: &str = "Progressing";
/// The runner's reason there when every step stood already.
pub const NOTHING_TO_DO: &str = "NothingToDo";
/// A business cluster is as declared and usable.
pub const READY: &str = "Ready";
/// The last operation of a business cluster failed, or its declaration cannot be followed.
pub const DEGRADED: &str = "Degraded";
/// A business cluster is being deleted; the reason names what that waits for.
pub const DELETING: &str = "Deleting";

/// What a condition says.
#[derive(Debug, Clone, Copy)]
pub struct ConditionText<'a> {
    /// True or false.
    pub status: bool,
    /// One word in CamelCase.
    pub reason: &'a str,
    /// For a person.
    pub message: &'a str,
}

/// The entry of this type.
#[must_use]
pub fn find<'c>(conditions: &'c [Condition], type_: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the entry of this type is true.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

/// Sets an entry. Its time stays while its status stays.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    says: ConditionText<'_>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let status = if says.status { "True" } else { "False" };
    let since = match find(conditions, type_) {
        Some(before) if before.status == status => before.last_transition_time.clone(),
        _ => Time(whole_seconds(now)),
    };
    let entry = Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: says.reason.to_owned(),
        message: clipped(says.message),
        last_transition_time: since,
        observed_generation: generation,
    };
    put(conditions, entry);
}

/// Puts an entry in the place of the one of its type, with its own time.
pub fn put(conditions: &mut Vec<Condition>, entry: Condition) {
    match conditions.iter_mut().find(|condition| condition.type_ == entry.type_) {
        Some(place) => *place = entry,
        None => conditions.push(entry),
    }
}

/// The moment as Kubernetes writes it, so that what was written equals what is read.
#[must_use]
pub fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// How long something took, in two words at most: `33s`, `5m12s`, `2h5m`.
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

/// The longest message that a status takes.
const LONGEST: usize = 2048;

/// A message that fits into a status.
#[must_use]
pub fn clipped(text: &str) -> String {
    clipped_before(text, "")
}

/// As [`clipped`], with an end that is kept whatever is cut before it.
#[must_use]
pub fn clipped_before(text: &str, end: &str) -> String {
    let most = LONGEST.saturating_sub(end.len());
    if text.len() <= most {
        return format!("{text}{end}");
    }
    let cut = (0..=most.saturating_sub(4)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{} …{end}", text.get(..cut).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_told_in_two_words() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (seconds, text) in [(0, "0s"), (33, "33s"), (312, "5m12s"), (7500, "2h5m"), (-5, "0s")] {
            assert_eq!(span(at(100), at(100 + seconds)), text);
        }
    }

    #[test]
    fn what_is_kept_at_the_end_is_never_cut() {
        assert_eq!(clipped_before("short", " end"), "short end");
        let long = clipped_before(&"ä".repeat(3000), " end");
        assert!(long.ends_with("… end") && long.len() <= LONGEST, "{}", long.len());
    }
}
