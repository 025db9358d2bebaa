//! Upgrades to the next minor version on a simulated world: each run is killed after every effect.

use kubeon_plan::Intent;
use kubeon_testkit::{ClusterBuilder, World, cluster, crash_anywhere, host};

use crate::support::create;

const OLD: &str = "v1.36.3";
const NEW: &str = "v1.37.2";
const HOSTS: [&str; 4] = ["172.30.0.11", "172.30.0.12", "172.30.0.13", "172.30.0.14"];

fn spec(masters: usize) -> ClusterBuilder {
    let (masters, workers) = HOSTS.split_at(masters);
    let spec = masters.iter().fold(cluster(), |spec, at| spec.master(at));
    workers.iter().fold(spec, |spec, at| spec.worker(at))
}

fn at(version: &str) -> Intent {
    spec(3).version(version).intent()
}

fn trial() -> Intent {
    spec(3).version(OLD).trying(NEW)
}

async fn built() -> World {
    let world = World::of(HOSTS.iter().map(|at| host(at).bare()));
    create(&world, &at(OLD)).await.unwrap();
    world
}

async fn tried() -> World {
    let world = built().await;
    create(&world, &trial()).await.unwrap();
    world
}

#[tokio::test(start_paused = true)]
async fn a_version_is_tried_with_a_crash_anywhere() {
    crash_anywhere(built, async |world| create(world, &trial()).await.map(drop)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_tried_version_is_taken_with_a_crash_anywhere() {
    crash_anywhere(tried, async |world| create(world, &at(NEW)).await.map(drop)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_trial_is_aborted_with_a_crash_anywhere() {
    crash_anywhere(tried, async |world| create(world, &at(OLD)).await.map(drop)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_trial_that_was_killed_anywhere_goes_back() {
    let effects = {
        let world = built().await;
        let before = world.effects();
        create(&world, &trial()).await.unwrap();
        world.effects() - before
    };
    assert!(effects > 9, "three programs on three masters change");
    for effect in 1..=effects {
        let (world, trial) = (built().await, trial());
        world.die_after(effect);
        tokio::select! {
            biased;
            () = world.died() => {}
            done = create(&world, &trial) => { done.unwrap(); }
        }
        world.restart();
        create(&world, &at(OLD)).await.unwrap();
        assert_eq!(world.harms(), Vec::<String>::new(), "effect {effect}");
        let settled = create(&world, &at(OLD)).await.unwrap();
        assert!(settled.plan.steps.is_empty(), "effect {effect}: {:?}", settled.plan.steps[0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_trial_changes_only_the_control_plane() {
    let world = built().await;
    let before = world.log().len();
    create(&world, &trial()).await.unwrap();
    let restarts: Vec<String> =
        world.log().split_off(before).into_iter().filter(|line| line.contains("restart")).collect();
    assert!(restarts.iter().all(|line| line.contains("kube-")), "{restarts:?}");
    assert!(
        !restarts.iter().any(|line| line.contains("kubelet") || line.contains("kube-proxy")),
        "{restarts:?}"
    );
}
