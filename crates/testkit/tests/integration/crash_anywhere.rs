//! The real planner and apply on a simulated world: each run is killed after every effect.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on must stop"
)]

use crate::support::{command, create, create_with_retries, destroy, refusals};
use kubeon_api::kubernetes_cluster::{LoadBalancer, NodeTaint};
use kubeon_plan::{Intent, Remedy, Snapshot};
use kubeon_testkit::{
    ClusterBuilder, Fault, World, cluster, crash_and_wait, crash_anywhere, crash_twice, host,
};
use kubeon_wire::{Category, StepFailure};

const MASTERS: [&str; 3] = ["172.30.0.11", "172.30.0.12", "172.30.0.13"];
const WORKERS: [&str; 2] = ["172.30.0.14", "172.30.0.15"];

fn spec(masters: usize, workers: usize) -> ClusterBuilder {
    let spec = MASTERS[..masters].iter().fold(cluster(), |spec, at| spec.master(at));
    WORKERS[..workers].iter().fold(spec, |spec, at| spec.worker(at))
}

fn intent(masters: usize, workers: usize) -> Intent {
    spec(masters, workers).intent()
}

fn bare(masters: usize, workers: usize) -> World {
    World::of(MASTERS[..masters].iter().chain(&WORKERS[..workers]).map(|at| host(at).bare()))
}

async fn built(masters: usize, workers: usize) -> World {
    let world = bare(masters, workers);
    create(&world, &intent(masters, workers)).await.unwrap();
    world
}

async fn create_with_crashes(masters: usize, workers: usize) -> usize {
    let intent = intent(masters, workers);
    let crashes =
        crash_anywhere(async || bare(masters, workers), async |world| create(world, &intent).await.map(drop));
    crashes.await.unwrap_or_else(|why| panic!("{why}")).effects
}

#[tokio::test(start_paused = true)]
async fn creates_one_master_with_a_crash_anywhere() {
    let effects = create_with_crashes(1, 0).await;
    assert!(effects > 100, "only {effects} effects: the run is too short for a crash test");
}

#[tokio::test(start_paused = true)]
async fn creates_one_master_and_two_workers_with_a_crash_anywhere() {
    create_with_crashes(1, 2).await;
}

#[tokio::test(start_paused = true)]
async fn creates_three_masters_and_two_workers_with_a_crash_anywhere() {
    create_with_crashes(3, 2).await;
}

#[tokio::test(start_paused = true)]
async fn creates_although_no_saved_generation_is_known_with_a_crash_anywhere() {
    let intent = intent(1, 1);
    let plan = |snapshot: &Snapshot| kubeon_plan::plan(&intent, snapshot);
    assert_eq!(intent.generation, 0);
    crash_anywhere(async || bare(1, 1), async |world| command(world, world.hosts(), plan, 1).await.map(drop))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn creates_although_two_runs_crash() {
    let intent = intent(3, 2);
    crash_twice(async || bare(3, 2), async |world| create(world, &intent).await.map(drop), 1, 60)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn creates_by_a_second_attempt_with_a_crash_anywhere() {
    let intent = intent(1, 1);
    let faulty = async || {
        let world = bare(1, 1);
        // A step is tried three times in each attempt, a check once.
        for (step, times) in [("join/haproxy@h14", 3), ("verify/api@h11", 1)] {
            let late = StepFailure { category: Category::Timeout, cause: "too late".to_owned(), log: vec![] };
            world.inject_faults(step, std::iter::repeat_n(Fault::Fail(late), times));
        }
        world
    };
    let first = create(&faulty().await, &intent).await.unwrap_err();
    assert!(first.contains("too late"), "one attempt is too few: {first}");
    // The faults remain if a run dies before the steps fail.
    crash_anywhere(faulty, async |world| create_with_retries(world, &intent).await.map(drop)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn creates_although_the_bootstrap_certificate_expires_after_the_crash() {
    for (masters, workers) in [(1, 1), (3, 1)] {
        let intent = intent(masters, workers);
        let run = async |world: &World| create(world, &intent).await.map(drop);
        crash_and_wait(async || bare(masters, workers), run, 2 * 3600).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn creates_on_hosts_without_nft_with_a_crash_anywhere() {
    let intent = intent(1, 1);
    let bare = async || World::of([host(MASTERS[0]), host(WORKERS[0]).lacking("nft")]);
    crash_anywhere(bare, async |world| create(world, &intent).await.map(drop)).await.unwrap();
    let world = bare().await;
    create(&world, &intent).await.unwrap();
    assert!(world.file(WORKERS[0], "/var/lib/kubeon/tools/nft").is_some());
    assert!(world.file(MASTERS[0], "/var/lib/kubeon/tools/nft").is_none());
}

#[tokio::test(start_paused = true)]
async fn creates_behind_a_load_balancer_with_a_crash_anywhere() {
    let balancer = LoadBalancer::External { address: "172.30.9.9".parse().unwrap(), port: 7443 };
    let intent = spec(3, 1).with(|spec| spec.settings.load_balancer = balancer).intent();
    crash_anywhere(async || bare(3, 1), async |world| create(world, &intent).await.map(drop)).await.unwrap();
    let world = bare(3, 1);
    world.block_load_balancer(WORKERS[0]);
    let why = create(&world, &intent).await.unwrap_err();
    assert!(why.contains("join/load-balancer@h14") && why.contains("172.30.9.9:7443"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn workers_change_to_a_load_balancer_and_back_with_a_crash_anywhere() {
    let balancer = LoadBalancer::External { address: "172.30.9.9".parse().unwrap(), port: 7443 };
    let behind = spec(3, 2).with(|spec| spec.settings.load_balancer = balancer).intent();
    let change = async |world: &World| create(world, &behind).await.map(drop);
    crash_anywhere(async || built(3, 2).await, change).await.unwrap();
    let changed = async || {
        let world = built(3, 2).await;
        create(&world, &behind).await.unwrap();
        assert!(!world.render().contains("haproxy.service"), "{}", world.render());
        world
    };
    crash_anywhere(changed, async |world| create(world, &intent(3, 2)).await.map(drop)).await.unwrap();
    let world = changed().await;
    create(&world, &intent(3, 2)).await.unwrap();
    assert_eq!(world.render(), built(3, 2).await.render(), "nothing of the change is left");
}

#[tokio::test(start_paused = true)]
async fn workers_change_to_the_service_of_the_api_servers_and_back_with_a_crash_anywhere() {
    let with = spec(3, 1).with(|spec| spec.settings.load_balancer = LoadBalancer::Updater).intent();
    crash_anywhere(async || bare(3, 1), async |world| create(world, &with).await.map(drop)).await.unwrap();
    let change = async |world: &World| create(world, &with).await.map(drop);
    crash_anywhere(async || built(3, 1).await, change).await.unwrap();
    let changed = async || {
        let world = built(3, 1).await;
        create(&world, &with).await.unwrap();
        assert!(!world.render().contains("haproxy.service"), "{}", world.render());
        world
    };
    crash_anywhere(changed, async |world| create(world, &intent(3, 1)).await.map(drop)).await.unwrap();
    let world = changed().await;
    create(&world, &intent(3, 1)).await.unwrap();
    assert_eq!(world.render(), built(3, 1).await.render(), "nothing of the change is left");
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_leads_elsewhere_changes_no_worker() {
    let balancer = LoadBalancer::External { address: "172.30.9.9".parse().unwrap(), port: 7443 };
    let behind = spec(3, 1).with(|spec| spec.settings.load_balancer = balancer).intent();
    let world = built(3, 1).await;
    world.block_load_balancer(MASTERS[0]);
    let effects = world.effects();
    let why = create(&world, &behind).await.unwrap_err();
    assert!(why.contains("control/load-balancer"), "{why}");
    let log = world.log().split_off(effects);
    let used = ["kubelet.service", "hosts block", "kube-proxy.conf", "flannel.conf"];
    let changes = |line: &String| line.starts_with("h14 ") && used.iter().any(|name| line.contains(name));
    assert!(!log.iter().any(changes), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn creates_without_a_worker_that_does_not_answer_with_a_crash_anywhere() {
    let one_down = async || {
        let world = bare(3, 2);
        world.cut(WORKERS[1]);
        world
    };
    let worker = WORKERS[1].parse().unwrap();
    let refusals = refusals(&one_down().await, &intent(3, 2)).await;
    let remedies: Vec<_> =
        refusals.iter().map(|refusal| (refusal.value.as_str(), refusal.remedy.as_ref())).collect();
    assert_eq!(remedies, [(WORKERS[1], Some(&Remedy::SkipHost(worker)))], "{refusals:?}");
    let without = Intent { skip_hosts: vec![worker], ..intent(3, 2) };
    crash_anywhere(one_down, async |world| create(world, &without).await.map(drop)).await.unwrap();
    let world = one_down().await;
    create(&world, &without).await.unwrap();
    assert!(!world.log().iter().any(|line| line.starts_with("h15 ")), "{:?}", world.log());
    world.heal(WORKERS[1]);
    create(&world, &intent(3, 2)).await.unwrap();
    assert_eq!(world.render(), built(3, 2).await.render(), "it joins once it answers");
}

#[tokio::test(start_paused = true)]
async fn adds_a_worker_with_a_crash_anywhere() {
    let one_short = async || {
        let world = bare(3, 2);
        create(&world, &intent(3, 1)).await.unwrap();
        world
    };
    let more = intent(3, 2);
    crash_anywhere(one_short, async |world| create(world, &more).await.map(drop)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn changes_the_version_with_a_crash_anywhere() {
    let newer = spec(3, 2).version("v1.36.4").intent();
    crash_anywhere(async || built(3, 2).await, async |world| create(world, &newer).await.map(drop))
        .await
        .unwrap();
}

/// The world finds it harmful if two nodes are interrupted at the same time.
#[tokio::test(start_paused = true)]
async fn changes_a_setting_of_every_kubelet_with_a_crash_anywhere() {
    let more_pods = spec(3, 2).with(|spec| spec.settings.max_pods = 100).intent();
    crash_anywhere(async || built(3, 2).await, async |world| create(world, &more_pods).await.map(drop))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn changes_settings_of_hosts_with_a_crash_anywhere() {
    let taint = serde_json::json!({"key": "dedicated", "effect": "NoSchedule"});
    let taint: NodeTaint = serde_json::from_value(taint).unwrap();
    let changed = spec(3, 2)
        .with(|spec| {
            spec.settings.kernel_parameters.insert("vm.max_map_count".to_owned(), "262144".to_owned());
            spec.settings.mtu = Some(1400);
            spec.workers[0].taints.insert(taint);
        })
        .intent();
    crash_anywhere(async || built(3, 2).await, async |world| create(world, &changed).await.map(drop))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_argument_that_does_not_exist_restarts_nothing() {
    let wrong = spec(3, 2)
        .with(|spec| drop(spec.settings.extra_args.kubelet.insert("no-such".to_owned(), "1".to_owned())))
        .intent();
    let world = built(3, 2).await;
    let effects = world.effects();
    let why = create(&world, &wrong).await.unwrap_err();
    assert!(why.contains("artifacts/arguments@"), "{why}");
    let log = world.log().split_off(effects);
    assert!(!log.iter().any(|line| line.contains("kubelet.service")), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_come_back_stops_the_nodes_after_it() {
    let more_pods = spec(3, 2).with(|spec| spec.settings.max_pods = 100).intent();
    let world = built(3, 2).await;
    let effects = world.effects();
    let late = StepFailure { category: Category::Timeout, cause: "no Lease".to_owned(), log: vec![] };
    world.inject_faults("verify/node@h12", [Fault::Fail(late)]);
    let why = create(&world, &more_pods).await.unwrap_err();
    assert!(why.contains("verify/node@h12: no Lease"), "{why}");
    let restarted = || {
        let log = world.log().split_off(effects);
        let restarts = log.into_iter().filter(|line| line.contains("restart kubelet"));
        restarts.map(|line| line[..3].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(restarted(), ["h11", "h12"]);
    create(&world, &more_pods).await.unwrap();
    assert_eq!(restarted(), ["h11", "h12", "h13", "h14", "h15"]);
}

#[tokio::test(start_paused = true)]
async fn changes_the_version_without_losing_etcd_or_the_api() {
    let newer = spec(3, 2).version("v1.36.4").intent();
    for seed in 0..40 {
        let world = built(3, 2).await;
        world.shuffle(seed);
        create(&world, &newer).await.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(world.harms(), Vec::<String>::new(), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn changes_the_version_while_no_member_reports_its_health() {
    let newer = spec(3, 2).version("v1.36.4").intent();
    let slow = async || {
        let world = built(3, 2).await;
        world.slow_etcd();
        world
    };
    crash_anywhere(slow, async |world| create(world, &newer).await.map(drop)).await.unwrap();
    for seed in 0..20 {
        let world = slow().await;
        world.shuffle(seed);
        create(&world, &newer).await.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(world.harms(), Vec::<String>::new(), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_down_is_repaired_before_other_members_change() {
    let newer = spec(3, 2).version("v1.36.4").intent();
    let one_down = async || {
        let world = built(3, 2).await;
        world.stop_unit(MASTERS[2], "etcd.service");
        world
    };
    crash_anywhere(one_down, async |world| create(world, &newer).await.map(drop)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn destroys_with_a_crash_anywhere() {
    let intent = intent(3, 2);
    crash_anywhere(async || built(3, 2).await, async |world| destroy(world, &intent).await.map(drop))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn destroys_without_a_dead_master_with_a_crash_anywhere() {
    let intent = Intent { skip_hosts: vec![MASTERS[1].parse().unwrap()], ..intent(3, 2) };
    let dead = async || {
        let world = built(3, 2).await;
        world.cut(MASTERS[1]);
        world
    };
    crash_anywhere(dead, async |world| destroy(world, &intent).await.map(drop)).await.unwrap();
    let world = dead().await;
    destroy(&world, &intent).await.unwrap();
    let left: Vec<_> =
        world.render().lines().filter(|line| !line.starts_with("h12 ")).map(str::to_owned).collect();
    assert_eq!(left.iter().filter(|line| !line.starts_with("uid-demo ")).count(), 0, "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn leaves_bare_hosts_behind() {
    let world = built(3, 2).await;
    assert_ne!(world.render(), bare(3, 2).render());
    destroy(&world, &intent(3, 2)).await.unwrap();
    assert_eq!(world.render(), bare(3, 2).render());
}

#[tokio::test(start_paused = true)]
async fn the_second_run_has_no_steps() {
    for (masters, workers) in [(1, 0), (1, 2), (3, 2)] {
        let world = built(masters, workers).await;
        let effects = world.effects();
        let again = create(&world, &intent(masters, workers)).await.unwrap();
        assert!(again.plan.steps.is_empty(), "{masters}+{workers}: {:?}", again.plan.steps[0].id);
        assert_eq!(world.effects(), effects);
    }
}

#[tokio::test(start_paused = true)]
async fn order_of_events_does_not_matter() {
    let expected = built(3, 2).await;
    for seed in 0..40 {
        let world = bare(3, 2);
        world.shuffle(seed);
        create(&world, &intent(3, 2)).await.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(world.harms(), Vec::<String>::new(), "seed {seed}");
        assert_eq!(world.render(), expected.render(), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn repairs_only_what_a_user_broke() {
    let world = built(3, 2).await;
    let complete = world.render();
    world.overwrite(WORKERS[0], "/var/lib/kubelet/config.yaml", "by hand");
    world.stop_unit(WORKERS[1], "kube-proxy.service");
    let effects = world.effects();
    create(&world, &intent(3, 2)).await.unwrap();
    assert_eq!(world.render(), complete);
    let mut repaired = world.log().split_off(effects);
    repaired.retain(|line| !line.contains(" claim, ") && !line.starts_with("command persist "));
    repaired.sort();
    // The running kubelet matches the repaired file, so it is not restarted.
    assert_eq!(repaired, ["h14 rewrite /var/lib/kubelet/config.yaml", "h15 start kube-proxy.service"]);
}

#[tokio::test(start_paused = true)]
async fn starts_a_stopped_control_plane() {
    let world = built(3, 2).await;
    let complete = world.render();
    for master in MASTERS {
        for unit in ["etcd.service", "kube-apiserver.service"] {
            world.stop_unit(master, unit);
        }
    }
    create(&world, &intent(3, 2)).await.unwrap();
    assert_eq!(world.render(), complete);
}

#[tokio::test(start_paused = true)]
async fn renews_certificates_with_a_crash_anywhere() {
    let intent = intent(3, 2);
    let aged = async || {
        let world = built(3, 2).await;
        world.pass(300 * 86_400);
        world
    };
    crash_anywhere(aged, async |world| create(world, &intent).await.map(drop)).await.unwrap();
}
