//! Reconciles of a simulated world with a simple planner.
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
use kubeon_apply::{HostPorts, RunEvent, RunObserver};
use kubeon_plan::{Outcome, Plan, PlanError, PlanRefused, Refusal, RefusedField, Snapshot, StepOutcome};
use kubeon_ports::ProbeHost;
use kubeon_reconcile::{Planned, ReconcileError, ReconcileHooks, Reconciled, Reconciler, Silent};
use kubeon_testkit::{Fault, Ports, World, address, host, needed, plan_of, step, step_id};
use kubeon_wire::{Category, Facts, Op, StepFailure};

const H1: &str = "10.0.0.1";
const H2: &str = "10.0.0.2";

/// A probe that counts the observations.
struct Counted(Ports, AtomicUsize);

#[async_trait]
impl ProbeHost for Counted {
    async fn facts(&self, host: HostAddress) -> Result<Facts, StepFailure> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.facts(host).await
    }
}

fn desired() -> Plan {
    plan_of([step("a@h1", H1).writes("/a", "a"), step("b@h2", H2).writes("/b", "b")])
}

fn simple_plan(snapshot: &Snapshot) -> Result<Plan, PlanError> {
    Ok(needed(desired(), snapshot))
}

/// The last apply and the number of observations of each host.
async fn settle(
    world: &World,
    attempts: u8,
    plan: impl Fn(&Snapshot) -> Result<Plan, PlanError>,
) -> (Result<Reconciled, ReconcileError>, usize) {
    let (ports, hosts, cancellation) = (world.ports(), world.hosts(), CancellationToken::new());
    let probe = Counted(ports.clone(), AtomicUsize::new(0));
    let reconciler = Reconciler {
        hosts: &hosts,
        probe: &probe,
        ports: host_ports(&ports),
        clock: &ports,
        cancellation: &cancellation,
    };
    let done = match reconciler.observe_and_plan(&plan).await {
        Ok(planned) => reconciler.until_settled(planned, plan, &mut Silent, attempts).await,
        Err(error) => Err(error),
    };
    (done, probe.1.load(Ordering::SeqCst) / hosts.len())
}

fn host_ports(ports: &Ports) -> HostPorts<'_> {
    HostPorts { act: ports, secrets: ports, blobs: ports, forwarding: None }
}

fn world() -> World {
    World::of([host(H1), host(H2)])
}

#[tokio::test(start_paused = true)]
async fn a_complete_apply_ends_the_loop_without_another_observation() {
    let world = world();
    let (done, observations) = settle(&world, 5, simple_plan).await;
    assert!(done.unwrap().outcome.is_complete());
    assert_eq!(observations, 1);
}

#[tokio::test(start_paused = true)]
async fn the_next_run_has_no_steps() {
    let world = world();
    settle(&world, 1, simple_plan).await.0.unwrap();
    let effects = world.effects();
    let done = settle(&world, 1, simple_plan).await.0.unwrap();
    assert!(done.plan.steps.is_empty() && done.outcome.is_complete());
    assert_eq!((done.plan.up_to_date, world.effects()), (2, effects));
}

#[tokio::test(start_paused = true)]
async fn retries_if_a_retry_may_help() {
    let world = world();
    world.inject_faults("b@h2", [Fault::BreakBefore]);
    let (done, observations) = settle(&world, 3, simple_plan).await;
    let done = done.unwrap();
    assert!(done.outcome.is_complete());
    assert_eq!(observations, 2);
    assert_eq!(done.plan.steps.iter().map(|step| &step.id).collect::<Vec<_>>(), [&step_id("b@h2")]);
}

#[tokio::test(start_paused = true)]
async fn stops_if_a_retry_cannot_help() {
    let fail = |category| Fault::Fail(StepFailure { category, cause: "no".to_owned(), log: vec![] });
    // A permanent failure; a temporary failure without progress; a temporary failure with only one attempt
    // allowed.
    for (faults, attempts) in [
        (vec![("b@h2", fail(Category::Exhausted))], 5),
        (vec![("a@h1", Fault::BreakBefore), ("b@h2", Fault::BreakBefore)], 5),
        (vec![("b@h2", Fault::BreakBefore)], 1),
    ] {
        let world = world();
        faults.into_iter().for_each(|(step, fault)| world.inject_faults(step, [fault]));
        let (done, observations) = settle(&world, attempts, simple_plan).await;
        assert!(matches!(done.unwrap().outcome.steps[&step_id("b@h2")], StepOutcome::Failed { .. }));
        assert_eq!(observations, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn ends_after_as_many_attempts_as_allowed() {
    let world = world();
    // Every attempt makes progress and fails again.
    let attempts = AtomicUsize::new(0);
    let plan = |snapshot: &Snapshot| {
        let done = attempts.fetch_add(1, Ordering::SeqCst);
        world.inject_faults("b@h2", [Fault::BreakBefore]);
        Ok(needed(
            plan_of([step("a@h1", H1).writes("/a", &done.to_string()), step("b@h2", H2).writes("/b", "b")]),
            snapshot,
        ))
    };
    let (done, observations) = settle(&world, 4, plan).await;
    assert!(!done.unwrap().outcome.is_complete());
    assert_eq!(observations, 4);
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
async fn a_refused_request_reports_the_reason_and_changes_nothing() {
    let world = world();
    let refuse = |_: &Snapshot| {
        let refusals = vec![Refusal::new(RefusedField::Master, "", "is missing")];
        Err(PlanRefused { cluster: "demo".to_owned(), refusals, notes: vec![] }.into())
    };
    let error = settle(&world, 1, refuse).await.0.unwrap_err();
    assert_eq!(error.to_string(), "demo cannot be planned, 1 reason");
    assert_eq!(world.effects(), 0);
}

/// Why the loop ended with an error.
#[derive(Debug, PartialEq, Eq)]
struct LoopError(String);

impl From<ReconcileError> for LoopError {
    fn from(error: ReconcileError) -> Self {
        Self(error.to_string())
    }
}

/// Hooks that record the calls of the loop, and refuse the plan of one attempt.
#[derive(Default)]
struct Recorded {
    calls: Vec<String>,
    refuses: Option<u8>,
}

impl ReconcileHooks for Recorded {
    type Error = LoopError;

    async fn before_apply(&mut self, planned: &Planned, attempt: u8) -> Result<(), LoopError> {
        self.calls.push(format!("before {attempt}, generation {}", planned.plan().generation));
        if self.refuses == Some(attempt) { Err(LoopError("cannot save".to_owned())) } else { Ok(()) }
    }

    fn observer(&mut self, plan: &Plan) -> Box<dyn RunObserver> {
        self.calls.push(format!("observer of {} steps", plan.steps.len()));
        Box::new(|_: RunEvent| {})
    }

    fn before_retry(&mut self, outcome: &Outcome) {
        self.calls.push(format!("retry after {}", outcome.steps.len()));
    }

    fn retry_refused(&mut self, error: &ReconcileError) {
        self.calls.push(format!("no retry: {error}"));
    }
}

/// The loop with recorded hooks and two attempts.
async fn recorded(
    world: &World,
    mut hooks: Recorded,
    plan: impl Fn(&Snapshot) -> Result<Plan, PlanError>,
) -> (Result<Reconciled, LoopError>, Vec<String>) {
    let (ports, hosts, cancellation) = (world.ports(), world.hosts(), CancellationToken::new());
    let reconciler = Reconciler {
        hosts: &hosts,
        probe: &ports,
        ports: host_ports(&ports),
        clock: &ports,
        cancellation: &cancellation,
    };
    let planned = reconciler.observe_and_plan(&plan).await.unwrap();
    assert!(planned.snapshot.hosts[&address(H1)].fresh().is_some());
    assert_eq!((planned.plan().steps.len(), world.effects()), (2, 0), "planning writes nothing");
    let done = reconciler.until_settled(planned, plan, &mut hooks, 2).await;
    (done, hooks.calls)
}

#[tokio::test(start_paused = true)]
async fn the_pre_apply_hook_gets_every_plan_before_its_first_effect() {
    let world = world();
    world.inject_faults("b@h2", [Fault::BreakBefore]);
    let (done, calls) = recorded(&world, Recorded::default(), simple_plan).await;
    assert!(done.unwrap().outcome.is_complete());
    let expected = [
        "before 1, generation 1",
        "observer of 2 steps",
        "retry after 2",
        "before 2, generation 2",
        "observer of 1 steps",
    ];
    assert_eq!(calls, expected);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_when_the_pre_apply_hook_fails() {
    let world = world();
    let hooks = Recorded { refuses: Some(1), ..Recorded::default() };
    let (done, calls) = recorded(&world, hooks, simple_plan).await;
    assert_eq!(done.unwrap_err(), LoopError("cannot save".to_owned()));
    assert_eq!((calls.len(), world.effects()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_failed_check_that_the_next_plan_does_not_repeat_stays_failed() {
    let world = world();
    let late = StepFailure { category: Category::Timeout, cause: "too late".to_owned(), log: vec![] };
    world.inject_faults("check@h2", [Fault::Fail(late)]);
    let observations = AtomicUsize::new(0);
    let plan = |_: &Snapshot| {
        let first = observations.fetch_add(1, Ordering::SeqCst) == 0;
        let check = first.then(|| step("check@h2", H2).waits_for("/a"));
        Ok(plan_of([step("a@h1", H1).writes("/a", "a")].into_iter().chain(check)))
    };
    let (done, calls) = recorded(&world, Recorded::default(), plan).await;
    let outcome = done.unwrap().outcome;
    assert!(matches!(outcome.steps[&step_id("check@h2")], StepOutcome::Failed { .. }), "{outcome:?}");
    assert_eq!(observations.load(Ordering::SeqCst), 2, "a second plan was computed");
    assert_eq!(
        calls.iter().filter(|call| call.starts_with("before")).count(),
        1,
        "the second plan was not applied: {calls:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_outcome_is_kept_when_the_plan_of_a_retry_is_refused() {
    let world = world();
    world.inject_faults("b@h2", [Fault::BreakBefore]);
    let observations = AtomicUsize::new(0);
    let plan = |snapshot: &Snapshot| match observations.fetch_add(1, Ordering::SeqCst) {
        0 => simple_plan(snapshot),
        _ => Err(PlanRefused { cluster: "demo".to_owned(), refusals: vec![], notes: vec![] }.into()),
    };
    let (done, calls) = recorded(&world, Recorded::default(), plan).await;
    assert!(matches!(done.unwrap().outcome.steps[&step_id("b@h2")], StepOutcome::Failed { .. }));
    assert_eq!(calls.last().unwrap(), "no retry: demo cannot be planned, 0 reasons");
}

/// The first plan writes `/a` and continues; the second writes `/b`.
fn two_plans(snapshot: &Snapshot) -> Result<Plan, PlanError> {
    let left = needed(desired(), snapshot);
    match left.steps.iter().position(|step| step.id == step_id("a@h1")) {
        Some(first) => Ok(Plan { steps: vec![left.steps[first].clone()], continues: true, ..left }),
        None => Ok(left),
    }
}

#[tokio::test(start_paused = true)]
async fn another_plan_follows_a_complete_apply_whose_plan_continues() {
    let world = world();
    // One attempt: a plan that follows is not a retry.
    let (done, observations) = settle(&world, 1, two_plans).await;
    let done = done.unwrap();
    assert!(done.outcome.is_complete() && !done.plan.continues);
    assert_eq!(done.plan.steps.iter().map(|step| &step.id).collect::<Vec<_>>(), [&step_id("b@h2")]);
    assert_eq!((world.file(H1, "/a").as_deref(), world.file(H2, "/b").as_deref()), (Some("a"), Some("b")));
    assert_eq!(observations, 2);
}

#[tokio::test(start_paused = true)]
async fn no_plan_follows_an_incomplete_apply() {
    let world = world();
    let fail = StepFailure { category: Category::Failed, cause: "no".to_owned(), log: vec![] };
    world.inject_faults("a@h1", [Fault::Fail(fail)]);
    let (done, observations) = settle(&world, 3, two_plans).await;
    assert!(!done.unwrap().outcome.is_complete());
    assert_eq!((observations, world.file(H2, "/b")), (1, None));
}

#[tokio::test(start_paused = true)]
async fn the_number_of_following_plans_is_limited() {
    let world = world();
    let plans = AtomicUsize::new(0);
    let endless = |snapshot: &Snapshot| {
        let text = plans.fetch_add(1, Ordering::SeqCst).to_string();
        let left = needed(plan_of([step("a@h1", H1).writes("/a", &text)]), snapshot);
        Ok(Plan { continues: true, ..left })
    };
    let (done, observations) = settle(&world, 1, endless).await;
    assert!(done.unwrap().outcome.is_complete());
    assert_eq!(observations, 3);
}

#[tokio::test(start_paused = true)]
async fn a_following_plan_that_is_refused_is_an_error() {
    let world = world();
    let plans = AtomicUsize::new(0);
    let plan = |snapshot: &Snapshot| match plans.fetch_add(1, Ordering::SeqCst) {
        0 => Ok(Plan { continues: true, ..needed(desired(), snapshot) }),
        _ => Err(PlanRefused { cluster: "demo".to_owned(), refusals: vec![], notes: vec![] }.into()),
    };
    let (done, calls) = recorded(&world, Recorded::default(), plan).await;
    assert_eq!(done.unwrap_err(), LoopError("demo cannot be planned, 0 reasons".to_owned()));
    assert_eq!(calls, ["before 1, generation 1", "observer of 2 steps"]);
}
