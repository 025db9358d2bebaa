//! The order of steps: needs, parallel hosts, capacity of a host.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on must stop"
)]

use std::time::Duration;

use crate::support::{failure, ran};
use kubeon_apply::{RunEvent, STEPS_AT_ONCE};
use kubeon_plan::Plan;
use kubeon_testkit::{Fault, World, host, plan_of, step};
use tokio::time::Instant;

const H1: &str = "10.0.0.1";
const H2: &str = "10.0.0.2";
const H3: &str = "10.0.0.3";

fn world() -> World {
    World::of([host(H1), host(H2), host(H3)])
}

fn slow(world: &World, plan: &Plan, seconds: u64) {
    for step in &plan.steps {
        world.inject_faults(&step.id.to_string(), [Fault::Slow(Duration::from_secs(seconds))]);
    }
}

/// The maximum number of steps with this prefix that ran at the same time.
fn most_at_once(world: &World, prefix: &str) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for line in world.trace() {
        let (sign, id) = line.split_at(1);
        if !id.starts_with(prefix) {
            continue;
        }
        now = if sign == "+" { now + 1 } else { now - 1 };
        most = most.max(now);
    }
    most
}

#[tokio::test(start_paused = true)]
async fn starts_a_step_when_all_its_needs_are_done() {
    let world = world();
    let plan = plan_of([
        step("a", H1).writes("/a", "a"),
        step("b", H2).writes("/b", "b").needs(["a"]),
        step("c", H1).writes("/c", "c").needs(["a", "b"]),
        step("d", H3).writes("/d", "d").needs(["c"]),
    ]);
    slow(&world, &plan, 5);
    assert!(ran(&world, &plan).await.outcome.is_complete());
    assert_eq!(world.trace(), ["+a", "-a", "+b", "-b", "+c", "-c", "+d", "-d"]);
}

#[tokio::test(start_paused = true)]
async fn does_not_wait_for_other_steps() {
    let world = world();
    let plan = plan_of([
        step("long", H1),
        step("short", H1),
        step("after-short", H2).needs(["short"]),
        step("after-both", H3).needs(["after-short", "long"]),
    ]);
    world.inject_faults("long", [Fault::Slow(Duration::from_secs(30))]);
    assert!(ran(&world, &plan).await.outcome.is_complete());
    let trace = world.trace();
    let place = |line: &str| trace.iter().position(|entry| entry == line).unwrap();
    assert!(place("-after-short") < place("-long") && place("-long") < place("+after-both"), "{trace:?}");
}

#[tokio::test(start_paused = true)]
async fn runs_on_all_hosts_in_parallel() {
    let hosts: Vec<String> = (1..=100).map(|last| format!("10.0.1.{last}")).collect();
    let world = World::of(hosts.iter().map(|at| host(at)));
    let plan = plan_of(hosts.iter().enumerate().map(|(n, at)| step(&format!("s{n}"), at).writes("/a", "a")));
    slow(&world, &plan, 10);
    let start = Instant::now();
    assert!(ran(&world, &plan).await.outcome.is_complete());
    assert_eq!(start.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_needs_a_step_outside_the_plan_fails_and_is_not_sent() {
    let world = world();
    let steps = [step("b", H1).needs(["nowhere"]), step("c", H2).needs(["b"]), step("d", H1)];
    let ran = ran(&world, &plan_of(steps)).await;
    assert!(ran.failure("b").cause.contains("verify/nowhere@test, which is not in the plan"));
    assert_eq!((ran.of("c").as_str(), ran.of("d").as_str()), ("skipped because of b", "done"));
    assert_eq!(
        ran.count(|event| matches!(event, RunEvent::StepStarted { step, .. } if step.what() != "d")),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn sends_parts_one_after_another_in_parallel_with_other_steps() {
    let world = world();
    let mut steps: Vec<_> = (0..4).map(|n| step(&format!("part{n}"), H1).unpacks(&format!("p{n}"))).collect();
    steps.push(step("file", H1).writes("/a", "a"));
    steps.push(step("part-elsewhere", H2).unpacks("p0"));
    let plan = plan_of(steps);
    slow(&world, &plan, 2);
    let start = Instant::now();
    let ran = ran(&world, &plan).await;
    assert!(ran.outcome.is_complete());
    assert_eq!(start.elapsed().as_secs(), 8, "four parts of 2 s on h1, in parallel with the other steps");
    let parts: Vec<String> =
        world.trace().into_iter().filter(|line| line[1..].starts_with("part") && line.len() == 6).collect();
    assert_eq!(parts, ["+part0", "-part0", "+part1", "-part1", "+part2", "-part2", "+part3", "-part3"]);
    assert_eq!(ran.count(|event| matches!(event, RunEvent::Progress { .. })), 5);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_waits_does_not_delay_the_next_part() {
    let world = world();
    let plan = plan_of([
        step("gate", H2),
        step("part-late", H1).unpacks("a").needs(["gate"]),
        step("part-now", H1).unpacks("b"),
    ]);
    world.inject_faults("gate", [Fault::Slow(Duration::from_secs(10))]);
    assert!(ran(&world, &plan).await.outcome.is_complete());
    let trace = world.trace();
    let place = |line: &str| trace.iter().position(|entry| entry == line).unwrap();
    assert!(place("-part-now") < place("-gate") && place("-gate") < place("+part-late"), "{trace:?}");
}

#[tokio::test(start_paused = true)]
async fn limits_the_steps_of_a_host() {
    let world = world();
    let plan = plan_of((0..30).map(|n| step(&format!("s{n:02}"), H1)));
    slow(&world, &plan, 1);
    let start = Instant::now();
    assert!(ran(&world, &plan).await.outcome.is_complete());
    assert_eq!(most_at_once(&world, "s"), STEPS_AT_ONCE);
    assert_eq!(start.elapsed().as_secs(), 4);
    assert_eq!(world.trace()[0], "+s00", "the first step of the plan starts first");
}

#[tokio::test(start_paused = true)]
async fn opens_one_session_for_each_host_with_steps() {
    let world = world();
    let mut plan = plan_of([step("a", H1), step("b", H1).needs(["a"]), step("c", H3)]);
    let planned = plan.hosts.values().next().unwrap().clone();
    plan.hosts.insert(kubeon_testkit::address(H2), planned);
    assert!(ran(&world, &plan).await.outcome.is_complete());
    assert_eq!([H1, H2, H3].map(|at| world.opened(at)), [1, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_step_skips_only_the_steps_that_need_it() {
    let world = world();
    let plan = plan_of([
        step("a", H1).writes("/a", "a"),
        step("b", H2).writes("/b", "b").needs(["a"]),
        step("c", H3).writes("/c", "c").needs(["b"]),
        step("d", H1).writes("/d", "d"),
        step("e", H3).writes("/e", "e").needs(["d"]),
        step("f", H3).writes("/f", "f").needs(["e", "c"]),
    ]);
    world.inject_faults("a", [Fault::Fail(failure(kubeon_wire::Category::Exhausted))]);
    let ran = ran(&world, &plan).await;
    let results: Vec<String> = ["a", "b", "c", "d", "e", "f"].iter().map(|id| ran.of(id)).collect();
    let because = "skipped because of a";
    assert_eq!(results, ["failed", because, because, "done", "done", because]);
    assert!(!ran.outcome.is_complete());
    assert_eq!(world.file(H2, "/b"), None);
}

#[tokio::test(start_paused = true)]
async fn an_empty_plan_is_complete_and_opens_no_session() {
    let world = world();
    let ran = ran(&world, &plan_of([])).await;
    assert!(ran.outcome.is_complete() && ran.outcome.steps.is_empty());
    assert_eq!((ran.events.len(), world.effects()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cycle_of_needs_fails_with_a_reason() {
    let world = world();
    let plan = plan_of([step("a", H1).needs(["b"]), step("b", H1).needs(["a"]), step("c", H1)]);
    let ran = ran(&world, &plan).await;
    assert_eq!(ran.of("c"), "done");
    assert!(
        ran.failure("a").cause.contains("depends on itself through other steps"),
        "{:?}",
        ran.failure("a")
    );
    assert_eq!(ran.of("b"), "failed");
}

#[tokio::test(start_paused = true)]
async fn a_step_on_a_host_outside_the_plan_fails_and_the_others_continue() {
    let world = world();
    let mut plan = plan_of([step("a", H1), step("b", H2), step("c", H2).needs(["a"])]);
    plan.hosts.remove(&kubeon_testkit::address(H1));
    let ran = ran(&world, &plan).await;
    assert!(ran.failure("a").cause.contains("not among the hosts of the plan"));
    assert_eq!((ran.of("b").as_str(), ran.of("c").as_str()), ("done", "skipped because of a"));
}
