//! Clusters whose control plane is static pods, on a simulated world: each run is killed after every effect.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

use crate::support::{create, destroy};
use kubeon_api::ClusterKeys;
use kubeon_api::kubernetes_cluster::DeployMode;
use kubeon_plan::Intent;
use kubeon_testkit::{World, address, cluster, crash_anywhere, host};

const HOSTS: [&str; 4] = ["172.30.0.11", "172.30.0.12", "172.30.0.13", "172.30.0.14"];

fn intent(masters: &[usize], workers: &[usize]) -> Intent {
    let spec = masters.iter().fold(cluster(), |spec, index| spec.master(HOSTS[*index]));
    let spec = workers.iter().fold(spec, |spec, index| spec.worker(HOSTS[*index]));
    spec.with(|spec| spec.settings.deploy_mode = DeployMode::Container).intent()
}

fn bare() -> World {
    World::of(HOSTS.iter().map(|at| host(at).bare()))
}

async fn built(masters: &[usize], workers: &[usize]) -> World {
    let world = bare();
    create(&world, &intent(masters, workers)).await.unwrap();
    world
}

async fn with_a_crash_anywhere(before: impl AsyncFn() -> World, desired: &Intent) {
    crash_anywhere(&before, async |world| create(world, desired).await.map(drop)).await.unwrap();
    let world = before().await;
    create(&world, desired).await.unwrap();
    // The command marks nothing as joining once it is complete.
    let settled = Intent { joining_masters: [].into(), ..desired.clone() };
    let again = create(&world, &settled).await.unwrap();
    assert!(again.plan.steps.is_empty(), "{:?}", again.plan.steps[0]);
}

#[tokio::test(start_paused = true)]
async fn static_pods_start_with_a_crash_anywhere() {
    with_a_crash_anywhere(async || bare(), &intent(&[0], &[1])).await;
    with_a_crash_anywhere(async || bare(), &intent(&[0, 1, 2], &[3])).await;
}

#[tokio::test(start_paused = true)]
async fn masters_of_static_pods_join_with_a_crash_anywhere() {
    let joining_masters = [2, 3].map(|index| address(HOSTS[index])).into();
    let desired = Intent { joining_masters, ..intent(&[0, 2, 3], &[1]) };
    with_a_crash_anywhere(async || built(&[0], &[1]).await, &desired).await;
}

#[tokio::test(start_paused = true)]
async fn masters_of_static_pods_join_after_a_rotation() {
    let world = built(&[0], &[1]).await;
    let mut keys = ClusterKeys::default().advanced();
    while keys.rotation().is_some() {
        create(&world, &Intent { keys, ..intent(&[0], &[1]) }).await.unwrap();
        keys = keys.advanced();
    }
    let joining_masters = [2, 3].map(|index| address(HOSTS[index])).into();
    let desired = Intent { keys, joining_masters, ..intent(&[0, 2, 3], &[1]) };
    create(&world, &desired).await.unwrap();
    assert_eq!(world.harms(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn static_pods_end_with_their_cluster() {
    let world = built(&[0], &[1]).await;
    assert!(world.render().contains("haproxy.service"), "{}", world.render());
    destroy(&world, &intent(&[0], &[1])).await.unwrap();
    assert!(!world.render().contains("haproxy.service"), "{}", world.render());
}
