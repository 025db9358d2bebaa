//! Adding and removing workers on a simulated world: each run is killed after every effect.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on must stop"
)]

use crate::support::{create, destroy, refusals};
use kubeon_plan::{Intent, Remedy};
use kubeon_testkit::{ClusterBuilder, World, cluster, crash_anywhere, host};

const MASTERS: [&str; 3] = ["172.30.0.11", "172.30.0.12", "172.30.0.13"];
const WORKERS: [&str; 2] = ["172.30.0.14", "172.30.0.15"];

fn spec(masters: usize, workers: usize) -> ClusterBuilder {
    let spec = MASTERS[..masters].iter().fold(cluster(), |spec, at| spec.master(at));
    WORKERS[..workers].iter().fold(spec, |spec, at| spec.worker(at))
}

fn intent(masters: usize, workers: usize) -> Intent {
    spec(masters, workers).intent()
}

fn bare(masters: usize, workers: usize) -> World {
    World::of(MASTERS[..masters].iter().chain(&WORKERS[..workers]).map(|at| host(at).bare()))
}

async fn built(masters: usize, workers: usize) -> World {
    let world = bare(masters, workers);
    create(&world, &intent(masters, workers)).await.unwrap();
    world
}

/// The intent that removes the last worker.
fn one_leaves(masters: usize, workers: usize) -> Intent {
    let leaving = |at: &str| kubeon_plan::HostSpec {
        name: format!("h{}", at.rsplit('.').next().unwrap()).parse().ok(),
        ..kubeon_plan::HostSpec::at(at.parse().unwrap())
    };
    Intent { leaving: vec![leaving(WORKERS[workers - 1])], ..intent(masters, workers - 1) }
}

#[tokio::test(start_paused = true)]
async fn removes_a_worker_with_a_crash_anywhere() {
    for (masters, workers) in [(3, 2), (1, 1)] {
        let less = one_leaves(masters, workers);
        let fresh = async || built(masters, workers).await;
        crash_anywhere(fresh, async |world| create(world, &less).await.map(drop)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn drains_a_removed_worker_while_no_api_server_lists_the_nodes() {
    let less = one_leaves(3, 2);
    let slow = async || {
        let world = built(3, 2).await;
        world.slow_nodes();
        world
    };
    crash_anywhere(slow, async |world| create(world, &less).await.map(drop)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_removed_worker_leaves_no_content() {
    let world = built(3, 2).await;
    create(&world, &one_leaves(3, 2)).await.unwrap();
    let never_there = bare(3, 2);
    create(&never_there, &intent(3, 1)).await.unwrap();
    assert_eq!(world.render(), never_there.render());
    assert_eq!(world.harms(), Vec::<String>::new());
    let again = create(&world, &one_leaves(3, 2)).await.unwrap();
    assert!(again.plan.steps.is_empty(), "{:?}", again.plan.steps[0].id);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_left_comes_back_with_a_crash_anywhere() {
    let left = async || {
        let world = built(3, 2).await;
        create(&world, &one_leaves(3, 2)).await.unwrap();
        world
    };
    let back = intent(3, 2);
    crash_anywhere(left, async |world| create(world, &back).await.map(drop)).await.unwrap();
    let world = left().await;
    create(&world, &back).await.unwrap();
    assert_eq!(world.render(), built(3, 2).await.render());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_be_reached_is_taken_out_with_a_crash_anywhere() {
    let dead = async || {
        let world = built(3, 2).await;
        world.cut(WORKERS[1]);
        world
    };
    let mut less = one_leaves(3, 2);
    let worker = WORKERS[1].parse().unwrap();
    let refusals = refusals(&dead().await, &less).await;
    let remedies: Vec<_> =
        refusals.iter().map(|refusal| (refusal.value.as_str(), refusal.remedy.as_ref())).collect();
    assert_eq!(remedies, [(WORKERS[1], Some(&Remedy::SkipHost(worker)))], "{refusals:?}");
    less.skip_hosts.push(worker);
    crash_anywhere(dead, async |world| create(world, &less).await.map(drop)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn swaps_workers_with_a_crash_anywhere() {
    let fresh = async || {
        let world = bare(3, 2);
        create(&world, &intent(3, 1)).await.unwrap();
        world
    };
    let mut masters = cluster();
    for master in MASTERS {
        masters = masters.master(master);
    }
    let leaving = one_leaves(3, 1).leaving;
    let swap = Intent { leaving, ..masters.worker(WORKERS[1]).intent() };
    crash_anywhere(fresh, async |world| create(world, &swap).await.map(drop)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn destroys_a_cluster_with_a_leaving_worker() {
    let world = built(3, 2).await;
    destroy(&world, &one_leaves(3, 2)).await.unwrap();
    assert_eq!(world.render(), bare(3, 2).render());
}

/// The removal of a worker is killed after every effect. Then the removal is cancelled, and that run is
/// killed once too.
#[tokio::test(start_paused = true)]
async fn a_worker_stays_when_its_interrupted_removal_is_cancelled() {
    let (less, complete) = (one_leaves(3, 2), built(3, 2).await);
    let back = Intent { returning: vec![WORKERS[1].parse().unwrap()], ..intent(3, 2) };
    let removal = {
        let world = built(3, 2).await;
        let before = world.effects();
        create(&world, &less).await.unwrap();
        world.effects() - before
    };
    for died_after in 0..=removal {
        let world = built(3, 2).await;
        interrupted(&world, &less, died_after).await;
        interrupted(&world, &back, died_after % 7).await;
        // The first plan may reset the host; then the loop makes a second plan, which joins it.
        create(&world, &back).await.unwrap();
        assert_eq!(world.render(), complete.render(), "died after effect {died_after} of {removal}");
        assert_eq!(world.harms(), Vec::<String>::new(), "died after effect {died_after}");
    }
}

/// The node of a worker was deleted, then its removal was cancelled: the loop resets the host and joins it
/// again with a second plan.
#[tokio::test(start_paused = true)]
async fn a_worker_with_a_deleted_node_joins_again_with_a_crash_anywhere() {
    let less = one_leaves(3, 2);
    let node_deleted = async || {
        let world = built(3, 2).await;
        let before = world.effects();
        create(&world, &less).await.unwrap();
        let dropped = world.log()[before..].iter().position(|line| line.ends_with("drop node h15")).unwrap();
        let world = built(3, 2).await;
        interrupted(&world, &less, dropped + 1).await;
        world
    };
    let back = Intent { returning: vec![WORKERS[1].parse().unwrap()], ..intent(3, 2) };
    let world = node_deleted().await;
    let before = world.effects();
    let done = create(&world, &back).await.unwrap();
    assert!(!done.plan.continues && !done.plan.steps.is_empty(), "the second plan is the last one");
    assert_eq!(world.render(), built(3, 2).await.render());
    let claims = world.log()[before..].iter().filter(|line| line.starts_with("h15 claim, ")).count();
    assert_eq!(claims, 2, "it is claimed to be reset, and again to join");
    crash_anywhere(node_deleted, async |world| create(world, &back).await.map(drop)).await.unwrap();
}

async fn interrupted(world: &World, intent: &Intent, effects: usize) {
    world.die_after(effects);
    tokio::select! {
        biased;
        () = world.died() => {}
        // The run may have fewer effects.
        _ = create(world, intent) => {}
    }
    world.restart();
}
