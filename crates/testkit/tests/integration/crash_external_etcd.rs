//! Members of etcd on hosts of their own join, leave and are replaced on a simulated world: each run is killed after every effect.

use kubeon_plan::{HostSpec, Intent};
use kubeon_testkit::{World, address, cluster, crash_anywhere, host};

use crate::support::{create, refusals};

/// A master, a worker, three hosts of etcd, and two bare hosts.
const HOSTS: [&str; 7] =
    ["172.30.0.11", "172.30.0.12", "172.30.0.13", "172.30.0.14", "172.30.0.15", "172.30.0.16", "172.30.0.17"];
const MEMBERS: [usize; 3] = [2, 3, 4];

/// The host with this index and the name that the state stores after the first command.
fn named(index: &usize) -> HostSpec {
    let address = address(HOSTS[*index]);
    HostSpec { name: format!("h{}", address.ip().octets()[3]).parse().ok(), ..HostSpec::at(address) }
}

/// The cluster with etcd on the hosts with these indexes.
fn intent(etcd: &[usize]) -> Intent {
    let hosts = etcd.iter().map(named).collect();
    cluster().master(HOSTS[0]).worker(HOSTS[1]).with(|spec| spec.etcd_hosts = hosts).intent()
}

/// The intent after which the members `new` were added and the members `old` were removed.
fn changed(etcd: &[usize], new: &[usize], old: &[usize]) -> Intent {
    let at = |index: &usize| address(HOSTS[*index]);
    Intent {
        joining_etcd_hosts: new.iter().map(at).collect(),
        leaving_etcd_hosts: old.iter().map(at).collect(),
        leaving: old.iter().map(named).collect(),
        ..intent(etcd)
    }
}

/// The created cluster; the other hosts are bare.
async fn built() -> World {
    let world = World::of(HOSTS.iter().map(|at| host(at).bare()));
    create(&world, &intent(&MEMBERS)).await.unwrap();
    world
}

/// The created cluster, whose last member lost its host for ever.
async fn with_a_lost_member() -> World {
    let world = built().await;
    world.cut(HOSTS[4]);
    world
}

async fn with_a_crash_anywhere(before: impl AsyncFn() -> World, desired: &Intent) {
    crash_anywhere(&before, async |world| create(world, desired).await.map(drop)).await.unwrap();
    let world = before().await;
    create(&world, desired).await.unwrap();
    // The command marks nothing as joining once it is complete.
    let settled = Intent { joining_etcd_hosts: [].into(), ..desired.clone() };
    let again = create(&world, &settled).await.unwrap();
    assert!(again.plan.steps.is_empty(), "{:?}", again.plan.steps[0]);
}

#[tokio::test(start_paused = true)]
async fn the_cluster_is_created_with_a_crash_anywhere() {
    let bare = async || World::of(HOSTS.iter().map(|at| host(at).bare()));
    with_a_crash_anywhere(bare, &intent(&MEMBERS)).await;
}

#[tokio::test(start_paused = true)]
async fn members_join_with_a_crash_anywhere() {
    with_a_crash_anywhere(built, &changed(&[2, 3, 4, 5, 6], &[5, 6], &[])).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_leaves_with_a_crash_anywhere() {
    with_a_crash_anywhere(built, &changed(&[2, 3], &[], &[4])).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_member_is_replaced_with_a_crash_anywhere() {
    let mut desired = changed(&[2, 3, 5], &[5], &[4]);
    desired.lost_hosts.insert(address(HOSTS[4]));
    with_a_crash_anywhere(with_a_lost_member, &desired).await;
}

#[tokio::test(start_paused = true)]
async fn a_living_member_is_exchanged_with_a_crash_anywhere() {
    with_a_crash_anywhere(built, &changed(&[2, 3, 5], &[5], &[4])).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_does_not_leave_while_another_is_lost() {
    let world = with_a_lost_member().await;
    let refusals = refusals(&world, &changed(&[3, 4], &[], &[2])).await;
    assert!(refusals[0].reason.contains("that is no quorum"), "{refusals:?}");
}
