//! Clusters out of a snapshot on a simulated world: each run is killed after every effect.

use kubeon_api::kubernetes_cluster::DeployMode;
use kubeon_plan::{HostSpec, Intent, PartInfo, SnapshotRestore};
use kubeon_testkit::{ClusterBuilder, HostLoss, World, address, cluster, crash_anywhere, crash_twice, host};

use crate::support::{create, destroy};

const HOSTS: [&str; 7] =
    ["172.30.0.11", "172.30.0.12", "172.30.0.13", "172.30.0.14", "172.30.0.15", "172.30.0.16", "172.30.0.17"];

fn spec(masters: &[&str], workers: &[&str]) -> ClusterBuilder {
    let spec = masters.iter().fold(cluster(), |spec, at| spec.master(at));
    workers.iter().fold(spec, |spec, at| spec.worker(at))
}

/// Three masters and a worker.
fn before() -> ClusterBuilder {
    spec(&HOSTS[..3], &HOSTS[3..4])
}

/// Two masters and a worker. One of them was a worker; three nodes of the cluster before have no host any more.
fn fewer() -> ClusterBuilder {
    spec(&HOSTS[3..5], &HOSTS[5..6])
}

fn in_containers(spec: ClusterBuilder) -> ClusterBuilder {
    spec.with(|spec| spec.settings.deploy_mode = DeployMode::Container)
}

fn with_external_etcd(spec: ClusterBuilder) -> ClusterBuilder {
    spec.with(|spec| spec.etcd_hosts = vec![HostSpec::at(address(HOSTS[6]))])
}

fn restored(spec: ClusterBuilder) -> Intent {
    let snapshot = PartInfo {
        digest: "d".repeat(64).parse().unwrap(),
        size: 1 << 10,
        unpacked_size: 1 << 20,
        version: "of etcd".to_owned(),
    };
    let restore = SnapshotRestore { attempt: "0a1b2c3d".to_owned(), snapshot };
    Intent { restore: Some(restore), ..spec.intent() }
}

/// Bare hosts, and a snapshot of the cluster that was on some of them.
async fn destroyed(spec: ClusterBuilder) -> World {
    let world = World::of(HOSTS.iter().map(|at| host(at).bare()));
    let intent = spec.intent();
    create(&world, &intent).await.unwrap();
    world.take_snapshot();
    destroy(&world, &intent).await.unwrap();
    world
}

/// Kills the restore after every effect; at its end, the nodes are those of the hosts.
async fn crash_restore(before: fn() -> ClusterBuilder, after: ClusterBuilder) {
    let intent = restored(after);
    let restore = async |world: &World| create(world, &intent).await.map(drop);
    crash_anywhere(|| destroyed(before()), restore).await.unwrap();
    let world = destroyed(before()).await;
    restore(&world).await.unwrap();
    let wanted: Vec<String> = intent.spec.nodes().map(|host| host.address.to_string()).collect();
    assert_eq!(nodes(&world), wanted);
}

/// The addresses of the nodes, in order.
fn nodes(world: &World) -> Vec<String> {
    let rendered = world.render();
    let nodes = rendered.lines().filter_map(|line| Some(line.split_once(" node ")?.1.split_once(' ')?.1));
    nodes.map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn a_cluster_returns_to_its_hosts_with_a_crash_anywhere() {
    crash_restore(before, before()).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_comes_back_on_other_hosts_without_its_old_nodes_with_a_crash_anywhere() {
    crash_restore(before, fewer()).await;
}

#[tokio::test(start_paused = true)]
async fn static_pods_come_back_on_other_hosts_with_a_crash_anywhere() {
    crash_restore(|| in_containers(before()), in_containers(fewer())).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_comes_back_with_etcd_on_a_host_of_its_own_with_a_crash_anywhere() {
    crash_restore(|| with_external_etcd(before()), with_external_etcd(fewer())).await;
}

#[tokio::test(start_paused = true)]
async fn a_restore_is_killed_twice() {
    let intent = restored(fewer());
    let restore = async |world: &World| create(world, &intent).await.map(drop);
    crash_twice(|| destroyed(before()), restore, 7, 100).await.unwrap();
}

/// The command ends with an error or without the host. When that is back, the same command completes the restore.
#[tokio::test(start_paused = true)]
async fn a_restore_is_completed_after_a_host_was_lost_anywhere() {
    let (world, intent) = (destroyed(before()).await, restored(fewer()));
    let undisturbed = world.copy();
    create(&undisturbed, &intent).await.unwrap();
    let effects = undisturbed.effects() - world.effects();
    for lost in &HOSTS[3..6] {
        for effect in (1..effects).step_by(9) {
            let world = world.copy();
            world.lose_after(effect, lost, HostLoss::Power);
            create(&world, &intent).await.ok();
            world.heal(lost);
            create(&world, &intent).await.unwrap_or_else(|why| panic!("{lost}, effect {effect}: {why}"));
            assert_eq!(world.harms(), Vec::<String>::new(), "{lost}, effect {effect}");
            let settled = create(&world, &fewer().intent()).await.unwrap();
            assert!(settled.plan.steps.is_empty(), "{lost}, effect {effect}: {:?}", settled.plan.steps[0]);
            assert_eq!(nodes(&world), nodes(&undisturbed), "{lost}, effect {effect}");
        }
    }
}

/// A killed restore must not go on as a creation: some members would have the data of the snapshot, and others none.
#[tokio::test(start_paused = true)]
async fn the_simulated_world_tells_members_with_other_data_apart() {
    let (world, restored) = (destroyed(before()).await, restored(before()));
    let begin = world.effects();
    let undisturbed = world.copy();
    create(&undisturbed, &restored).await.unwrap();
    let is_first = |line: &String| line.contains("make the data of a member out of the snapshot");
    let first = undisturbed.log().split_off(begin).iter().position(is_first).unwrap();
    world.die_after(first + 1);
    tokio::select! {
        biased;
        () = world.died() => {}
        done = create(&world, &restored) => { done.unwrap(); }
    }
    world.restart();
    create(&world, &before().intent()).await.ok();
    assert!(world.harms().iter().any(|harm| harm.contains("with other data than")), "{:?}", world.harms());
}
