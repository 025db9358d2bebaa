//! Runs a plan on a simulated world and collects the events.
#![allow(dead_code, reason = "each test file uses some of the items")]

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use kubeon_apply::{HostPorts, RunEvent, run};
use kubeon_plan::{Outcome, Plan, StepOutcome};
use kubeon_testkit::{World, step_id};
use kubeon_wire::{Category, StepFailure};

/// The outcome and the events of a run.
pub(crate) struct Ran {
    pub outcome: Outcome,
    pub events: Vec<RunEvent>,
}

/// Runs the plan to its end.
pub(crate) async fn ran(world: &World, plan: &Plan) -> Ran {
    ran_until(world, plan, &CancellationToken::new()).await
}

/// Runs the plan to its end or until it is cancelled.
pub(crate) async fn ran_until(world: &World, plan: &Plan, cancel: &CancellationToken) -> Ran {
    let ports = world.ports();
    let events = Mutex::new(Vec::new());
    let observer = |event: RunEvent| events.lock().push(event);
    let outcome = run(
        plan,
        &HostPorts { act: &ports, secrets: &ports, blobs: &ports, forwarding: None },
        &observer,
        cancel,
    )
    .await;
    Ran { outcome, events: events.into_inner() }
}

impl Ran {
    /// `done`, `failed`, `skipped because of ID`, `skipped, cancelled`, or `not in the outcome`.
    pub(crate) fn of(&self, step: &str) -> String {
        match self.outcome.steps.get(&step_id(step)) {
            Some(StepOutcome::Done { .. }) => "done".to_owned(),
            Some(StepOutcome::Failed { .. }) => "failed".to_owned(),
            Some(StepOutcome::Skipped { because: None }) => "skipped, cancelled".to_owned(),
            Some(StepOutcome::Skipped { because: Some(id) }) => format!("skipped because of {}", id.what()),
            None => "not in the outcome".to_owned(),
        }
    }

    /// The failure of a step.
    pub(crate) fn failure(&self, step: &str) -> &StepFailure {
        match self.outcome.steps.get(&step_id(step)) {
            Some(StepOutcome::Failed { failure }) => failure,
            other => panic!("{step} did not fail: {other:?}"),
        }
    }

    /// The number of events of the kind.
    pub(crate) fn count(&self, kind: impl Fn(&RunEvent) -> bool) -> usize {
        self.events.iter().filter(|event| kind(event)).count()
    }
}

/// A failure of the category.
pub(crate) fn failure(category: Category) -> StepFailure {
    StepFailure { category, cause: format!("{category:?} on purpose"), log: Vec::new() }
}
