//! Failed attempts to connect.

use kubeon_wire::{Category, StepFailure};

use crate::failure::failure;

/// A failed attempt to connect.
pub(crate) struct DialError {
    pub(crate) failure: StepFailure,
    /// Whether another attempt may succeed.
    pub(crate) retryable: bool,
    /// Whether a login was attempted.
    pub(crate) login_attempted: bool,
}

impl DialError {
    pub(crate) fn network(
        host: impl std::fmt::Display,
        port: u16,
        why: impl std::fmt::Display,
        retryable: bool,
    ) -> Self {
        let cause = format!("{host} cannot be reached at port {port}: {why}");
        Self { failure: failure(Category::Unreachable, cause), retryable, login_attempted: false }
    }

    /// The failure of another attempt, which counts for this one too.
    pub(crate) fn repeated(failure: StepFailure) -> Self {
        Self { failure, retryable: false, login_attempted: false }
    }
}
