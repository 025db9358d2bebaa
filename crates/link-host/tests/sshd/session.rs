//! Sessions with a node program on a real sshd.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::support::{CollectedOutput, Sshd, host, sh};
use futures::future::join_all;
use kubeon_api::HostAddress;
use kubeon_link_host::{Command, Limits, SshHosts};
use kubeon_ports::{ActHost, HostSession, Report};
use kubeon_wire::{Category, Event, Fence, HostStep, Op, StepFailure};

fn fence(generation: u64) -> Fence {
    Fence {
        cluster: "demo".parse().unwrap(),
        uid: "u".into(),
        generation,
        version: "v1.36.3".parse().unwrap(),
        role: kubeon_api::HostRole::Master,
    }
}

fn step(id: &str) -> HostStep {
    let op = Op::Await { checks: vec![] };
    HostStep { id: id.into(), digest: String::new(), timeout_seconds: 60, journal: true, record_in: None, op }
}

fn part(id: &str, file: &Path) -> HostStep {
    let digest = sh(&format!("sha256sum < '{}' | cut -c 1-64", file.display())).parse().unwrap();
    let size = fs::metadata(file).unwrap().len();
    HostStep {
        op: Op::Part { name: "p".into(), digest, size, unpacked_size: size, source: None },
        ..step(id)
    }
}

async fn open(pool: &SshHosts) -> Arc<dyn HostSession> {
    pool.open(host(), &fence(1)).await.unwrap()
}

async fn run(session: &Arc<dyn HostSession>, id: &str) -> Result<Report, StepFailure> {
    session.run(step(id), None, &|_| {}).await
}

/// Runs a step; `started` is notified when the host has started it.
async fn run_and_notify(
    session: &Arc<dyn HostSession>,
    id: &str,
    started: &Notify,
) -> Result<Report, StepFailure> {
    let sink = |event| {
        if let Event::Started { .. } = event {
            started.notify_one();
        }
    };
    session.run(step(id), None, &sink).await
}

async fn on_host(pool: &SshHosts, line: &str) -> String {
    let collected = CollectedOutput::default();
    pool.exec(host(), Command::new(line), &|stream, bytes| collected.collect(stream, bytes)).await.unwrap();
    collected.out() + &collected.err()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_is_put_there_once_and_healed_when_damaged() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    // An older program, and files of an interrupted installation.
    let old_files = "mkdir -p /var/lib/kubeon/node; cd /var/lib/kubeon/node; touch kubeon-node-old .new-999999 .new-999999.gz";
    on_host(&pool, old_files).await;
    let start = Instant::now();
    open(&pool).await.close().await;
    eprintln!("open with upload: {:?}", start.elapsed());
    let list_files = "cd /var/lib/kubeon/node; ls -A; stat -c '%i %a' current/../kubeon-node-* 2>/dev/null || stat -c '%i %a' kubeon-node-*";
    let first = on_host(&pool, list_files).await;
    assert!(
        first.contains("current\nkubeon-node-") && !first.contains("old") && first.contains(" 755"),
        "{first}"
    );
    assert!(!first.contains(".new"), "{first}");
    let start = Instant::now();
    open(&pool).await.close().await;
    eprintln!("open without upload: {:?}", start.elapsed());
    assert_eq!(on_host(&pool, list_files).await, first, "the program is not sent again");
    on_host(&pool, "cd /var/lib/kubeon/node; printf x >> kubeon-node-*").await;
    let session = open(&pool).await;
    assert!(run(&session, "ok").await.is_ok());
    assert_eq!(sshd.logins(), 1);
}

async fn read_on(pool: &SshHosts, host: HostAddress, line: &str) -> String {
    let collected = CollectedOutput::default();
    pool.exec(host, Command::new(line), &|stream, bytes| collected.collect(stream, bytes)).await.unwrap();
    collected.out()
}

/// Opens a session with each host at once; returns how many got the program from another one.
async fn got_it_from_others(pool: &SshHosts, hosts: &[HostAddress]) -> usize {
    let fence = fence(1);
    for session in join_all(hosts.iter().map(|host| pool.open(*host, &fence))).await {
        session.unwrap().close().await;
    }
    let mut served = 0;
    for host in hosts {
        served +=
            read_on(pool, *host, "cat /var/lib/kubeon/node/served 2>/dev/null; true").await.lines().count();
        let files = read_on(pool, *host, "ls -A /var/lib/kubeon/node").await;
        assert!(!files.contains(".gz") && !files.contains(".new"), "{files}");
    }
    served
}

#[tokio::test(flavor = "multi_thread")]
async fn most_of_many_hosts_get_the_program_from_others() {
    let (_sshds, hosts, pool) = Sshd::many(5);
    pool.spread_programs(hosts.iter().copied().zip((1..=5).map(Sshd::address)).collect());
    assert_eq!(got_it_from_others(&pool, &hosts).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_get_the_program_from_this_machine_when_none_can_serve_it() {
    let (_sshds, hosts, pool) = Sshd::many(4);
    // No host has these addresses.
    let elsewhere = |number| std::net::Ipv4Addr::new(203, 0, 113, number);
    pool.spread_programs(hosts.iter().copied().zip((1..=4).map(elsewhere)).collect());
    assert_eq!(got_it_from_others(&pool, &hosts).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_fence_is_reported_with_the_message_of_the_host() {
    let sshd = Sshd::start();
    let failure = sshd.hosts().open(host(), &fence(0)).await.err().unwrap();
    assert_eq!(failure.category, Category::Fenced);
    assert_eq!(failure.to_string(), "generation 7 is newer");
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_run_in_parallel_and_receive_only_their_events() {
    let sshd = Sshd::start();
    let session = open(&sshd.hosts()).await;
    let start = Instant::now();
    let results = join_all((0..20).map(|n| {
        let session = Arc::clone(&session);
        async move {
            let (id, events) = (format!("slow-{n}"), Mutex::new(Vec::new()));
            let report = session.run(step(&id), None, &|event| events.lock().push(event)).await.unwrap();
            assert_eq!(events.into_inner(), [Event::Started { id }]);
            report
        }
    }))
    .await;
    assert!(start.elapsed() < Duration::from_millis(5500), "{:?}", start.elapsed());
    assert!(results.iter().all(|report| *report == Report { changed: true, milliseconds: 7 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_notes_and_noise() {
    let sshd = Sshd::start();
    let session = open(&sshd.hosts()).await;
    let failure = run(&session, "fail").await.unwrap_err();
    assert_eq!((failure.category, failure.log), (Category::Exhausted, vec!["last line".to_owned()]));
    let events = Mutex::new(Vec::new());
    session.run(step("note"), None, &|event| events.lock().push(event)).await.unwrap();
    assert_eq!(events.lock()[1], Event::Note { id: "note".into(), text: "adapted".into() });
    assert!(run(&session, "noise").await.is_ok());
    assert!(run(&session, "ok").await.is_ok(), "the session continues");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_exits_fails_the_running_steps_with_its_output() {
    let sshd = Sshd::start();
    let session = open(&sshd.hosts()).await;
    let started = Notify::new();
    let (hang, die) = tokio::join!(run_and_notify(&session, "hang", &started), async {
        started.notified().await;
        run(&session, "die").await
    });
    for failure in [hang.unwrap_err(), die.unwrap_err(), run(&session, "ok").await.unwrap_err()] {
        assert_eq!(failure.category, Category::Unreachable);
        assert!(failure.to_string().contains("exit code 101"), "{failure}");
        assert_eq!(failure.log, ["a bug: index out of bounds"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_disconnects_fails_the_running_steps() {
    let mut sshd = Sshd::start();
    let session = open(&sshd.hosts()).await;
    let started = Notify::new();
    let (hang, ()) = tokio::join!(run_and_notify(&session, "hang", &started), async {
        started.notified().await;
        sshd.kill();
    });
    let failure = hang.unwrap_err();
    assert_eq!(failure.category, Category::Unreachable);
    assert!(failure.to_string().contains("broke"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_arrives_whole_fast_and_with_progress_while_other_steps_run() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    let session = open(&pool).await;
    let file = sshd.path("blob");
    let size = 512_u64 << 20;
    sh(&format!("head -c {size} /dev/urandom > '{}'", file.display()));
    let wanted = part("part", &file);
    let progress = Mutex::new(Vec::new());
    let sink = |event| {
        if let Event::Progress { done, total, .. } = event {
            progress.lock().push((done, total));
        }
    };
    let start = Instant::now();
    let (sent, after) = tokio::join!(session.run(wanted, Some(file.clone()), &sink), run(&session, "ok"));
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("part: 512 MiB in {seconds:.2} s, {:.0} MiB/s, SHA-256 on the host included", 512.0 / seconds);
    assert!(sent.unwrap().changed && after.is_ok());
    let progress = progress.into_inner();
    assert!(
        progress.is_sorted() && progress.len() > 3 && progress.last() == Some(&(size, size)),
        "{progress:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_whose_file_differs_is_not_sent() {
    let sshd = Sshd::start();
    let session = open(&sshd.hosts()).await;
    let file = sshd.path("blob");
    fs::write(&file, vec![1; 1000]).unwrap();
    let wanted = part("part", &file);
    fs::write(&file, vec![1; 999]).unwrap();
    let failure = session.run(wanted.clone(), Some(file.clone()), &|_| {}).await.unwrap_err();
    assert_eq!(failure.category, Category::Corrupt);
    let failure = session.run(wanted.clone(), None, &|_| {}).await.unwrap_err();
    assert!(failure.to_string().contains("without the bytes"), "{failure}");
    fs::write(&file, vec![2; 1000]).unwrap();
    let failure = session.run(wanted, Some(file), &|_| {}).await.unwrap_err();
    assert_eq!(failure.category, Category::Corrupt, "the host computed another digest");
    assert!(run(&session, "ok").await.is_ok(), "the session is still usable");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_dropped_in_the_middle_of_a_part_leaves_the_session_usable() {
    let sshd = Sshd::start();
    let session = open(&sshd.hosts()).await;
    let file = sshd.path("blob");
    sh(&format!("head -c {} /dev/zero > '{}'", 200 << 20, file.display()));
    let partly_sent = Notify::new();
    let sink = |event| {
        if let Event::Progress { .. } = event {
            partly_sent.notify_one();
        }
    };
    tokio::select! {
        biased;
        () = partly_sent.notified() => {}
        ended = session.run(part("part", &file), Some(file.clone()), &sink) => panic!("{ended:?}"),
    }
    assert!(run(&session, "ok").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_lets_the_host_finish() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    let session = open(&pool).await;
    let started = Notify::new();
    let (slow, ()) = tokio::join!(run_and_notify(&session, "slow", &started), async {
        started.notified().await;
        session.close().await;
    });
    assert!(slow.is_ok());
    assert_eq!(run(&session, "ok").await.unwrap_err().category, Category::Unreachable);
    assert_eq!(on_host(&pool, "pgrep -f 'kubeon-nod[e]'").await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_has_its_own_category() {
    let sshd = Sshd::start();
    let pool = sshd.hosts_with(sshd.login(), Limits::default());
    on_host(&pool, "mkdir -p /var/lib/kubeon && mount -t tmpfs -o size=64k none /var/lib/kubeon").await;
    let failure = pool.open(host(), &fence(1)).await.err().unwrap();
    assert_eq!(failure.category, Category::Exhausted, "{failure} {:?}", failure.log);
}
