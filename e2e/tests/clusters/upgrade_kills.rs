//! The program is killed in every stage of an upgrade, in its abort and in its rollback, and the same command continues. The
//! cluster serves all the time, and no acknowledged write is lost.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kubeon_e2e::killed::{FirstSteps, MarkedStep, next_command, start};
use kubeon_e2e::lab::{NEXT, TestLab, VERSION};
use kubeon_e2e::running::Running;
use kubeon_e2e::writer;

use crate::upgrade::{api_server, kubelets_have, no_request_failed, probe_all, serve, upgraded};

const MINUTE: Duration = Duration::from_secs(60);
const MASTERS: [&str; 3] = ["h1", "h2", "h3"];
/// The worker with the probes and the writer.
const WORKER: &str = "h4";
/// How long the writer writes: through the upgrade that is aborted and most of the other one.
const WRITER_SECONDS: u32 = 360;

/// The steps of an upgrade that is aborted.
const BEFORE_THE_ABORT: [MarkedStep; 2] = [
    ("a part on its way", r#""name":"h1","stage":"artifacts","step":"put kube-apiserver"#),
    (
        "an API server in the trial",
        r#""name":"h2","stage":"control","step":"start kube-apiserver v1.37.2 as v1.36"#,
    ),
];
/// The steps of the upgrade that completes: in its trial, and in the change.
const STAGES: [MarkedStep; 12] = [
    (
        "an API server in the trial",
        r#""name":"h2","stage":"control","step":"start kube-apiserver v1.37.2 as v1.36"#,
    ),
    ("a proof in the trial", r#""name":"h3","stage":"verify","step":"node h3 works"#),
    ("a part on its way", r#""name":"h1","stage":"artifacts","step":"put kubelet"#),
    ("CoreDNS", r#""stage":"network","step":"apply CoreDNS"#),
    ("etcd", r#""name":"h1","stage":"etcd","step":"start etcd member h1"#),
    ("an API server", r#""name":"h2","stage":"control","step":"start kube-apiserver v1.37.2","why""#),
    ("a scheduler", r#""name":"h3","stage":"control","step":"start kube-scheduler"#),
    ("the drain of a master", r#""step":"drain node h2,"#),
    ("the kubelet of a master", r#""name":"h2","stage":"join","step":"start kubelet v1.37.2"#),
    ("the drain of a worker", r#""step":"drain node h4,"#),
    ("kube-proxy of a worker", r#""name":"h4","stage":"network","step":"start kube-proxy"#),
    ("the end of a drain", r#""step":"let pods come back to node h4"#),
];

#[test]
#[ignore = "builds a second version of Kubernetes: ./test long"]
fn soak_an_upgrade_is_killed_in_every_stage() -> Result<()> {
    let lab = TestLab::up("e2e-upgrade-kills", 5)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    lab.must(&["bundle", "build", NEXT])?;
    let (masters, workers) = (hosts[..3].join(","), hosts[3..].join(","));
    lab.must(&["create", cluster, VERSION, "-m", &masters, "-w", &workers])?;
    lab.must(&["use", cluster])?;
    serve(&lab)?;
    probe_all(&lab)?;
    writer::start_on_host(&lab, WORKER, "kills", WRITER_SECONDS)?;

    let mut first_steps = FirstSteps::default();
    in_the_snapshot(&lab)?;
    aborted(&lab, &mut first_steps)?;
    let (upgrade, begin) = (["upgrade", cluster, NEXT], Instant::now());
    first_steps.kill_in_each(&lab, &upgrade, &STAGES)?;
    lab.must(&upgrade)?;
    println!("  the upgrade with {} kills took {:.0} s", STAGES.len(), begin.elapsed().as_secs_f64());
    no_request_failed(&lab)?;
    println!("  {}", writer::report_of_host(&lab, WORKER)?);
    upgraded(&lab)?;

    lab.on(WORKER, "systemctl stop probe service-probe")?;
    rolled_back(&lab, &mut first_steps)?;
    println!("  first steps after a kill: {:.2?} at most", first_steps.are_soon()?);
    lab.must(&["destroy", cluster, "--yes"]).map(drop)
}

/// Killed while the snapshot before the upgrade is written, the upgrade has changed nothing.
fn in_the_snapshot(lab: &TestLab) -> Result<()> {
    let (cluster, folder) = (lab.name(), lab.file(&format!("snapshots/{}", lab.name())));
    let mut upgrade = Running::start(lab, &["upgrade", cluster, NEXT])?;
    let begins = || std::fs::read_dir(&folder).is_ok_and(|mut files| files.next().is_some());
    upgrade.until("the snapshot begins", MINUTE, |_| begins())?;
    upgrade.kill()?;
    ensure!(lab.plan(cluster)?.is_empty(), "the killed upgrade changed something");
    let listed = lab.must(&["ls"])?;
    ensure!(!listed.contains("Upgrading"), "{listed}");
    println!("  killed in: the snapshot");
    Ok(())
}

/// The upgrade is killed in its trial, and then its abort. What the program prints then completes it.
fn aborted(lab: &TestLab, first_steps: &mut FirstSteps) -> Result<()> {
    let (cluster, begin) = (lab.name(), Instant::now());
    first_steps.kill_in_each(lab, &["upgrade", cluster, NEXT], &BEFORE_THE_ABORT)?;
    let back = [("the abort", r#""stage":"control","step":"start kube-apiserver v1.36.3","why""#)];
    first_steps.kill_in_each(lab, &["abort", cluster], &back)?;
    let again = lab.kubeon(&["abort", cluster])?;
    ensure!(again.code == 2 && again.err.contains("is aborted already"), "{again:?}");
    printed(lab, &next_command(&again.err)?)?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    for host in MASTERS {
        let text = api_server(lab, host)?;
        ensure!(text.contains(VERSION) && !text.contains("--emulated-version"), "{host}: {text}");
    }
    println!("  a trial and its abort, each with kills, took {:.0} s", begin.elapsed().as_secs_f64());
    no_request_failed(lab)
}

/// The rollback is killed while the cluster is removed, before it is made again, and while it is made. Each time, the program said
/// before what continues.
fn rolled_back(lab: &TestLab, first_steps: &mut FirstSteps) -> Result<()> {
    let (cluster, begin) = (lab.name(), Instant::now());
    lab.kubectl(cluster, &["create", "namespace", "late"])?;
    let rollback = ["rollback", cluster, "--yes"];
    let removal = [("the removal of the cluster", r#""step":"reset h2: remove everything"#)];
    first_steps.kill_in_each(lab, &rollback, &removal)?;

    let mut run = start(lab, &rollback)?;
    run.until("no host has the cluster", 3 * MINUTE, |run| {
        run.output().contains("the snapshot is restored now")
    })?;
    let next = next_command(&run.output())?;
    run.kill()?;
    println!("  killed in: the rollback, without any host; it says: kubeon {}", next.join(" "));
    ensure!(lab.must(&["ls"])?.contains(cluster), "the cluster is not known any more");

    let words: Vec<&str> = next.iter().map(String::as_str).collect();
    let restore = [
        ("the restore of a member", r#""name":"h2","stage":"etcd","step":"start etcd member h2"#),
        ("the first API server of the restored members", r#""stage":"control","step":"start kube-apiserver"#),
    ];
    first_steps.kill_in_each(lab, &words, &restore)?;
    printed(lab, &next)?;
    println!("  the way back to the snapshot with 4 kills took {:.0} s", begin.elapsed().as_secs_f64());

    lab.wait_up_to_date(cluster, MINUTE)?;
    kubelets_have(lab, VERSION)?;
    ensure!(lab.kubectl(cluster, &["get", "namespace", "late"]).is_err(), "the snapshot is older");
    lab.load_client(cluster)?;
    let available = ["wait", "--for=condition=Available", "deployment/web", "--timeout=120s"];
    lab.kubectl(cluster, &available)?;
    let again = lab.kubeon(&rollback)?;
    ensure!(again.code == 2 && again.err.contains("there is no snapshot"), "{again:?}");
    Ok(())
}

/// Runs the command that the program printed.
fn printed(lab: &TestLab, words: &[String]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    lab.must(&words).map(drop)
}
