//! Adding, removing and replacing masters on a simulated world: each run is killed after every effect.

use crate::support::{create, refusals};
use kubeon_plan::{HostSpec, Intent};
use kubeon_testkit::{World, address, cluster, crash_anywhere, host};

const HOSTS: [&str; 6] =
    ["172.30.0.11", "172.30.0.12", "172.30.0.13", "172.30.0.14", "172.30.0.15", "172.30.0.16"];

fn intent(masters: &[usize], workers: &[usize]) -> Intent {
    let spec = masters.iter().fold(cluster(), |spec, index| spec.master(HOSTS[*index]));
    workers.iter().fold(spec, |spec, index| spec.worker(HOSTS[*index])).intent()
}

/// The intent after which the masters `new` were added and the masters `old` were removed.
fn changed(masters: &[usize], workers: &[usize], new: &[usize], old: &[usize]) -> Intent {
    let at = |index: &usize| address(HOSTS[*index]);
    let leaving = |index: &usize| HostSpec {
        name: format!("h{}", at(index).ip().octets()[3]).parse().ok(),
        ..HostSpec::at(at(index))
    };
    Intent {
        joining_masters: new.iter().map(at).collect(),
        leaving_masters: old.iter().map(at).collect(),
        leaving: old.iter().map(leaving).collect(),
        ..intent(masters, workers)
    }
}

/// A cluster on some hosts; the others are bare.
async fn built(masters: &[usize], workers: &[usize]) -> World {
    let world = World::of(HOSTS.iter().map(|at| host(at).bare()));
    create(&world, &intent(masters, workers)).await.unwrap();
    world
}

async fn with_a_crash_anywhere(before: impl AsyncFn() -> World, desired: &Intent) {
    crash_anywhere(&before, async |world| create(world, desired).await.map(drop)).await.unwrap();
    let world = before().await;
    create(&world, desired).await.unwrap();
    // The command marks nothing as joining or leaving once it is complete.
    let settled = Intent { joining_masters: [].into(), ..desired.clone() };
    let again = create(&world, &settled).await.unwrap();
    assert!(again.plan.steps.is_empty(), "{:?}", again.plan.steps[0]);
}

#[tokio::test(start_paused = true)]
async fn masters_join_with_a_crash_anywhere() {
    let desired = changed(&[0, 2, 3], &[1], &[2, 3], &[]);
    with_a_crash_anywhere(async || built(&[0], &[1]).await, &desired).await;
}

#[tokio::test(start_paused = true)]
async fn a_master_leaves_with_a_crash_anywhere() {
    for (before, after, old) in [(&[0, 1, 2][..], &[1, 2][..], 0), (&[0, 1], &[0], 1)] {
        let desired = changed(after, &[3], &[], &[old]);
        with_a_crash_anywhere(async || built(before, &[3]).await, &desired).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_master_is_replaced_with_a_crash_anywhere() {
    let lost = async || {
        let world = built(&[0, 1, 2], &[3]).await;
        world.cut(HOSTS[0]);
        world
    };
    let mut desired = changed(&[4, 1, 2], &[3], &[4], &[0]);
    desired.lost_hosts.insert(address(HOSTS[0]));
    with_a_crash_anywhere(lost, &desired).await;
}

#[tokio::test(start_paused = true)]
async fn a_living_master_is_exchanged_with_a_crash_anywhere() {
    let desired = changed(&[4, 1, 2], &[3], &[4], &[0]);
    with_a_crash_anywhere(async || built(&[0, 1, 2], &[3]).await, &desired).await;
}

/// The same cluster with h11, whose name is known, at another address.
fn with_new_address(masters: &[usize]) -> Intent {
    let mut intent = intent(masters, &[3]);
    let mut spec = (*intent.spec).clone();
    let host = spec.masters.iter_mut().find(|host| host.address == address(HOSTS[0])).unwrap();
    *host = HostSpec { name: "h11".parse().ok(), ..HostSpec::at(address("172.30.0.21")) };
    intent.spec = kubeon_plan::validate(spec, &[intent.spec.version]).unwrap().0;
    intent.moved_hosts.insert(address("172.30.0.21"));
    intent
}

#[tokio::test(start_paused = true)]
async fn a_master_changes_its_address_with_a_crash_anywhere() {
    for masters in [&[0, 1, 2][..], &[0]] {
        let before = async || {
            let world = built(masters, &[3]).await;
            world.readdress(HOSTS[0], "172.30.0.21");
            world
        };
        with_a_crash_anywhere(before, &with_new_address(masters)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_cannot_change_without_a_quorum() {
    let world = built(&[0, 1, 2], &[3]).await;
    world.stop_unit(HOSTS[1], "etcd.service");
    world.readdress(HOSTS[0], "172.30.0.21");
    let refusals = refusals(&world, &with_new_address(&[0, 1, 2])).await;
    assert!(refusals[0].reason.contains("without it etcd has no quorum"), "{refusals:?}");
}

#[tokio::test(start_paused = true)]
async fn another_machine_at_the_new_address_is_refused() {
    let bare = HOSTS.iter().chain(&["172.30.0.21"]).map(|at| host(at).bare());
    let world = World::of(bare);
    create(&world, &intent(&[0, 1, 2], &[3])).await.unwrap();
    world.cut(HOSTS[0]);
    let found = refusals(&world, &with_new_address(&[0, 1, 2])).await;
    assert!(found[0].reason.starts_with("is another machine than h11"), "{found:?}");
    world.cut("172.30.0.21");
    let found = refusals(&world, &with_new_address(&[0, 1, 2])).await;
    assert!(found[0].reason.contains("must answer at its new address first"), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn an_empty_host_does_not_take_the_vote_of_a_master() {
    let world = built(&[0, 1, 2], &[3]).await;
    world.cut(HOSTS[0]);
    let mut desired = intent(&[4, 1, 2], &[3]);
    let mut spec = (*desired.spec).clone();
    spec.masters[0].name = "h11".parse().ok();
    desired.spec = kubeon_plan::validate(spec, &[desired.spec.version]).unwrap().0;
    let refusals = refusals(&world, &desired).await;
    assert!(refusals[0].reason.contains("its data is lost, or another host answers"), "{refusals:?}");
}

#[tokio::test(start_paused = true)]
async fn a_master_that_did_not_finish_joining_leaves_again() {
    let (more, less) = (changed(&[0, 4], &[3], &[4], &[]), changed(&[0], &[3], &[], &[4]));
    let joins = {
        let world = built(&[0], &[3]).await;
        let before = world.effects();
        create(&world, &more).await.unwrap();
        world.effects() - before
    };
    for died_after in (0..=joins).step_by(3) {
        let world = built(&[0], &[3]).await;
        world.die_after(died_after);
        tokio::select! {
            biased;
            () = world.died() => {}
            _ = create(&world, &more) => {}
        }
        world.restart();
        let done = create(&world, &less).await;
        assert!(done.is_ok(), "died after effect {died_after} of {joins}: {done:?}");
        assert_eq!(world.harms(), Vec::<String>::new(), "died after effect {died_after}");
        assert_eq!(world.render(), built(&[0], &[3]).await.render(), "died after effect {died_after}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_removal_without_a_quorum_is_refused() {
    let world = built(&[0, 1, 2], &[3]).await;
    world.cut(HOSTS[1]);
    let refusals = refusals(&world, &changed(&[1, 2], &[3], &[], &[0])).await;
    assert!(refusals[0].reason.contains("that is no quorum"), "{refusals:?}");
}
