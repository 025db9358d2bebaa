//! Members of etcd on hosts of their own join, leave, are replaced and change with the version on a simulated world: each run is killed
//! after every effect.

use kubeon_plan::{HostSpec, Intent};
use kubeon_testkit::{ClusterBuilder, HostLoss, World, address, cluster, crash_anywhere, host};

use crate::support::{create, goes_back_after_a_kill_anywhere, refusals};

/// A master, a worker, three hosts of etcd, and two bare hosts.
const HOSTS: [&str; 7] =
    ["172.30.0.11", "172.30.0.12", "172.30.0.13", "172.30.0.14", "172.30.0.15", "172.30.0.16", "172.30.0.17"];
const MEMBERS: [usize; 3] = [2, 3, 4];
/// The masters of an upgrade.
const MASTERS: [usize; 3] = [0, 5, 6];
const WORKER: usize = 1;
const OLD: &str = "v1.36.3";
const NEW: &str = "v1.37.2";

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

/// Three masters, a worker and three hosts of etcd, with the names that the state stores after the first command.
fn three_masters() -> ClusterBuilder {
    cluster().with(|spec| {
        spec.masters = MASTERS.iter().map(named).collect();
        spec.workers = vec![named(&WORKER)];
        spec.etcd_hosts = MEMBERS.iter().map(named).collect();
    })
}

fn at(version: &str) -> Intent {
    three_masters().version(version).intent()
}

/// The control plane of the old version tries the new one.
fn trial() -> Intent {
    three_masters().version(OLD).trying(NEW)
}

/// The cluster of the old version, whose control plane tries the new one if `tries`.
async fn of_three_masters(tries: bool) -> World {
    let world = World::of(HOSTS.iter().map(|at| host(at).bare()));
    create(&world, &at(OLD)).await.unwrap();
    if tries {
        create(&world, &trial()).await.unwrap();
    }
    world
}

/// The restarts of a run on the world, one line each.
async fn restarts(world: &World, desired: &Intent) -> Vec<String> {
    let begun = world.effects();
    create(world, desired).await.unwrap();
    world.log().split_off(begun).into_iter().filter(|line| line.contains(" restart ")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_version_is_tried_and_taken_with_a_crash_anywhere() {
    with_a_crash_anywhere(async || of_three_masters(false).await, &trial()).await;
    with_a_crash_anywhere(async || of_three_masters(true).await, &at(NEW)).await;
}

#[tokio::test(start_paused = true)]
async fn a_trial_goes_back_with_a_crash_anywhere() {
    with_a_crash_anywhere(async || of_three_masters(true).await, &at(OLD)).await;
    goes_back_after_a_kill_anywhere(&of_three_masters(false).await, &trial(), &at(OLD)).await;
}

#[tokio::test(start_paused = true)]
async fn members_change_after_the_trial_and_before_the_api_servers_that_take_the_version() {
    let world = of_three_masters(false).await;
    let tried = restarts(&world, &trial()).await;
    assert!(!tried.iter().any(|line| line.contains("etcd.service")), "{tried:?}");
    let taken = restarts(&world, &at(NEW)).await;
    let of = |unit: &str| -> Vec<usize> {
        taken.iter().enumerate().filter(|(_, line)| line.ends_with(unit)).map(|(index, _)| index).collect()
    };
    let (members, api_servers) = (of("etcd.service"), of("kube-apiserver.service"));
    assert_eq!((members.len(), api_servers.len()), (3, 3), "{taken:?}");
    assert!(members.iter().max() < api_servers.iter().min(), "{taken:?}");
    assert_eq!(world.harms(), Vec::<String>::new());
}

/// The cluster with an argument of etcd, which every member needs a restart for.
fn with_an_argument() -> Intent {
    let argument = ("snapshot-count".to_owned(), "5000".to_owned());
    three_masters().with(|spec| spec.settings.extra_args.etcd.extend([argument])).intent()
}

#[tokio::test(start_paused = true)]
async fn members_restart_one_after_another_and_no_api_server_does_with_a_crash_anywhere() {
    with_a_crash_anywhere(async || of_three_masters(false).await, &with_an_argument()).await;
    let found = restarts(&of_three_masters(false).await, &with_an_argument()).await;
    assert_eq!(found, ["h13", "h14", "h15"].map(|host| format!("{host} restart etcd.service")));
}

/// The command goes on after the loss. The plan is older, and the members are asked.
#[tokio::test(start_paused = true)]
async fn a_host_of_etcd_that_is_lost_anywhere_in_a_change_of_all_members_costs_no_quorum() {
    let (before, complete) = (of_three_masters(false).await, of_three_masters(false).await);
    let begun = complete.effects();
    create(&complete, &with_an_argument()).await.unwrap();
    for loss in [HostLoss::Power, HostLoss::Network] {
        for lost in MEMBERS.map(|index| HOSTS[index]) {
            for effect in 1..=complete.effects() - begun {
                let world = before.copy();
                world.lose_after(effect, lost, loss);
                // It fails if a host is lost that has steps left.
                create(&world, &with_an_argument()).await.ok();
                let context = format!("{loss:?} of {lost}, effect {effect}");
                world.heal(lost);
                create(&world, &with_an_argument()).await.unwrap_or_else(|why| panic!("{context}: {why}"));
                assert_eq!(world.render(), complete.render(), "{context}");
                assert_eq!(world.harms(), Vec::<String>::new(), "{context}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_host_of_etcd_is_replaced_while_a_version_is_tried_and_after_it_was_taken() {
    const SPARE: &str = "172.30.0.18";
    let replaced = |version: &str, tries: bool| {
        let spec = three_masters().version(version).with(|spec| {
            spec.etcd_hosts[2] = HostSpec { name: "h18".parse().ok(), ..HostSpec::at(address(SPARE)) };
        });
        Intent {
            joining_etcd_hosts: [address(SPARE)].into(),
            leaving_etcd_hosts: [address(HOSTS[4])].into(),
            lost_hosts: [address(HOSTS[4])].into(),
            leaving: vec![named(&4)],
            ..if tries { spec.trying(NEW) } else { spec.intent() }
        }
    };
    for (change, replacing) in [(trial(), replaced(OLD, true)), (at(NEW), replaced(NEW, false))] {
        for loss in [HostLoss::Power, HostLoss::Network] {
            let world = World::of(HOSTS.iter().chain([&SPARE]).map(|at| host(at).bare()));
            create(&world, &at(OLD)).await.unwrap();
            create(&world, &trial()).await.unwrap();
            world.lose(HOSTS[4], loss);
            world.declare_lost(HOSTS[4]);
            let degraded = create(&world, &change).await.unwrap();
            assert_eq!(degraded.plan.unreachable.len(), 1);
            // What waited for the lost member follows when it is removed.
            create(&world, &replacing).await.unwrap();
            create(&world, &replacing).await.unwrap();
            let settled = Intent { joining_etcd_hosts: [].into(), ..replacing.clone() };
            let again = create(&world, &settled).await.unwrap();
            assert!(again.plan.waiting.is_empty() && again.plan.steps.is_empty(), "{loss:?}");
            assert_eq!(world.harms(), Vec::<String>::new(), "{loss:?}");
        }
    }
}
