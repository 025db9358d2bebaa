//! Whole commands over a world, as a door would run them.

use kubeon_apply::{HostPorts, RunEvent};
use kubeon_plan::{Intent, Plan, PlanError, Snapshot, StepOutcome};
use kubeon_reconcile::{Reconciled, Reconciler};
use kubeon_testkit::World;
use tokio_util::sync::CancellationToken;

/// One command to its end: the last turn, or why it did not get there.
pub async fn turn(
    world: &World,
    plan: impl Fn(&Snapshot) -> Result<Plan, PlanError>,
) -> Result<Reconciled, String> {
    let (ports, hosts, stop) = (world.ports(), world.hosts(), CancellationToken::new());
    let hands = HostPorts { act: &ports, secrets: &ports, blobs: &ports };
    let watch = |_: RunEvent| {};
    let wheel = Reconciler { hosts: &hosts, probe: &ports, hands, clock: &ports, watch: &watch, stop: &stop };
    let turn = wheel.until_settled(plan, 1).await.map_err(|error| explain(&error))?;
    match turn.outcome.steps.iter().find(|(_, came)| matches!(came, StepOutcome::Failed { .. })) {
        Some((step, StepOutcome::Failed { failure })) => Err(format!("{step}: {failure}")),
        _ if !turn.outcome.is_complete() => Err("steps were skipped, none failed".to_owned()),
        _ => Ok(turn),
    }
}

fn explain(error: &kubeon_reconcile::ReconcileError) -> String {
    match error {
        kubeon_reconcile::ReconcileError::Refused(refused) => format!("{refused}: {:?}", refused.refusals),
        other => other.to_string(),
    }
}

/// `kubeon create`.
#[allow(dead_code, reason = "not every test creates")]
pub async fn create(world: &World, intent: &Intent) -> Result<Reconciled, String> {
    turn(world, |snapshot| kubeon_plan::plan(intent, snapshot)).await
}

/// `kubeon destroy`.
#[allow(dead_code, reason = "not every test destroys")]
pub async fn destroy(world: &World, intent: &Intent) -> Result<Reconciled, String> {
    turn(world, |snapshot| kubeon_plan::destroy(intent, snapshot)).await
}
