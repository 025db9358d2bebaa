//! What a run tells while it goes.

use kubeon_api::{ClusterName, HostAddress};
use kubeon_plan::StepId;
use kubeon_wire::StepFailure;
use serde::{Deserialize, Serialize};

/// Receives what happens. It is called between the steps' network work and must return quickly.
pub trait RunObserver: Send + Sync {
    /// Something happened.
    fn on_event(&self, happening: RunEvent);
}

impl<F: Fn(RunEvent) + Send + Sync> RunObserver for F {
    fn on_event(&self, happening: RunEvent) {
        self(happening);
    }
}

/// One thing that happened. Holds names, numbers and reasons, never the content of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "happening")]
pub enum RunEvent {
    /// The run began.
    PlanStarted {
        /// The cluster.
        cluster: ClusterName,
        /// Steps to do.
        steps: usize,
        /// Hosts that have steps.
        hosts: usize,
        /// The number of steps that were up to date before.
        #[serde(rename = "standing")]
        up_to_date: usize,
    },
    /// A host accepted the fence; its steps may start. Sent again when a broken session was reopened.
    HostOpened {
        /// The host.
        host: HostAddress,
    },
    /// Opening a host failed and is tried again.
    HostRetrying {
        /// The host.
        host: HostAddress,
        /// Why it failed.
        failure: StepFailure,
        /// The pause until the next try, in milliseconds.
        pause_milliseconds: u64,
    },
    /// A host is out of this run: it refused, or could not be reached. All its open steps fail.
    HostLost {
        /// The host.
        host: HostAddress,
        /// Why.
        failure: StepFailure,
    },
    /// A step is about to be sent for the first time.
    StepStarted {
        /// The host.
        host: HostAddress,
        /// The step.
        step: StepId,
    },
    /// Something countable moved on.
    Progress {
        /// The host.
        host: HostAddress,
        /// The step.
        step: StepId,
        /// So far, bytes.
        done: u64,
        /// In all, bytes.
        total: u64,
    },
    /// A word from the host on what is happening or was adapted.
    Note {
        /// The host.
        host: HostAddress,
        /// The step.
        step: StepId,
        /// One connection.
        text: String,
    },
    /// A step failed and is tried again.
    Retrying {
        /// The host.
        host: HostAddress,
        /// The step.
        step: StepId,
        /// Why it failed.
        failure: StepFailure,
        /// The number of the try that comes next; the first was 1.
        attempt: u8,
        /// The pause until then, in milliseconds.
        pause_milliseconds: u64,
    },
    /// A step is done.
    Done {
        /// The host.
        host: HostAddress,
        /// The step.
        step: StepId,
        /// Whether the host changed.
        changed: bool,
        /// How long it took on the host.
        milliseconds: u64,
    },
    /// A step failed for good.
    Failed {
        /// The host.
        host: HostAddress,
        /// The step.
        step: StepId,
        /// Why.
        failure: StepFailure,
    },
    /// A step will not be started, or was left unfinished when the run was told to stop.
    Skipped {
        /// The host.
        host: HostAddress,
        /// The step.
        step: StepId,
        /// The failed step that it needs; `None` when the run was cancelled.
        because: Option<StepId>,
    },
}
