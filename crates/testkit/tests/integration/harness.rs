//! The crash harness must detect wrong planners.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on must stop"
)]

use crate::support::command;
use kubeon_plan::Plan;
use kubeon_testkit::{World, crash_anywhere, host, needed, plan_of, step, step_id};

const H1: &str = "10.0.0.1";
const H2: &str = "10.0.0.2";

async fn two_hosts() -> World {
    World::of([host(H1), host(H2)])
}

fn example() -> Plan {
    plan_of([
        step("files@h1", H1).writes("/a", "a").writes("/b", "b"),
        step("part@h2", H2).unpacks("kubelet"),
        step("after@h2", H2).writes("/c", "c").needs(["files@h1", "part@h2"]),
    ])
}

#[tokio::test(start_paused = true)]
async fn accepts_a_correct_planner() {
    let crashes = crash_anywhere(two_hosts, async |world| {
        command(world, world.hosts(), |snapshot| Ok(needed(example(), snapshot)), 1).await.map(drop)
    })
    .await
    .unwrap();
    // One persisted generation, two claims, three files, one part and three journal entries.
    assert_eq!(crashes.effects, 10);
}

#[tokio::test(start_paused = true)]
async fn finds_content_that_changes_from_run_to_run() {
    let planner = |snapshot: &kubeon_plan::Snapshot| {
        let generation = needed(example(), snapshot).generation;
        Ok(needed(plan_of([step("file@h1", H1).writes("/a", &format!("generation {generation}"))]), snapshot))
    };
    let why =
        crash_anywhere(two_hosts, async |world| command(world, world.hosts(), planner, 1).await.map(drop))
            .await
            .unwrap_err();
    assert!(why.contains("the world differs") && why.contains("/a"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn finds_steps_that_are_missing_after_a_crash() {
    // This planner treats a claimed host as complete.
    let planner = |snapshot: &kubeon_plan::Snapshot| {
        let mut plan = needed(example(), snapshot);
        if plan.generation > 1 {
            plan.steps.clear();
        }
        Ok(plan)
    };
    let why =
        crash_anywhere(two_hosts, async |world| command(world, world.hosts(), planner, 1).await.map(drop))
            .await
            .unwrap_err();
    assert!(why.contains("crash after effect 2 of 10 (h2 claim, generation 1)"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn finds_repeated_effects() {
    // This planner resets a claimed host and starts again.
    let planner = |snapshot: &kubeon_plan::Snapshot| {
        let reset = kubeon_wire::Op::Reset { cluster: "demo".parse().unwrap() };
        let plan = needed(example(), snapshot);
        if plan.generation == 1 {
            return Ok(plan);
        }
        let mut all = plan_of([
            step("reset@h1", H1).op(reset),
            step("files@h1", H1).writes("/a", "a").writes("/b", "b").needs(["reset@h1"]),
        ]);
        all.hosts.values_mut().for_each(|host| host.fence.generation = plan.generation);
        all.steps.extend(plan.steps.into_iter().filter(|step| step.id != step_id("files@h1")));
        all.hosts.extend(plan.hosts);
        Ok(all)
    };
    let why =
        crash_anywhere(two_hosts, async |world| command(world, world.hosts(), planner, 1).await.map(drop))
            .await
            .unwrap_err();
    assert!(why.contains("crash after effect"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn reports_a_failure_of_the_undisturbed_run() {
    let why = crash_anywhere(two_hosts, async |_| Err("no".to_owned())).await.unwrap_err();
    assert_eq!(why, "the undisturbed run fails: no");
}
