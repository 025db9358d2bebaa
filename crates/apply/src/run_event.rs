//! The events of a run.

use kubeon_api::{ClusterName, HostAddress};
use kubeon_plan::StepId;
use kubeon_wire::StepFailure;
use serde::{Deserialize, Serialize};

/// Receives the events of a run. It is called on the task that runs the steps and must return quickly.
pub trait RunObserver: Send + Sync {
    /// Called for every event, in order.
    fn on_event(&self, event: RunEvent);
}

impl<F: Fn(RunEvent) + Send + Sync> RunObserver for F {
    fn on_event(&self, event: RunEvent) {
        self(event);
    }
}

/// One event. It holds names, numbers and reasons, never the content of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "happening")]
pub enum RunEvent {
    /// The run began.
    PlanStarted {
        /// The cluster.
        cluster: ClusterName,
        /// The number of steps to execute.
        steps: usize,
        /// The number of hosts that have steps.
        hosts: usize,
        /// The number of steps that were up to date before.
        #[serde(rename = "standing")]
        up_to_date: usize,
    },
    /// A host accepted the fence: its steps may start. Also sent when a broken session was opened again.
    HostOpened {
        /// The host.
        host: HostAddress,
    },
    /// Opening a session failed and will be retried.
    HostRetrying {
        /// The host.
        host: HostAddress,
        /// Why it failed.
        failure: StepFailure,
        /// The pause before the next attempt, in milliseconds.
        pause_milliseconds: u64,
    },
    /// A host is lost for this run: it refused the session or could not be reached. All its unfinished steps
    /// fail.
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
    /// Bytes were sent or unpacked.
    Progress {
        /// The host.
        host: HostAddress,
        /// The step.
        step: StepId,
        /// Bytes so far.
        done: u64,
        /// Bytes in total.
        total: u64,
    },
    /// All parts of the plan arrived on their hosts and were checked. Some may still be unpacked.
    PartsReceived {
        /// How many, one for each part of each host.
        parts: usize,
        /// Their bytes as they were sent.
        bytes: u64,
        /// The time since the run began, in milliseconds.
        milliseconds: u64,
    },
    /// A message of the host about its progress or about an adaptation.
    Note {
        /// The host.
        host: HostAddress,
        /// The step.
        step: StepId,
        /// One line of text.
        text: String,
    },
    /// A step failed and will be retried.
    Retrying {
        /// The host.
        host: HostAddress,
        /// The step.
        step: StepId,
        /// Why it failed.
        failure: StepFailure,
        /// The number of the next attempt; the first is 1.
        attempt: u8,
        /// The pause before it, in milliseconds.
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
    /// A step failed and will not be retried.
    Failed {
        /// The host.
        host: HostAddress,
        /// The step.
        step: StepId,
        /// Why.
        failure: StepFailure,
    },
    /// A step will not start, or was not finished when the run was cancelled.
    Skipped {
        /// The host.
        host: HostAddress,
        /// The step.
        step: StepId,
        /// The failed step that it needs; `None` when the run was cancelled.
        because: Option<StepId>,
    },
}
