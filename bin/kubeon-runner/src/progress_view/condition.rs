//! A condition of the operation.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kubeon_api::{ConditionStatus, clip};

/// The longest message of a condition in bytes. There are four conditions.
const MESSAGE: usize = 4 * 1024;

/// Status, reason and time of a condition.
#[derive(Debug, Clone)]
pub(super) struct ConditionState {
    pub(super) status: ConditionStatus,
    reason: &'static str,
    message: String,
    pub(super) since: Timestamp,
}

impl ConditionState {
    pub(super) fn set(
        state: &mut Option<Self>,
        status: ConditionStatus,
        reason: &'static str,
        message: &str,
    ) {
        let since =
            state.as_ref().filter(|old| old.status == status).map_or_else(Timestamp::now, |old| old.since);
        *state = Some(Self { status, reason, message: clip(message, MESSAGE).to_owned(), since });
    }

    /// The condition without `observedGeneration`, which the status writer adds.
    pub(super) fn condition(&self, kind: &str) -> Condition {
        Condition {
            type_: kind.to_owned(),
            status: self.status.to_string(),
            reason: self.reason.to_owned(),
            message: self.message.clone(),
            last_transition_time: Time(self.since),
            observed_generation: None,
        }
    }
}
