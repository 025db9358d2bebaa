//! A run over a world, with everything that it tells.
#![allow(dead_code, reason = "each test file uses a part of it")]

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use kubeon_apply::{HostPorts, RunEvent, run};
use kubeon_plan::{Outcome, Plan, StepOutcome};
use kubeon_testkit::{World, step_id};
use kubeon_wire::{Category, StepFailure};

/// What came of a run.
pub(crate) struct Ran {
    pub outcome: Outcome,
    pub told: Vec<RunEvent>,
}

/// Runs the plan to its end.
pub(crate) async fn ran(world: &World, plan: &Plan) -> Ran {
    ran_until(world, plan, &CancellationToken::new()).await
}

/// Runs the plan until its end or until it is stopped.
pub(crate) async fn ran_until(world: &World, plan: &Plan, stop: &CancellationToken) -> Ran {
    let ports = world.ports();
    let told = Mutex::new(Vec::new());
    let watch = |happening: RunEvent| told.lock().push(happening);
    let outcome = run(plan, &HostPorts { act: &ports, secrets: &ports, blobs: &ports }, &watch, stop).await;
    Ran { outcome, told: told.into_inner() }
}

impl Ran {
    /// `done`, `failed`, `skipped because of ID`, `skipped, stopped`, or `never mentioned`.
    pub(crate) fn of(&self, step: &str) -> String {
        match self.outcome.steps.get(&step_id(step)) {
            Some(StepOutcome::Done { .. }) => "done".to_owned(),
            Some(StepOutcome::Failed { .. }) => "failed".to_owned(),
            Some(StepOutcome::Skipped { because: None }) => "skipped, stopped".to_owned(),
            Some(StepOutcome::Skipped { because: Some(id) }) => format!("skipped because of {}", id.what()),
            None => "never mentioned".to_owned(),
        }
    }

    /// The failure of a step.
    pub(crate) fn failure(&self, step: &str) -> &StepFailure {
        match self.outcome.steps.get(&step_id(step)) {
            Some(StepOutcome::Failed { failure }) => failure,
            other => panic!("{step} did not fail: {other:?}"),
        }
    }

    /// How many happenings are of the kind.
    pub(crate) fn count(&self, kind: impl Fn(&RunEvent) -> bool) -> usize {
        self.told.iter().filter(|happening| kind(happening)).count()
    }
}

/// A failure of the category.
pub(crate) fn failure(category: Category) -> StepFailure {
    StepFailure { category, cause: format!("{category:?} on purpose"), log: Vec::new() }
}
