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
