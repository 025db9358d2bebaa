//! Clusters whose control plane is static pods, on a simulated world: each run is killed after every effect.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

use crate::support::{create, destroy, goes_back_after_a_kill_anywhere};
use kubeon_api::ClusterKeys;
use kubeon_api::kubernetes_cluster::{DeployMode, LoadBalancer};
use kubeon_plan::{HostSpec, Intent};
use kubeon_testkit::{ClusterBuilder, World, address, cluster, crash_anywhere, host};

const HOSTS: [&str; 5] = ["172.30.0.11", "172.30.0.12", "172.30.0.13", "172.30.0.14", "172.30.0.15"];
/// The masters and the worker of most tests.
const MASTERS: [usize; 3] = [0, 1, 2];
const WORKER: usize = 3;
const OLD: &str = "v1.36.3";
const NEW: &str = "v1.37.2";

fn spec(masters: &[usize], workers: &[usize]) -> ClusterBuilder {
    let spec = masters.iter().fold(cluster(), |spec, index| spec.master(HOSTS[*index]));
    let spec = workers.iter().fold(spec, |spec, index| spec.worker(HOSTS[*index]));
    spec.with(|spec| spec.settings.deploy_mode = DeployMode::Container)
}

fn intent(masters: &[usize], workers: &[usize]) -> Intent {
    spec(masters, workers).intent()
}

fn at(version: &str) -> Intent {
    spec(&MASTERS, &[WORKER]).version(version).intent()
}

/// The control plane of the old version tries the new one.
fn trial() -> Intent {
    spec(&MASTERS, &[WORKER]).version(OLD).trying(NEW)
}

/// The intent after which the masters `new` were added and the masters `old` were removed.
fn changed(masters: &[usize], new: &[usize], old: &[usize]) -> Intent {
    let at = |index: &usize| address(HOSTS[*index]);
    let leaving = |index: &usize| {
        let name = format!("h{}", at(index).ip().octets()[3]).parse().ok();
        HostSpec { name, ..HostSpec::at(at(index)) }
    };
    Intent {
        joining_masters: new.iter().map(at).collect(),
        leaving_masters: old.iter().map(at).collect(),
        leaving: old.iter().map(leaving).collect(),
        ..intent(masters, &[WORKER])
    }
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
async fn a_version_of_static_pods_is_tried_and_taken_with_a_crash_anywhere() {
    let before = async || built(&MASTERS, &[WORKER]).await;
    with_a_crash_anywhere(&before, &trial()).await;
    let tried = async || {
        let world = before().await;
        create(&world, &trial()).await.unwrap();
        world
    };
    with_a_crash_anywhere(tried, &at(NEW)).await;
}

#[tokio::test(start_paused = true)]
async fn a_trial_of_static_pods_goes_back_with_a_crash_anywhere() {
    let before = built(&MASTERS, &[WORKER]).await;
    goes_back_after_a_kill_anywhere(&before, &trial(), &at(OLD)).await;
    create(&before, &trial()).await.unwrap();
    with_a_crash_anywhere(async || before.copy(), &at(OLD)).await;
}

#[tokio::test(start_paused = true)]
async fn a_trial_of_static_pods_changes_only_the_control_plane() {
    let world = built(&MASTERS, &[WORKER]).await;
    let begun = world.effects();
    create(&world, &trial()).await.unwrap();
    let log = world.log().split_off(begun);
    let restarts: Vec<&String> = log.iter().filter(|line| line.contains(" restart ")).collect();
    assert_eq!(restarts.len(), 9, "three programs of three masters: {restarts:?}");
    let of_control_plane = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];
    let is_other = |line: &&&String| !of_control_plane.iter().any(|name| line.contains(name));
    assert_eq!(restarts.iter().find(is_other), None);
}

#[tokio::test(start_paused = true)]
async fn a_lost_master_of_static_pods_is_replaced_with_a_crash_anywhere() {
    let lost = async || {
        let world = built(&MASTERS, &[WORKER]).await;
        world.cut(HOSTS[0]);
        world
    };
    let mut desired = changed(&[4, 1, 2], &[4], &[0]);
    desired.lost_hosts.insert(address(HOSTS[0]));
    with_a_crash_anywhere(lost, &desired).await;
}

#[tokio::test(start_paused = true)]
async fn a_master_of_static_pods_leaves_with_a_crash_anywhere() {
    for (before, after, old) in [(&MASTERS[..], &[1, 2][..], 0), (&[0, 1], &[0], 1)] {
        with_a_crash_anywhere(async || built(before, &[WORKER]).await, &changed(after, &[], &[old])).await;
    }
}

#[tokio::test(start_paused = true)]
async fn workers_of_static_pods_change_their_load_balancer_and_back_with_a_crash_anywhere() {
    let external = LoadBalancer::External { address: "172.30.9.9".parse().unwrap(), port: 7443 };
    for balancer in [external, LoadBalancer::Updater] {
        let behind = spec(&MASTERS, &[WORKER]).with(|spec| spec.settings.load_balancer = balancer).intent();
        with_a_crash_anywhere(async || built(&MASTERS, &[WORKER]).await, &behind).await;
        let changed = async || {
            let world = built(&MASTERS, &[WORKER]).await;
            create(&world, &behind).await.unwrap();
            assert!(!world.render().contains("haproxy.service"), "{}", world.render());
            world
        };
        with_a_crash_anywhere(changed, &intent(&MASTERS, &[WORKER])).await;
    }
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
