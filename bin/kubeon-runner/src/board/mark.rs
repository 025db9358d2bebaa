//! How something stands: what becomes a condition of the operation.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::tail::clip;

/// Bytes of a condition's message.
const MESSAGE: usize = 16 * 1024;

/// How something stands, since when and why: what a condition needs.
#[derive(Debug, Clone)]
pub(super) struct Mark {
    pub(super) status: &'static str,
    reason: &'static str,
    message: String,
    pub(super) since: Timestamp,
}

impl Mark {
    pub(super) fn set(mark: &mut Option<Self>, status: &'static str, reason: &'static str, message: &str) {
        let since =
            mark.as_ref().filter(|old| old.status == status).map_or_else(Timestamp::now, |old| old.since);
        *mark = Some(Self { status, reason, message: clip(message, MESSAGE).to_owned(), since });
    }

    /// The condition, which generation of the operation it is about left open: the board does not know it.
    pub(super) fn condition(&self, kind: &str) -> Condition {
        Condition {
            type_: kind.to_owned(),
            status: self.status.to_owned(),
            reason: self.reason.to_owned(),
            message: self.message.clone(),
            last_transition_time: Time(self.since),
            observed_generation: None,
        }
    }
}
