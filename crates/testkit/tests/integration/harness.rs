//! The harness itself must be able to fail.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on must stop"
)]

use crate::support::command;
use kubeon_plan::Plan;
use kubeon_testkit::{World, crash_anywhere, host, needed, plan_of, step};

const H1: &str = "10.0.0.1";
const H2: &str = "10.0.0.2";

async fn two() -> World {
    World::of([host(H1), host(H2)])
}

fn toy() -> Plan {
    plan_of([
        step("files@h1", H1).writes("/a", "a").writes("/b", "b"),
        step("part@h2", H2).unpacks("kubelet"),
        step("after@h2", H2).writes("/c", "c").needs(["files@h1", "part@h2"]),
    ])
}

#[tokio::test(start_paused = true)]
async fn passes_a_planner_that_is_right() {
    let crashes =
        crash_anywhere(two, async |world| command(world, |seen| Ok(needed(toy(), seen)), 1).await.map(drop))
            .await
            .unwrap();
    // Two claims, three files, a part, and three entries in journals.
    assert_eq!(crashes.effects, 9);
}

#[tokio::test(start_paused = true)]
async fn finds_content_that_changes_from_run_to_run() {
    let planner = |seen: &kubeon_plan::Snapshot| {
        let generation = needed(toy(), seen).generation;
        Ok(needed(plan_of([step("file@h1", H1).writes("/a", &format!("generation {generation}"))]), seen))
    };
    let why =
        crash_anywhere(two, async |world| command(world, planner, 1).await.map(drop)).await.unwrap_err();
    assert!(why.contains("the world is another") && why.contains("/a"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn finds_work_that_is_forgotten_after_a_crash() {
    // Believes that a host is done when it is claimed.
    let planner = |seen: &kubeon_plan::Snapshot| {
        let mut plan = needed(toy(), seen);
        if plan.generation > 1 {
            plan.steps.clear();
        }
        Ok(plan)
    };
    let why =
        crash_anywhere(two, async |world| command(world, planner, 1).await.map(drop)).await.unwrap_err();
    assert!(why.contains("crash after effect 1 of 9"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn finds_what_is_done_once_too_often() {
    // Removes everything and starts again whenever it finds a claim.
    let planner = |seen: &kubeon_plan::Snapshot| {
        let reset = kubeon_wire::Op::Reset { cluster: "demo".parse().unwrap() };
        let plan = needed(toy(), seen);
        if plan.generation == 1 {
            return Ok(plan);
        }
        let mut all = plan_of([
            step("reset@h1", H1).op(reset),
            step("files@h1", H1).writes("/a", "a").writes("/b", "b").needs(["reset@h1"]),
        ]);
        all.hosts.values_mut().for_each(|host| host.fence.generation = plan.generation);
        all.steps.extend(plan.steps.into_iter().filter(|step| step.id != "files@h1"));
        all.hosts.extend(plan.hosts);
        Ok(all)
    };
    let why =
        crash_anywhere(two, async |world| command(world, planner, 1).await.map(drop)).await.unwrap_err();
    assert!(why.contains("crash after effect"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn says_so_when_nothing_works_at_all() {
    let why = crash_anywhere(two, async |_| Err("no".to_owned())).await.unwrap_err();
    assert_eq!(why, "even the undisturbed run fails: no");
}
