//! Workers come and go in a world in memory: killed after every single effect.
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

/// The cluster without its last worker, which is to leave.
fn one_leaves(masters: usize, workers: usize) -> Intent {
    let leaving = |at: &str| kubeon_plan::HostSpec {
        address: at.parse().unwrap(),
        name: format!("h{}", at.rsplit('.').next().unwrap()).parse().ok(),
        labels: Default::default(),
    };
    Intent { leaving: vec![leaving(WORKERS[workers - 1])], ..intent(masters, workers - 1) }
}

#[tokio::test(start_paused = true)]
async fn removes_a_worker_whatever_dies_when() {
    for (masters, workers) in [(3, 2), (1, 1)] {
        let less = one_leaves(masters, workers);
        let fresh = async || built(masters, workers).await;
        crash_anywhere(fresh, async |world| create(world, &less).await.map(drop)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn removes_a_worker_with_care_while_no_api_server_tells_its_nodes() {
    let less = one_leaves(3, 2);
    let slow = async || {
        let world = built(3, 2).await;
        world.slow_nodes();
        world
    };
    crash_anywhere(slow, async |world| create(world, &less).await.map(drop)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_left_leaves_no_trace() {
    let world = built(3, 2).await;
    create(&world, &one_leaves(3, 2)).await.unwrap();
    let never_there = bare(3, 2);
    create(&never_there, &intent(3, 1)).await.unwrap();
    assert_eq!(world.picture(), never_there.picture());
    assert_eq!(world.harms(), Vec::<String>::new());
    let again = create(&world, &one_leaves(3, 2)).await.unwrap();
    assert!(again.plan.steps.is_empty(), "{:?}", again.plan.steps[0].id);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_left_comes_back_whatever_dies_when() {
    let left = async || {
        let world = built(3, 2).await;
        create(&world, &one_leaves(3, 2)).await.unwrap();
        world
    };
    let back = intent(3, 2);
    crash_anywhere(left, async |world| create(world, &back).await.map(drop)).await.unwrap();
    let world = left().await;
    create(&world, &back).await.unwrap();
    assert_eq!(world.picture(), built(3, 2).await.picture());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_be_reached_is_taken_out_whatever_dies_when() {
    let dead = async || {
        let world = built(3, 2).await;
        world.cut(WORKERS[1]);
        world
    };
    let mut less = one_leaves(3, 2);
    let worker = WORKERS[1].parse().unwrap();
    let refusals = refusals(&dead().await, &less).await;
    let remedies: Vec<_> = refusals.iter().map(|it| (it.value.as_str(), it.remedy.as_ref())).collect();
    assert_eq!(remedies, [(WORKERS[1], Some(&Remedy::SkipHost(worker)))], "{refusals:?}");
    less.skip_hosts.push(worker);
    crash_anywhere(dead, async |world| create(world, &less).await.map(drop)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn swaps_workers_whatever_dies_when() {
    let fresh = async || {
        let world = bare(3, 2);
        create(&world, &intent(3, 1)).await.unwrap();
        world
    };
    let mut wish = cluster();
    for master in MASTERS {
        wish = wish.master(master);
    }
    let leaving = one_leaves(3, 1).leaving;
    let swap = Intent { leaving, ..wish.worker(WORKERS[1]).intent() };
    crash_anywhere(fresh, async |world| create(world, &swap).await.map(drop)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn destroys_a_cluster_that_a_worker_was_about_to_leave() {
    let world = built(3, 2).await;
    destroy(&world, &one_leaves(3, 2)).await.unwrap();
    assert_eq!(world.picture(), bare(3, 2).picture());
}

/// The removal of a worker dies after every effect; then it is taken back, which dies once more in between.
#[tokio::test(start_paused = true)]
async fn a_worker_whose_removal_was_broken_off_anywhere_stays_when_that_is_wanted() {
    let (less, whole) = (one_leaves(3, 2), built(3, 2).await);
    let back = Intent { returning: vec![WORKERS[1].parse().unwrap()], ..intent(3, 2) };
    let removal = {
        let world = built(3, 2).await;
        let before = world.effects();
        create(&world, &less).await.unwrap();
        world.effects() - before
    };
    for died_after in 0..=removal {
        let world = built(3, 2).await;
        broken_off(&world, &less, died_after).await;
        broken_off(&world, &back, died_after % 7).await;
        // As the command does: what was made bare joins by a plan of its own.
        create(&world, &back).await.unwrap();
        create(&world, &back).await.unwrap();
        assert_eq!(world.picture(), whole.picture(), "died after effect {died_after} of {removal}");
        assert_eq!(world.harms(), Vec::<String>::new(), "died after effect {died_after}");
    }
}

async fn broken_off(world: &World, intent: &Intent, effects: usize) {
    world.die_after(effects);
    tokio::select! {
        biased;
        () = world.died() => {}
        // There may have been fewer effects than that.
        _ = create(world, intent) => {}
    }
    world.restart();
}
