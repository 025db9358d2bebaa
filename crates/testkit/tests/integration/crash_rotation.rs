//! The rotation of the keys on a simulated world: each phase is killed after every effect.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

use kubeon_api::{ClusterKeys, RotationPhase};
use kubeon_plan::Intent;
use kubeon_testkit::{World, cluster, crash_anywhere, host};

use crate::support::create;

const MASTERS: [&str; 3] = ["172.30.0.11", "172.30.0.12", "172.30.0.13"];
const WORKER: &str = "172.30.0.14";

fn intent(masters: usize, keys: ClusterKeys) -> Intent {
    let spec = MASTERS[..masters].iter().fold(cluster(), |spec, at| spec.master(at));
    Intent { keys, ..spec.worker(WORKER).intent() }
}

/// The states of the keys from the first ones to the end of a rotation.
fn states() -> Vec<ClusterKeys> {
    std::iter::successors(Some(ClusterKeys::default()), |keys| Some(keys.advanced())).take(6).collect()
}

/// A cluster whose hosts completed all of these states.
async fn completed(masters: usize, states: &[ClusterKeys]) -> World {
    let world = World::of(MASTERS[..masters].iter().chain([&WORKER]).map(|at| host(at).bare()));
    for keys in states {
        create(&world, &intent(masters, *keys)).await.unwrap();
    }
    world
}

/// The step from one state to the next is killed after every effect.
async fn crash_between(masters: usize, before: &[ClusterKeys], keys: ClusterKeys) {
    let fresh = async || completed(masters, before).await;
    let next = intent(masters, keys);
    crash_anywhere(fresh, async |world| create(world, &next).await.map(drop)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_phase_of_a_rotation_with_a_crash_anywhere() {
    let states = states();
    for (index, keys) in states.iter().enumerate().skip(1) {
        crash_between(1, &states[..index], *keys).await;
    }
}

#[tokio::test(start_paused = true)]
async fn three_masters_sign_with_the_new_keys_with_a_crash_anywhere() {
    let states = states();
    assert_eq!(states[2].rotation(), Some(RotationPhase::Reissue));
    crash_between(3, &states[..2], states[2]).await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_rotation_changes_no_host() {
    let states = states();
    let world = completed(3, &states[..5]).await;
    assert_eq!(states[4].rotation(), Some(RotationPhase::Drop));
    let ended = create(&world, &intent(3, states[5])).await.unwrap();
    assert!(ended.plan.steps.is_empty(), "{:?}", ended.plan.steps[0].id);
    assert_eq!(world.harms(), Vec::<String>::new());
}
