//! Tests of the simulated world.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on must stop"
)]

use std::time::Duration;

use kubeon_plan::Observation;
use kubeon_ports::{ActHost, HostSession, ProbeHost, Report};
use kubeon_testkit::{HostLoss, World, address, host, plan_of, step};
use kubeon_wire::{ApiObject, Category, Check, Fence, HostStep, Op, ResultState, StepFailure};

const H1: &str = "10.0.0.1";
const H2: &str = "10.0.0.2";
const H3: &str = "10.0.0.3";

fn fence(generation: u64) -> Fence {
    let plan = plan_of([step("x", H1)]);
    Fence { generation, ..plan.hosts[&address(H1)].fence.clone() }
}

async fn open(world: &World, at: &str) -> std::sync::Arc<dyn HostSession> {
    world.ports().open(address(at), &fence(1)).await.unwrap()
}

async fn send(session: &dyn HostSession, id: &str, op: Op) -> Result<Report, StepFailure> {
    let step = HostStep {
        id: id.to_owned(),
        digest: "d".to_owned(),
        timeout_seconds: 5,
        journal: true,
        record_in: None,
        op,
    };
    session.run(step, Some("/blob".into()), &|_| {}).await
}

fn text(path: &str, text: &str) -> Op {
    let kubeon_plan::Step { op, .. } = step("f", H1).writes(path, text).into();
    op
}

/// The files that a member needs.
fn before_etcd() -> Op {
    let members = "ETCD_INITIAL_CLUSTER=h1=x,h2=x,h3=x\n";
    let files = step("f", H1).writes("/ca", "ca").writes("/etc/kubernetes/etcd-membership.env", members);
    let kubeon_plan::Step { op, .. } = files.into();
    op
}

fn etcd(name: &str) -> Op {
    let unit = format!("[Service]\nExecStart=/usr/bin/etcd --name={name}");
    let ready = Check::Https {
        address: std::net::Ipv4Addr::LOCALHOST,
        port: 2379,
        path: "/health".to_owned(),
        ca_file: "/ca".to_owned(),
        certificate_file: None,
        key_file: None,
    };
    Op::Service { name: "etcd.service".to_owned(), unit, watches: vec!["/ca".to_owned()], ready: vec![ready] }
}

fn three() -> World {
    World::of([host(H1), host(H2), host(H3)])
}

#[tokio::test(start_paused = true)]
async fn a_process_dies_right_after_the_effect_and_can_be_restarted() {
    let world = three();
    let session = open(&world, H1).await;
    world.die_after(2);
    let run = tokio::spawn(async move { send(&*session, "s", text("/a", "a")).await });
    world.died().await;
    assert_eq!(world.log(), ["h1 claim, generation 1", "h1 write /a", "h1 record s"]);
    let limit = Duration::from_secs(3600);
    assert!(tokio::time::timeout(limit, run).await.is_err(), "a call of a dead process does not return");
    world.restart();
    let facts = world.ports().facts(address(H1)).await.unwrap();
    assert_eq!(facts.journal[0].state, ResultState::UpToDate);
}

#[tokio::test(start_paused = true)]
async fn a_process_can_die_right_after_it_persisted_a_generation() {
    let world = three();
    let ports = world.ports();
    world.die_after(1);
    let persist = tokio::spawn(async move { ports.persist_generation(1).await });
    world.died().await;
    assert_eq!((world.persisted_generation(), world.log().len()), (1, 1));
    let limit = Duration::from_secs(3600);
    assert!(tokio::time::timeout(limit, persist).await.is_err(), "a call of a dead process does not return");
}

#[tokio::test(start_paused = true)]
async fn a_generation_that_reaches_a_host_before_it_is_persisted_is_a_harm() {
    let world = three();
    world.ports().persist_generation(1).await;
    open(&world, H1).await;
    assert_eq!(world.harms(), Vec::<String>::new());
    world.ports().open(address(H1), &fence(2)).await.unwrap();
    assert_eq!(world.harms(), ["generation 2 reaches a host before it is persisted"]);
}

#[tokio::test(start_paused = true)]
async fn counts_only_effects_that_change_the_world() {
    let world = three();
    let session = open(&world, H1).await;
    assert!(send(&*session, "s", text("/a", "a")).await.unwrap().changed);
    let effects = world.effects();
    assert!(!send(&*session, "s", text("/a", "a")).await.unwrap().changed);
    assert_eq!(world.effects(), effects);
}

#[tokio::test(start_paused = true)]
async fn the_journal_reports_a_changed_file() {
    let world = three();
    send(&*open(&world, H1).await, "s", text("/a", "a")).await.unwrap();
    world.overwrite(H1, "/a", "b");
    let facts = world.ports().facts(address(H1)).await.unwrap();
    assert_eq!(facts.journal[0].state, ResultState::Drifted("/a differs".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn refuses_older_writers_and_other_clusters() {
    let world = World::of([host(H1), host(H2).claimed_by("other")]);
    world.has_seen_generation(H1, 5);
    let ports = world.ports();
    assert_eq!(ports.open(address(H1), &fence(4)).await.err().unwrap().category, Category::Fenced);
    assert_eq!(ports.open(address(H2), &fence(9)).await.err().unwrap().category, Category::Fenced);
    assert!(ports.open(address(H1), &fence(5)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_newer_writer_fences_an_older_session() {
    let world = three();
    let old = open(&world, H1).await;
    world.ports().open(address(H1), &fence(2)).await.unwrap();
    assert_eq!(send(&*old, "s", text("/a", "a")).await.unwrap_err().category, Category::Fenced);
    assert_eq!(world.file(H1, "/a"), None);
}

#[tokio::test(start_paused = true)]
async fn an_etcd_member_is_healthy_only_with_a_quorum() {
    let world = three();
    let (one, two) = (open(&world, H1).await, open(&world, H2).await);
    send(&*one, "ca", before_etcd()).await.unwrap();
    send(&*two, "ca", before_etcd()).await.unwrap();
    let alone = send(&*one, "etcd", etcd("h1")).await.unwrap_err();
    assert_eq!(alone.category, Category::Timeout, "{alone}");
    let (first, second) = tokio::join!(send(&*one, "etcd", etcd("h1")), send(&*two, "etcd", etcd("h2")));
    assert!(first.is_ok() && second.is_ok());
    world.cut(H2);
    assert_eq!(send(&*one, "etcd", etcd("h1")).await.unwrap_err().category, Category::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_member_restarts_only_while_the_others_are_a_quorum() {
    let world = three();
    let sessions = [open(&world, H1).await, open(&world, H2).await, open(&world, H3).await];
    let [one, two, three] = &sessions;
    for session in &sessions {
        send(&**session, "ca", before_etcd()).await.unwrap();
    }
    let all = tokio::join!(
        send(&**one, "etcd", etcd("h1")),
        send(&**two, "etcd", etcd("h2")),
        send(&**three, "etcd", etcd("h3"))
    );
    assert!(all.0.is_ok() && all.1.is_ok() && all.2.is_ok());
    send(&**one, "ca", text("/ca", "new")).await.unwrap();
    world.lose_after(1, H2, HostLoss::Power);
    assert!(world.is_reachable(H2));
    send(&**three, "x", text("/x", "x")).await.unwrap();
    assert!(!world.is_reachable(H2), "it lost power after the first effect");
    let stop = Op::StopServices { units: vec!["x.service".to_owned()], before_member: true };
    for op in [stop, etcd("h1")] {
        let refused = send(&**one, "restart", op).await.unwrap_err();
        assert_eq!(refused.category, Category::Timeout);
        assert!(refused.cause.contains("without it 1 of 3 members would serve"), "{refused}");
    }
    assert_eq!(world.harms(), Vec::<String>::new());
    world.heal(H2);
    assert!(send(&**one, "etcd", etcd("h1")).await.unwrap().changed);
    assert_eq!(world.harms(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_isolated_member_runs_and_serves_nobody() {
    let world = three();
    let sessions = [open(&world, H1).await, open(&world, H2).await, open(&world, H3).await];
    let [one, two, three] = &sessions;
    for session in &sessions {
        send(&**session, "ca", before_etcd()).await.unwrap();
    }
    let all = tokio::join!(
        send(&**one, "etcd", etcd("h1")),
        send(&**two, "etcd", etcd("h2")),
        send(&**three, "etcd", etcd("h3"))
    );
    assert!(all.0.is_ok() && all.1.is_ok() && all.2.is_ok());
    world.isolate(H2);
    assert!(!world.is_reachable(H2) && world.ports().facts(address(H2)).await.is_err());
    assert!(send(&**two, "x", text("/x", "x")).await.is_err(), "its session is broken");
    let member_is = |state: &str| {
        let text = world.render();
        text.lines().any(|line| line.starts_with("h2 unit etcd.service ") && line.ends_with(state))
    };
    assert!(member_is(" running"), "{}", world.render());
    send(&**one, "ca", text("/ca", "new")).await.unwrap();
    let refused = send(&**one, "restart", etcd("h1")).await.unwrap_err();
    assert!(refused.cause.contains("without it 1 of 3 members would serve"), "{refused}");
    let remove = Op::RemoveMember { name: "h2".parse().unwrap(), address: address(H2).ip() };
    send(&**one, "remove", remove).await.unwrap();
    world.heal(H2);
    assert!(world.is_reachable(H2));
    assert!(member_is(" stopped"), "it learns that it was removed: {}", world.render());
    assert_eq!(world.harms(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn detects_a_second_etcd_cluster() {
    let world = three();
    let (one, two) = (open(&world, H1).await, open(&world, H2).await);
    for session in [&one, &two] {
        send(&**session, "ca", before_etcd()).await.unwrap();
    }
    let (first, second) = tokio::join!(send(&*one, "etcd", etcd("h1")), send(&*two, "etcd", etcd("h2")));
    assert!(first.is_ok() && second.is_ok() && world.harms().is_empty());
    send(&*two, "reset", Op::Reset { cluster: "demo".parse().unwrap() }).await.unwrap();
    let two = open(&world, H2).await;
    send(&*two, "ca", before_etcd()).await.unwrap();
    send(&*two, "etcd", etcd("h2")).await.unwrap();
    assert_eq!(
        world.harms(),
        ["h2 starts its etcd member again with its data lost while the cluster exists"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_is_restarted_only_when_a_watched_file_changed() {
    let world = three();
    let session = open(&world, H1).await;
    let unit = "[Service]\nExecStart=/usr/bin/x".to_owned();
    let service = || Op::Service {
        name: "x.service".to_owned(),
        unit: unit.clone(),
        watches: vec!["/c".to_owned()],
        ready: vec![],
    };
    send(&*session, "c", text("/c", "1")).await.unwrap();
    assert!(send(&*session, "x", service()).await.unwrap().changed);
    assert!(!send(&*session, "x", service()).await.unwrap().changed);
    send(&*session, "c", text("/c", "2")).await.unwrap();
    assert!(send(&*session, "x", service()).await.unwrap().changed);
    let log = world.log();
    assert!(log.contains(&"h1 restart x.service".to_owned()), "{log:?}");
    assert_eq!(
        log.iter().filter(|line| line.ends_with("start x.service")).count(),
        3,
        "started, restarted: {log:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_program_does_not_start_before_its_files_exist() {
    let world = three();
    let session = open(&world, H1).await;
    let service = |command: &str| Op::Service {
        name: "x.service".to_owned(),
        unit: format!("[Service]\nExecStart={command}"),
        watches: vec![],
        ready: vec![],
    };
    let absent = send(&*session, "x", service("/var/lib/kubeon/current/x/bin/x")).await.unwrap_err();
    assert!(absent.cause.contains("does not exist"), "{absent}");
    let unconfigured = send(&*session, "x", service("/usr/bin/x --config=/etc/x.yaml")).await.unwrap_err();
    assert!(unconfigured.cause.contains("/etc/x.yaml does not exist"), "{unconfigured}");
}

#[tokio::test(start_paused = true)]
async fn an_unresolved_secret_is_refused() {
    let world = three();
    let secret = step("f", H1).writes_secret("/k", kubeon_wire::SecretRef::ServiceAccountKey);
    let kubeon_plan::Step { op, .. } = secret.into();
    assert!(send(&*open(&world, H1).await, "k", op).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn objects_need_an_api_server() {
    let world = three();
    let object = ApiObject { path: "/api/v1/namespaces/x".to_owned(), body: serde_json::json!({}) };
    let refused =
        send(&*open(&world, H1).await, "o", Op::Objects { objects: vec![object] }).await.unwrap_err();
    assert!(refused.cause.contains("API server"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_host_without_power_does_not_answer() {
    let world = three();
    let session = open(&world, H1).await;
    world.cut(H1);
    assert_eq!(world.ports().facts(address(H1)).await.unwrap_err().category, Category::Unreachable);
    world.heal(H1);
    assert!(world.ports().facts(address(H1)).await.is_ok());
    let late = send(&*session, "s", text("/a", "a")).await.unwrap_err();
    assert_eq!(late.category, Category::Unreachable, "a power loss breaks the session");
}

#[test]
fn builders_describe_hosts() {
    let snapshot =
        kubeon_testkit::snapshot([host(H1).bare(), host(H2).claimed_by("other"), host(H3).unreachable()]);
    assert_eq!(snapshot.hosts[&address(H1)].fresh().unwrap().claim, None);
    assert_eq!(
        snapshot.hosts[&address(H2)].fresh().unwrap().claim.as_ref().unwrap().cluster.as_str(),
        "other"
    );
    assert!(
        matches!(&snapshot.hosts[&address(H3)], Observation::Unknown { why, .. } if why.contains("no route"))
    );
}
