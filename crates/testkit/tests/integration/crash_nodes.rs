//! Nodes that change to an older version than their control plane and back, on a simulated world: each run is killed after every
//! effect.

use kubeon_api::kubernetes_cluster::DeployMode;
use kubeon_plan::Intent;
use kubeon_testkit::{ClusterBuilder, World, cluster, crash_anywhere, host, with_nodes_at};

use crate::support::{create, goes_back_after_a_kill_anywhere};

const OLDER: &str = "v1.35.7";
const OLD: &str = "v1.36.3";
const NEW: &str = "v1.37.2";
const HOSTS: [&str; 4] = ["172.30.0.11", "172.30.0.12", "172.30.0.13", "172.30.0.14"];

/// Three masters and a worker, with the names that the state stores after the first command.
fn spec() -> ClusterBuilder {
    HOSTS[..3].iter().fold(cluster(), |spec, at| spec.master(at)).worker(HOSTS[3]).with(|spec| {
        for host in spec.masters.iter_mut().chain(&mut spec.workers) {
            host.name = format!("h{}", host.address.ip().octets()[3]).parse().ok();
        }
    })
}

fn at(version: &str) -> Intent {
    spec().version(version).intent()
}

/// The control plane has the version, the nodes have an older one.
fn behind(version: &str, nodes: &str) -> Intent {
    spec().version(version).with_nodes_at(nodes)
}

async fn after(intents: &[Intent]) -> World {
    let world = World::of(HOSTS.iter().map(|at| host(at).bare()));
    for intent in intents {
        create(&world, intent).await.unwrap();
    }
    world
}

async fn with_a_crash_anywhere(before: &[Intent], desired: &Intent) {
    crash_anywhere(async || after(before).await, async |world| create(world, desired).await.map(drop))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn nodes_go_back_with_a_crash_anywhere() {
    with_a_crash_anywhere(&[at(NEW)], &behind(NEW, OLD)).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_come_forward_with_a_crash_anywhere() {
    with_a_crash_anywhere(&[at(NEW), behind(NEW, OLD)], &at(NEW)).await;
}

#[tokio::test(start_paused = true)]
async fn a_version_is_tried_above_older_nodes_with_a_crash_anywhere() {
    let tried = with_nodes_at(spec().version(OLD).trying(NEW), OLDER);
    let before = [at(OLD), behind(OLD, OLDER)];
    with_a_crash_anywhere(&before, &tried).await;
    with_a_crash_anywhere(&[&before[..], &[tried]].concat(), &at(NEW)).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_were_interrupted_anywhere_on_their_way_back_come_forward() {
    goes_back_after_a_kill_anywhere(&after(&[at(NEW)]).await, &behind(NEW, OLD), &at(NEW)).await;
}

#[tokio::test(start_paused = true)]
async fn only_programs_of_nodes_restart() {
    let world = after(&[at(NEW)]).await;
    let before = world.log().len();
    create(&world, &behind(NEW, OLD)).await.unwrap();
    let restarts: Vec<String> =
        world.log().split_off(before).into_iter().filter(|line| line.contains("restart")).collect();
    let of_masters = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];
    assert!(!restarts.iter().any(|line| of_masters.iter().any(|name| line.contains(name))), "{restarts:?}");
    let kubelets = restarts.iter().filter(|line| line.contains("kubelet.service")).count();
    assert_eq!(kubelets, 4, "{restarts:?}");
}

#[tokio::test(start_paused = true)]
async fn nodes_go_back_and_a_dead_master_follows_when_it_returns() {
    let world = after(&[at(NEW)]).await;
    world.cut(HOSTS[0]);
    let done = create(&world, &behind(NEW, OLD)).await.unwrap();
    assert!(done.plan.waiting.is_empty() && done.plan.unreachable.len() == 1, "{:?}", done.plan.waiting);
    world.heal(HOSTS[0]);
    create(&world, &behind(NEW, OLD)).await.unwrap();
    assert_eq!(world.harms(), Vec::<String>::new());
    assert!(create(&world, &behind(NEW, OLD)).await.unwrap().plan.steps.is_empty());
}

#[tokio::test(start_paused = true)]
async fn nodes_of_static_pods_go_back_with_a_crash_anywhere() {
    let pods = || spec().version(NEW).with(|spec| spec.settings.deploy_mode = DeployMode::Container);
    with_a_crash_anywhere(&[pods().intent()], &pods().with_nodes_at(OLD)).await;
}
