//! Upgrades to the next minor version on a simulated world: each run is killed after every effect.

use kubeon_plan::{HostSpec, Intent, validate};
use kubeon_testkit::{ClusterBuilder, World, address, cluster, crash_anywhere, host};

use crate::support::{create, goes_back_after_a_kill_anywhere};

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
    goes_back_after_a_kill_anywhere(&built().await, &trial(), &at(OLD)).await;
}

/// The intent after which another host replaced the first master, with the given cluster.
fn replaced(spec: impl FnOnce(ClusterBuilder) -> Intent) -> Intent {
    let masters = ["172.30.0.15", HOSTS[1], HOSTS[2]].iter().fold(cluster(), |spec, at| spec.master(at));
    let lost = HostSpec { name: "h11".parse().ok(), ..HostSpec::at(address(HOSTS[0])) };
    Intent {
        joining_masters: [address("172.30.0.15")].into(),
        leaving_masters: [lost.address].into(),
        lost_hosts: [lost.address].into(),
        leaving: vec![lost],
        ..spec(masters.worker(HOSTS[3]))
    }
}

/// The intent with the stored names of all nodes.
fn named(intent: Intent) -> Intent {
    let mut spec = (*intent.spec).clone();
    for host in spec.masters.iter_mut().chain(&mut spec.workers) {
        host.name = format!("h{}", host.address.ip().octets()[3]).parse().ok();
    }
    let spec = validate(spec, &[intent.spec.version]).unwrap().0;
    Intent { spec, ..intent }
}

/// A cluster whose first master loses power after these effects of the change, or as soon as the other masters are not in the middle
/// of a restart; the command ends then, too.
async fn lost(before: World, change: &Intent, effects: usize) -> World {
    let mut left = effects;
    loop {
        before.die_after(left);
        tokio::select! {
            biased;
            () = before.died() => {}
            done = create(&before, change) => { done.unwrap(); }
        }
        let interrupted = before.interrupted();
        if !HOSTS[1..3].iter().any(|at| interrupted.contains(&address(at))) {
            break;
        }
        before.restart();
        left += 1;
    }
    before.cut(HOSTS[0]);
    before.restart();
    before
}

async fn with_a_spare() -> World {
    let spare = "172.30.0.15";
    let world = World::of(HOSTS.iter().chain([&spare]).map(|at| host(at).bare()));
    create(&world, &named(at(OLD))).await.unwrap();
    world
}

#[tokio::test(start_paused = true)]
async fn no_kubelet_changes_while_a_master_is_dead_and_its_return_completes_the_change() {
    let (trial, new) = (named(trial()), named(at(NEW)));
    for effects in [0, 20, 60, 100, 140] {
        let world = with_a_spare().await;
        create(&world, &trial).await.unwrap();
        let world = lost(world, &new, effects).await;
        let degraded = create(&world, &new).await.unwrap();
        assert_eq!(degraded.plan.unreachable.len(), 1, "effect {effects}");
        world.heal(HOSTS[0]);
        let done = create(&world, &new).await.unwrap();
        assert!(done.plan.unreachable.is_empty() && done.plan.waiting.is_empty(), "effect {effects}");
        assert_eq!(world.harms(), Vec::<String>::new(), "effect {effects}");
        let settled = create(&world, &new).await.unwrap();
        assert!(settled.plan.steps.is_empty(), "effect {effects}: {:?}", settled.plan.steps[0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_master_is_replaced_while_a_version_is_tried_and_after_it_was_taken() {
    let (trying, new) = (named(trial()), named(at(NEW)));
    let replaced_in_trial = named(replaced(|spec| spec.version(OLD).trying(NEW)));
    let replaced_after = named(replaced(|spec| spec.version(NEW).intent()));
    for effects in [0, 8, 16, 60, 120] {
        for (change, replacing) in [(&trying, &replaced_in_trial), (&new, &replaced_after)] {
            let world = with_a_spare().await;
            if *change == new {
                create(&world, &trying).await.unwrap();
            }
            let world = lost(world, change, effects).await;
            create(&world, change).await.unwrap();
            // What waited for the lost member follows when it is removed.
            create(&world, replacing).await.unwrap();
            create(&world, replacing).await.unwrap();
            let settled = Intent { joining_masters: [].into(), ..replacing.clone() };
            let again = create(&world, &settled).await.unwrap();
            assert!(again.plan.waiting.is_empty() && again.plan.steps.is_empty(), "effect {effects}");
            assert_eq!(world.harms(), Vec::<String>::new(), "effect {effects}");
        }
    }
}

/// A declaration with the old version and another master ends the trial and replaces the master that is lost.
#[tokio::test(start_paused = true)]
async fn a_trial_goes_back_while_a_dead_master_is_replaced() {
    let trying = named(trial());
    let back = named(replaced(|spec| spec.version(OLD).intent()));
    let back = Intent { lost_hosts: [].into(), skip_hosts: vec![address(HOSTS[0])], ..back };
    for effects in [0, 8, 16] {
        let world = lost(with_a_spare().await, &trying, effects).await;
        create(&world, &trying).await.unwrap();
        // What waited for the lost member follows when it is removed.
        create(&world, &back).await.unwrap();
        create(&world, &back).await.unwrap();
        let settled = Intent { joining_masters: [].into(), ..back.clone() };
        let again = create(&world, &settled).await.unwrap();
        assert!(again.plan.waiting.is_empty() && again.plan.steps.is_empty(), "effect {effects}");
        assert_eq!(world.harms(), Vec::<String>::new(), "effect {effects}");
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
