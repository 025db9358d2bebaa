//! Whole commands over a world, as the program runs them.

use kubeon_apply::HostPorts;
use kubeon_plan::{Intent, Plan, PlanError, Refusal, Snapshot, StepOutcome};
use kubeon_reconcile::{ReconcileError, Reconciled, Reconciler, Silent};
use kubeon_testkit::World;
use tokio_util::sync::CancellationToken;

/// One command to its end, through the loop that the program uses: the last apply, or why it is incomplete.
/// With one attempt, a step that fails without a fault of the world is a fault of the plan.
pub(crate) async fn command(
    world: &World,
    plan: impl Fn(&Snapshot) -> Result<Plan, PlanError>,
    attempts: u8,
) -> Result<Reconciled, String> {
    let (ports, hosts, cancel) = (world.ports(), world.hosts(), CancellationToken::new());
    let host_ports = HostPorts { act: &ports, secrets: &ports, blobs: &ports };
    let reconciler =
        Reconciler { hosts: &hosts, probe: &ports, ports: host_ports, clock: &ports, cancel: &cancel };
    let planned = reconciler.observe_and_plan(&plan).await.map_err(|error| explain(&error))?;
    let Ok(done) = reconciler.until_settled(planned, plan, &mut Silent, attempts).await;
    match done.outcome.steps.iter().find(|(_, came)| matches!(came, StepOutcome::Failed { .. })) {
        Some((step, StepOutcome::Failed { failure })) => Err(format!("{step}: {failure}")),
        _ if !done.outcome.is_complete() => Err("steps were skipped, none failed".to_owned()),
        _ => Ok(done),
    }
}

fn explain(error: &ReconcileError) -> String {
    match error {
        ReconcileError::Refused(refused) => format!("{refused}: {:?}", refused.refusals()),
        other => other.to_string(),
    }
}

/// `kubeon create`.
#[allow(dead_code, reason = "not every test creates")]
pub(crate) async fn create(world: &World, intent: &Intent) -> Result<Reconciled, String> {
    command(world, |snapshot| kubeon_plan::plan(intent, snapshot), 1).await
}

/// The reasons why `kubeon create` is refused, as data.
#[allow(dead_code, reason = "not every test is refused")]
pub(crate) async fn refusals(world: &World, intent: &Intent) -> Vec<Refusal> {
    let (ports, hosts, cancel) = (world.ports(), world.hosts(), CancellationToken::new());
    let host_ports = HostPorts { act: &ports, secrets: &ports, blobs: &ports };
    let reconciler =
        Reconciler { hosts: &hosts, probe: &ports, ports: host_ports, clock: &ports, cancel: &cancel };
    match reconciler.observe_and_plan(|snapshot| kubeon_plan::plan(intent, snapshot)).await {
        Err(ReconcileError::Refused(refused)) => refused.refusals().to_vec(),
        Err(other) => panic!("the plan is not refused: {other}"),
        Ok(_) => panic!("the plan is not refused"),
    }
}

/// `kubeon destroy`.
#[allow(dead_code, reason = "not every test destroys")]
pub(crate) async fn destroy(world: &World, intent: &Intent) -> Result<Reconciled, String> {
    command(world, |snapshot| kubeon_plan::destroy(intent, snapshot), 1).await
}

/// `kubeon create` as the program runs it, with all its attempts.
#[allow(dead_code, reason = "not every test has failures that go away")]
pub(crate) async fn create_with_retries(world: &World, intent: &Intent) -> Result<Reconciled, String> {
    command(world, |snapshot| kubeon_plan::plan(intent, snapshot), kubeon_reconcile::MAX_ATTEMPTS).await
}
