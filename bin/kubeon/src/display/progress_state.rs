//! What is known of each host and each step of a run.

use std::time::Duration;

use kubeon_plan::StageName;

/// Where a step stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StepStatus {
    /// Not started.
    Waiting,
    /// Under way since then.
    Running(Duration),
    /// Done.
    Done,
    /// Failed for good; says why.
    Failed(String),
    /// Will not be started.
    Skipped,
}

/// A step on the view.
#[derive(Debug, Clone)]
pub(crate) struct StepProgress {
    /// Its stage.
    pub stage: StageName,
    /// What it does.
    pub title: String,
    /// Whether it only waits until its title is true.
    pub check: bool,
    /// Bytes that it sends; 0 for most.
    pub size: u64,
    /// Bytes sent so far.
    pub sent: u64,
    /// Where it stands.
    pub status: StepStatus,
    /// What it said last.
    pub note: String,
    /// Steps that it waits for, by place.
    pub needs: Vec<usize>,
    /// Its host, by place.
    pub host: usize,
}

/// A host on the view.
#[derive(Debug, Clone)]
pub(crate) struct HostProgress {
    /// Its name as a node.
    pub name: String,
    /// Its steps, by place, in order.
    pub steps: Vec<usize>,
    /// Whether it was opened.
    pub open: bool,
    /// What is wrong with it; empty when nothing is.
    pub trouble: String,
    /// When its first part began to be sent.
    pub sending_since: Option<Duration>,
}
