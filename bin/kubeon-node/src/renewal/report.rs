//! The result of a renewal.

use kubeon_wire::StepFailure;

/// The result of a renewal.
#[derive(Debug, Default)]
pub struct RenewalReport {
    /// What was done or postponed, as sentences.
    pub notes: Vec<String>,
    /// The leaves that could not be renewed. They are unchanged; the next run tries them again.
    pub failures: Vec<StepFailure>,
}

impl RenewalReport {
    pub(super) fn note(text: impl Into<String>) -> Self {
        Self { notes: vec![text.into()], failures: Vec::new() }
    }
}
