//! Operating a cluster while a master is dead or dies: each run is killed after every effect. The simulated world counts a
//! harm when the restart of a member costs the quorum.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on must stop"
)]

use crate::support::{create, refusals};
use kubeon_api::HostAddress;
use kubeon_plan::{HostSpec, Intent};
use kubeon_testkit::{ClusterBuilder, HostLoss, World, cluster, crash_anywhere, host};

const MASTERS: [&str; 3] = ["172.30.0.11", "172.30.0.12", "172.30.0.13"];
const WORKERS: [&str; 2] = ["172.30.0.14", "172.30.0.15"];

/// The cluster, with the names of all nodes, as they are stored after its creation.
fn spec(workers: usize) -> ClusterBuilder {
    let spec = MASTERS.iter().fold(cluster(), |spec, at| spec.master(at));
    let spec = WORKERS[..workers].iter().fold(spec, |spec, at| spec.worker(at));
    spec.with(|spec| {
        for host in spec.masters.iter_mut().chain(&mut spec.workers) {
            host.name = format!("h{}", host.address.ip().octets()[3]).parse().ok();
        }
    })
}

fn intent(workers: usize) -> Intent {
    spec(workers).intent()
}

/// A cluster with this number of workers, and bare hosts for the others.
async fn built(workers: usize) -> World {
    let world = World::of(MASTERS.iter().chain(&WORKERS).map(|at| host(at)));
    create(&world, &intent(workers)).await.unwrap();
    world
}

/// The same, then a master loses power.
async fn without(dead: &str, workers: usize) -> World {
    let world = built(workers).await;
    world.cut(dead);
    world
}

/// The intent that removes the second worker.
fn one_leaves() -> Intent {
    let name = Some("h15".parse().unwrap());
    let leaving = HostSpec { name, ..HostSpec::at(WORKERS[1].parse().unwrap()) };
    Intent { leaving: vec![leaving], ..intent(1) }
}

/// Runs the change with a crash anywhere, once without the first and once without the second master. When the
/// master returns, one more run makes the cluster equal to one that was never degraded.
async fn changes_without_a_master(before: usize, change: &Intent) {
    let complete = built(before).await;
    create(&complete, change).await.unwrap();
    for dead in &MASTERS[..2] {
        let fresh = async || without(dead, before).await;
        crash_anywhere(fresh, async |world| create(world, change).await.map(drop))
            .await
            .unwrap_or_else(|why| panic!("without {dead}: {why}"));
        let world = fresh().await;
        let begun = world.effects();
        let done = create(&world, change).await.unwrap();
        assert_eq!(done.plan.unreachable.len(), 1);
        let name = format!("h{} ", dead.rsplit('.').next().unwrap());
        assert!(!world.log()[begun..].iter().any(|line| line.starts_with(&name)), "{dead} is dead");
        let again = create(&world, change).await.unwrap();
        assert!(again.plan.steps.is_empty(), "without {dead}: {:?}", again.plan.steps[0].id);
        world.heal(dead);
        create(&world, change).await.unwrap();
        assert_eq!(world.render(), complete.render(), "{dead} returned");
        assert_eq!(world.harms(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_added_without_a_master_with_a_crash_anywhere() {
    changes_without_a_master(1, &intent(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_removed_without_a_master_with_a_crash_anywhere() {
    changes_without_a_master(2, &one_leaves()).await;
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_a_master_plans_no_step() {
    for dead in MASTERS {
        let world = without(dead, 1).await;
        let again = create(&world, &intent(1)).await.unwrap();
        assert!(again.plan.steps.is_empty(), "without {dead}: {:?}", again.plan.steps[0].id);
        assert!(again.plan.waiting.is_empty());
        assert_eq!(again.plan.unreachable[0].address, dead.parse().unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_does_not_answer_delays_no_other_host() {
    let world = built(2).await;
    world.cut(WORKERS[1]);
    world.stop_unit(WORKERS[0], "kube-proxy.service");
    let done = create(&world, &intent(2)).await.unwrap();
    let steps: Vec<String> = done.plan.steps.iter().map(|step| step.id.to_string()).collect();
    assert_eq!(steps, ["network/kube-proxy@h14", "verify/resolve@h14"]);
    assert_eq!(done.plan.unreachable[0].address, WORKERS[1].parse().unwrap());
}

#[tokio::test(start_paused = true)]
async fn drift_is_repaired_without_a_master_with_a_crash_anywhere() {
    for dead in &MASTERS[..2] {
        let broken = async || {
            let world = without(dead, 1).await;
            world.overwrite(MASTERS[2], "/var/lib/kubelet/config.yaml", "by hand");
            world.stop_unit(MASTERS[2], "kube-scheduler.service");
            world.stop_unit(WORKERS[0], "kube-proxy.service");
            world
        };
        crash_anywhere(broken, async |world| create(world, &intent(1)).await.map(drop)).await.unwrap();
        let world = broken().await;
        create(&world, &intent(1)).await.unwrap();
        assert_eq!(world.render(), without(dead, 1).await.render());
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_was_stopped_restores_the_quorum_without_a_master() {
    for dead in &MASTERS[..2] {
        let lost = async || {
            let world = without(dead, 1).await;
            world.stop_unit(MASTERS[2], "etcd.service");
            world
        };
        crash_anywhere(lost, async |world| create(world, &intent(1)).await.map(drop)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn no_member_restarts_while_a_master_is_dead_with_a_crash_anywhere() {
    let newer = spec(1).version("v1.36.4").intent();
    let complete = built(1).await;
    create(&complete, &newer).await.unwrap();
    for dead in &MASTERS[..2] {
        let fresh = async || without(dead, 1).await;
        crash_anywhere(fresh, async |world| create(world, &newer).await.map(drop)).await.unwrap();
        let world = fresh().await;
        let begun = world.effects();
        let done = create(&world, &newer).await.unwrap();
        assert!(!world.log()[begun..].iter().any(|line| line.contains("etcd.service")));
        let waiting = done.plan.waiting.iter().filter(|step| step.id.what() == "member").count();
        assert_eq!(waiting, 2, "both other members wait");
        assert_eq!(done.plan.waiting[0].hosts, [dead.parse().unwrap()]);
        world.heal(dead);
        create(&world, &newer).await.unwrap();
        assert_eq!(world.render(), complete.render(), "{dead} returned");
        assert_eq!(world.harms(), Vec::<String>::new());
    }
}

/// The command goes on after the loss. The plan is older, and the members are asked.
#[tokio::test(start_paused = true)]
async fn a_master_that_is_lost_anywhere_in_a_change_of_all_members_costs_no_quorum() {
    let newer = spec(1).version("v1.36.4").intent();
    let (before, complete) = (built(1).await, built(1).await);
    let begun = complete.effects();
    create(&complete, &newer).await.unwrap();
    for loss in [HostLoss::Power, HostLoss::Network] {
        let mut asked = 0;
        for lost in MASTERS {
            for effect in 1..=complete.effects() - begun {
                let world = before.copy();
                world.lose_after(effect, lost, loss);
                let done = create(&world, &newer).await;
                asked += usize::from(done.err().is_some_and(|why| why.contains("is not restarted")));
                let context = format!("{loss:?} of {lost}, effect {effect}");
                world.heal(lost);
                create(&world, &newer).await.unwrap_or_else(|why| panic!("{context}: {why}"));
                assert_eq!(world.render(), complete.render(), "{context}");
                assert_eq!(world.harms(), Vec::<String>::new(), "{context}");
            }
        }
        assert!(asked > 0, "a member waited for one that was lost in the run: {loss:?}");
    }
}

/// The programs of a master run, but nobody reaches it: no other member restarts, and its own one goes on.
#[tokio::test(start_paused = true)]
async fn no_member_restarts_while_a_master_is_isolated_with_a_crash_anywhere() {
    let newer = spec(1).version("v1.36.4").intent();
    let complete = built(1).await;
    create(&complete, &newer).await.unwrap();
    let isolated = async || {
        let world = built(1).await;
        world.isolate(MASTERS[0]);
        world
    };
    crash_anywhere(isolated, async |world| create(world, &newer).await.map(drop)).await.unwrap();
    let world = isolated().await;
    let begun = world.effects();
    let done = create(&world, &newer).await.unwrap();
    let log = world.log().split_off(begun);
    assert!(!log.iter().any(|line| line.contains("etcd.service") || line.starts_with("h11 ")), "{log:?}");
    assert_eq!(done.plan.waiting.iter().filter(|step| step.id.what() == "member").count(), 2);
    world.heal(MASTERS[0]);
    create(&world, &newer).await.unwrap();
    assert_eq!(world.render(), complete.render());
    assert_eq!(world.harms(), Vec::<String>::new());
}

/// The user declares that a master is lost, but it only lost its network, and comes back after another one replaced it.
#[tokio::test(start_paused = true)]
async fn an_isolated_master_that_was_replaced_comes_back_without_harm() {
    let world = built(1).await;
    world.isolate(MASTERS[0]);
    world.declare_lost(MASTERS[0]);
    let lost = HostSpec { name: "h11".parse().ok(), ..HostSpec::at(MASTERS[0].parse().unwrap()) };
    let spec = [WORKERS[1], MASTERS[1], MASTERS[2]].iter().fold(cluster(), |spec, at| spec.master(at));
    let replaced = Intent {
        joining_masters: [WORKERS[1].parse().unwrap()].into(),
        leaving_masters: [lost.address].into(),
        lost_hosts: [lost.address].into(),
        leaving: vec![lost],
        ..spec.worker(WORKERS[0]).intent()
    };
    create(&world, &replaced).await.unwrap();
    world.heal(MASTERS[0]);
    let settled = Intent {
        joining_masters: [].into(),
        leaving_masters: [].into(),
        lost_hosts: [].into(),
        leaving: Vec::new(),
        ..replaced
    };
    let again = create(&world, &settled).await.unwrap();
    assert!(again.plan.steps.is_empty(), "{:?}", again.plan.steps[0].id);
    assert_eq!(world.harms(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_order_of_events_does_not_matter_without_a_master() {
    let newer = spec(2).version("v1.36.4").intent();
    for seed in 0..20 {
        let world = without(MASTERS[seed % 2], 1).await;
        world.shuffle(u64::try_from(seed).unwrap());
        create(&world, &newer).await.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(world.harms(), Vec::<String>::new(), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn members_restart_while_a_master_only_refuses_logins() {
    let newer = spec(1).version("v1.36.4").intent();
    let world = built(1).await;
    world.refuse_logins(MASTERS[0]);
    let done = create(&world, &newer).await.unwrap();
    assert!(done.plan.waiting.is_empty(), "its member serves: {:?}", done.plan.waiting);
    assert!(done.plan.steps.iter().any(|step| step.id.to_string() == "etcd/member@h12"));
    assert_eq!(world.harms(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_change_without_a_quorum_is_refused_with_the_reason() {
    let world = built(1).await;
    world.cut(MASTERS[0]);
    world.cut(MASTERS[1]);
    let refusals = refusals(&world, &intent(2)).await;
    let hosts: Vec<_> = refusals.iter().map(|refusal| refusal.value.as_str()).collect();
    assert_eq!(hosts, &MASTERS[..2]);
    assert!(refusals[0].reason.contains("no quorum without it (1 of 3 members can serve)"), "{refusals:?}");
}

/// A cluster with 300 nodes of which the change concerns one: the other workers are not contacted. They exist only
/// in the specification.
#[tokio::test(start_paused = true)]
async fn adding_a_worker_to_300_nodes_contacts_only_the_masters_and_the_new_host() {
    let at = |index: usize| format!("172.30.{}.{}", 1 + index / 200, 1 + index % 200);
    let named = |index: usize| HostSpec {
        name: Some(format!("w{index}").parse().unwrap()),
        ..HostSpec::at(at(index).parse().unwrap())
    };
    let workers: Vec<String> = (0..298).map(at).collect();
    let hosts = MASTERS.iter().map(|at| host(at));
    let bare = workers.iter().enumerate().map(|(index, at)| host(at).named(&format!("w{index}")));
    let world = World::of(hosts.chain(bare));
    create(&world, &intent(0)).await.unwrap();
    assert_eq!(world.take_contacted().len(), MASTERS.len());
    let mut more = spec(0).with(|spec| spec.workers = (0..298).map(named).collect()).intent();
    let new: HostAddress = workers[297].parse().unwrap();
    more.limit_to(&[new].into());
    let done = create(&world, &more).await.unwrap();
    let mut wanted: Vec<HostAddress> = MASTERS.map(|at| at.parse().unwrap()).to_vec();
    wanted.push(new);
    assert_eq!(world.take_contacted(), wanted);
    assert!(done.plan.steps.iter().any(|step| step.id.to_string() == "join/ready-w297"));
}
