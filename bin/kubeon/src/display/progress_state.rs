//! The state of each host and each step of a run.

use std::time::Duration;

use kubeon_plan::StageName;

/// The status of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StepStatus {
    /// Not started.
    Waiting,
    /// Running since this time.
    Running(Duration),
    /// Done.
    Done,
    /// Failed permanently, with the reason.
    Failed(String),
    /// Skipped.
    Skipped,
}

/// The progress of a step.
#[derive(Debug, Clone)]
pub(crate) struct StepProgress {
    /// The stage.
    pub stage: StageName,
    /// The title.
    pub title: String,
    /// Whether the step only waits for a condition.
    pub check: bool,
    /// Bytes to send; 0 if the step sends no part.
    pub size: u64,
    /// Bytes sent so far.
    pub sent: u64,
    /// The status.
    pub status: StepStatus,
    /// The last note.
    pub note: String,
    /// Indexes of the steps that it needs.
    pub needs: Vec<usize>,
    /// Index of the host.
    pub host: usize,
}

/// The progress of a host.
#[derive(Debug, Clone)]
pub(crate) struct HostProgress {
    /// The node name.
    pub name: String,
    /// Indexes of its steps, in order.
    pub steps: Vec<usize>,
    /// Whether the host is connected.
    pub open: bool,
    /// The current connection problem; empty if there is none.
    pub trouble: String,
    /// Start of sending the first part.
    pub sending_since: Option<Duration>,
}
