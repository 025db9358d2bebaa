//! Whole commands on a simulated world, as the program runs them.

use kubeon_api::HostAddress;
use kubeon_apply::HostPorts;
use kubeon_apply::{RunEvent, RunObserver};
use kubeon_plan::{Intent, Plan, PlanError, Refusal, Snapshot, StepOutcome};
use kubeon_reconcile::{Planned, ReconcileError, ReconcileHooks, Reconciled, Reconciler};
use kubeon_testkit::{Ports, World};
use tokio_util::sync::CancellationToken;

/// The hooks of a command: they persist the generation of each plan, and the process may die there.
struct PersistingHooks<'a>(&'a Ports);

impl ReconcileHooks for PersistingHooks<'_> {
    type Error = ReconcileError;

    async fn before_apply(&mut self, planned: &Planned, _: u8) -> Result<(), ReconcileError> {
        self.0.persist_generation(planned.plan().generation).await;
        Ok(())
    }

    fn observer(&mut self, _: &Plan) -> Box<dyn RunObserver> {
        Box::new(|_: RunEvent| {})
    }
}

/// Runs one command to its end with the reconcile loop. Returns the last apply, or the reason why it is
/// incomplete. With one attempt and without injected faults, a failed step is a bug of the plan.
pub(crate) async fn command(
    world: &World,
    hosts: Vec<HostAddress>,
    plan: impl Fn(&Snapshot) -> Result<Plan, PlanError>,
    attempts: u8,
) -> Result<Reconciled, String> {
    let (ports, cancellation) = (world.ports(), CancellationToken::new());
    let host_ports = HostPorts { act: &ports, secrets: &ports, blobs: &ports, forwarding: None };
    let reconciler = Reconciler {
        hosts: &hosts,
        probe: &ports,
        ports: host_ports,
        clock: &ports,
        cancellation: &cancellation,
    };
    let planned = reconciler.observe_and_plan(&plan).await.map_err(|error| explain(&error))?;
    let mut hooks = PersistingHooks(&ports);
    let done = reconciler.until_settled(planned, plan, &mut hooks, attempts).await;
    let done = done.map_err(|error| explain(&error))?;
    match done.outcome.steps.iter().find(|(_, result)| matches!(result, StepOutcome::Failed { .. })) {
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

/// The intent as a command loads it: with the generation that an earlier command persisted.
fn with_persisted_generation(world: &World, intent: &Intent) -> Intent {
    Intent { generation: world.persisted_generation(), ..intent.clone() }
}

/// `kubeon create`.
#[allow(dead_code, reason = "not every test creates")]
pub(crate) async fn create(world: &World, intent: &Intent) -> Result<Reconciled, String> {
    let intent = with_persisted_generation(world, intent);
    command(world, intent.hosts().collect(), |snapshot| kubeon_plan::plan(&intent, snapshot), 1).await
}

/// The reasons why `kubeon create` is refused, as data.
#[allow(dead_code, reason = "not every test is refused")]
pub(crate) async fn refusals(world: &World, intent: &Intent) -> Vec<Refusal> {
    let (ports, hosts, cancellation) = (world.ports(), world.hosts(), CancellationToken::new());
    let host_ports = HostPorts { act: &ports, secrets: &ports, blobs: &ports, forwarding: None };
    let reconciler = Reconciler {
        hosts: &hosts,
        probe: &ports,
        ports: host_ports,
        clock: &ports,
        cancellation: &cancellation,
    };
    match reconciler.observe_and_plan(|snapshot| kubeon_plan::plan(intent, snapshot)).await {
        Err(ReconcileError::Refused(refused)) => refused.refusals().to_vec(),
        Err(other) => panic!("the plan is not refused: {other}"),
        Ok(_) => panic!("the plan is not refused"),
    }
}

/// `kubeon destroy`.
#[allow(dead_code, reason = "not every test destroys")]
pub(crate) async fn destroy(world: &World, intent: &Intent) -> Result<Reconciled, String> {
    let intent = with_persisted_generation(world, intent);
    command(world, intent.hosts().collect(), |snapshot| kubeon_plan::destroy(&intent, snapshot), 1).await
}

/// Kills a change after every effect, and goes back to what was before: nothing is harmed, and nothing is left to do.
#[allow(dead_code, reason = "not every test goes back")]
pub(crate) async fn goes_back_after_a_kill_anywhere(before: &World, change: &Intent, back: &Intent) {
    let effects = {
        let world = before.copy();
        create(&world, change).await.unwrap();
        world.effects() - before.effects()
    };
    assert!(effects > 9, "the change has {effects} effects: that is no test");
    for effect in 1..=effects {
        let world = before.copy();
        world.die_after(effect);
        tokio::select! {
            biased;
            () = world.died() => {}
            done = create(&world, change) => drop(done.unwrap()),
        }
        world.restart();
        create(&world, back).await.unwrap_or_else(|why| panic!("effect {effect}: {why}"));
        assert_eq!(world.harms(), Vec::<String>::new(), "effect {effect}");
        let settled = create(&world, back).await.unwrap();
        assert!(settled.plan.steps.is_empty(), "effect {effect}: {:?}", settled.plan.steps[0]);
    }
}

/// `kubeon create` as the program runs it, with all its attempts.
#[allow(dead_code, reason = "not every test has failures that go away")]
pub(crate) async fn create_with_retries(world: &World, intent: &Intent) -> Result<Reconciled, String> {
    let intent = with_persisted_generation(world, intent);
    command(
        world,
        intent.hosts().collect(),
        |snapshot| kubeon_plan::plan(&intent, snapshot),
        kubeon_reconcile::MAX_ATTEMPTS,
    )
    .await
}
