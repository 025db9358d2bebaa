//! One turn and several, over a world in memory and a toy planner.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on must stop"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use tokio_util::sync::CancellationToken;

use async_trait::async_trait;
use kubeon_api::HostAddress;
use kubeon_apply::{HostPorts, RunEvent};
use kubeon_plan::{Plan, PlanError, Refusal, Snapshot, StepOutcome};
use kubeon_ports::ProbeHost;
use kubeon_reconcile::{ReconcileError, Reconciled, Reconciler};
use kubeon_testkit::{Fault, Ports, World, address, host, needed, plan_of, step};
use kubeon_wire::{Category, Facts, Op, StepFailure};

const H1: &str = "10.0.0.1";
const H2: &str = "10.0.0.2";

/// Counts the looks.
struct Counted(Ports, AtomicUsize);

#[async_trait]
impl ProbeHost for Counted {
    async fn facts(&self, host: HostAddress) -> Result<Facts, StepFailure> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.facts(host).await
    }
}

fn wish() -> Plan {
    plan_of([step("a@h1", H1).writes("/a", "a"), step("b@h2", H2).writes("/b", "b")])
}

fn toy(snapshot: &Snapshot) -> Result<Plan, PlanError> {
    Ok(needed(wish(), snapshot))
}

/// The last turn and the number of looks at each host.
async fn settle(
    world: &World,
    max_turns: u8,
    plan: impl Fn(&Snapshot) -> Result<Plan, PlanError>,
) -> (Result<Reconciled, ReconcileError>, usize) {
    let (ports, hosts, stop) = (world.ports(), world.hosts(), CancellationToken::new());
    let probe = Counted(ports.clone(), AtomicUsize::new(0));
    let watch = |_: RunEvent| {};
    let hands = HostPorts { act: &ports, secrets: &ports, blobs: &ports };
    let wheel = Reconciler { hosts: &hosts, probe: &probe, hands, clock: &ports, watch: &watch, stop: &stop };
    let turn = wheel.until_settled(plan, max_turns).await;
    (turn, probe.1.load(Ordering::SeqCst) / hosts.len())
}

fn world() -> World {
    World::of([host(H1), host(H2)])
}

#[tokio::test(start_paused = true)]
async fn a_complete_turn_is_the_last_without_another_look() {
    let world = world();
    let (turn, looks) = settle(&world, 5, toy).await;
    assert!(turn.unwrap().outcome.is_complete());
    assert_eq!(looks, 1);
}

#[tokio::test(start_paused = true)]
async fn the_next_run_finds_nothing_to_do() {
    let world = world();
    settle(&world, 1, toy).await.0.unwrap();
    let effects = world.effects();
    let turn = settle(&world, 1, toy).await.0.unwrap();
    assert!(turn.plan.steps.is_empty() && turn.outcome.is_complete());
    assert_eq!((turn.plan.standing, world.effects()), (2, effects));
}

#[tokio::test(start_paused = true)]
async fn turns_again_where_that_may_help() {
    let world = world();
    world.trouble("b@h2", [Fault::BreakBefore]);
    let (turn, looks) = settle(&world, 3, toy).await;
    let turn = turn.unwrap();
    assert!(turn.outcome.is_complete());
    assert_eq!(looks, 2);
    assert_eq!(turn.plan.steps.iter().map(|step| step.id.as_str()).collect::<Vec<_>>(), ["b@h2"]);
}

#[tokio::test(start_paused = true)]
async fn stops_where_another_turn_cannot_help() {
    let fail = |category| Fault::Fail(StepFailure { category, cause: "no".to_owned(), log: vec![] });
    // A lasting failure; a passing one without any progress; a passing one, but only one turn allowed.
    for (faults, max_turns) in [
        (vec![("b@h2", fail(Category::Exhausted))], 5),
        (vec![("a@h1", Fault::BreakBefore), ("b@h2", Fault::BreakBefore)], 5),
        (vec![("b@h2", Fault::BreakBefore)], 1),
    ] {
        let world = world();
        faults.into_iter().for_each(|(step, fault)| world.trouble(step, [fault]));
        let (turn, looks) = settle(&world, max_turns, toy).await;
        assert!(matches!(turn.unwrap().outcome.steps["b@h2"], StepOutcome::Failed { .. }));
        assert_eq!(looks, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn ends_after_as_many_turns_as_allowed() {
    let world = world();
    // Every turn gets a little further and fails again.
    let turns = AtomicUsize::new(0);
    let plan = |snapshot: &Snapshot| {
        let turn = turns.fetch_add(1, Ordering::SeqCst);
        world.trouble("b@h2", [Fault::BreakBefore]);
        Ok(needed(
            plan_of([step("a@h1", H1).writes("/a", &turn.to_string()), step("b@h2", H2).writes("/b", "b")]),
            snapshot,
        ))
    };
    let (turn, looks) = settle(&world, 4, plan).await;
    assert!(!turn.unwrap().outcome.is_complete());
    assert_eq!(looks, 4);
}

#[tokio::test(start_paused = true)]
async fn an_unsafe_plan_is_refused_before_the_first_effect() {
    let world = World::of([host(H1), host(H2).unreachable()]);
    let plan = |_: &Snapshot| {
        let reset = step("reset@h2", H2).op(Op::Reset { cluster: "demo".parse().unwrap() });
        let mut plan = plan_of([step("a@h1", H1).writes("/a", "a"), reset]);
        plan.steps[1].destructive = true;
        Ok(plan)
    };
    let error = settle(&world, 1, plan).await.0.unwrap_err();
    assert!(matches!(&error, ReconcileError::Unsafe { findings, .. } if findings.len() == 1), "{error}");
    assert!(error.to_string().contains("reset@h2"), "{error}");
    assert_eq!(world.effects(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refused_wish_says_why_and_writes_nothing() {
    let world = world();
    let refuse = |_: &Snapshot| {
        let refusals = vec![Refusal { subject: "-m".to_owned(), reason: "is missing".to_owned() }];
        Err(PlanError { cluster: "demo".to_owned(), refusals, notes: vec![] })
    };
    let error = settle(&world, 1, refuse).await.0.unwrap_err();
    assert_eq!(error.to_string(), "demo cannot be planned, 1 reason");
    assert_eq!(world.effects(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_look_writes_nothing_and_can_be_acted_on() {
    let world = world();
    let (ports, hosts, stop) = (world.ports(), world.hosts(), CancellationToken::new());
    let watch = |_: RunEvent| {};
    let hands = HostPorts { act: &ports, secrets: &ports, blobs: &ports };
    let wheel = Reconciler { hosts: &hosts, probe: &ports, hands, clock: &ports, watch: &watch, stop: &stop };
    let looked = wheel.look(toy).await.unwrap();
    assert_eq!((looked.plan().steps.len(), world.effects()), (2, 0));
    assert!(looked.snapshot.hosts[&address(H1)].fresh().is_some());
    assert!(wheel.act(looked).await.outcome.is_complete());
    assert_eq!(world.file(H2, "/b").as_deref(), Some("b"));
}
