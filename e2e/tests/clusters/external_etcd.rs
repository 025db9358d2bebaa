//! Clusters whose etcd has hosts of its own. One of them dies and is replaced while a pod writes, and no acknowledged write is lost. All
//! of them restart, for a setting and for another version, and no request fails.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{NEXT, TestLab, VERSION};
use kubeon_e2e::program::eventually;
use kubeon_e2e::running::Running;
use kubeon_e2e::{probe, writer};
use serde_json::{Value, json};

use crate::container_life::tags;
use crate::container_mode::timed;
use crate::upgrade::api_server;

const MINUTE: Duration = Duration::from_secs(60);
/// How much the times of the start of a process may differ from those of the clock, in seconds.
const CLOCK_TOLERANCE: u64 = 2;
/// The process of the member on a host, in a shell.
const MEMBER: &str = "$(systemctl show -p MainPID --value etcd)";

/// The version and the hosts of a declaration.
struct DeclaredHosts<'a> {
    version: &'a str,
    masters: &'a [&'a str],
    worker: &'a str,
    etcd: &'a [&'a str],
}

/// The cluster of the short test with these hosts of etcd.
fn small<'a>(etcd: &'a [&'a str]) -> DeclaredHosts<'a> {
    DeclaredHosts { version: VERSION, masters: &["h1"], worker: "h2", etcd }
}

#[test]
fn etcd_on_hosts_of_its_own_survives_the_death_of_a_member() -> Result<()> {
    let lab = TestLab::up("e2e-external-etcd", 6)?;
    let cluster = lab.name();
    let start = Instant::now();
    let file = declaration(&lab, &small(&["h3", "h4", "h5"]))?;
    lab.must(&["create", "-f", &file])?;
    println!("  1 + 1 with three hosts of etcd: {:.1} s", start.elapsed().as_secs_f64());
    lab.must(&["use", cluster])?;
    let nodes = lab.kubectl(cluster, &["get", "nodes", "-o", "name"])?;
    ensure!(nodes == "node/h1\nnode/h2\n", "{nodes}");
    ensure!(members(&lab)? == names(["h3", "h4", "h5"]), "{:?}", members(&lab)?);
    lab.on("h3", "systemctl is-active etcd && ! systemctl cat kubelet containerd 2>/dev/null")?;
    lab.on("h1", "systemctl is-active kube-apiserver && ! systemctl cat etcd 2>/dev/null")?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    let active = lab.must(&["exec", &format!("{cluster}@etcd*"), "systemctl is-active etcd"])?;
    ensure!(["h3", "h4", "h5"].iter().all(|host| active.contains(host)), "{active}");
    ensure!(!active.contains("h1"), "{active}");
    all_members_restart(&lab, &["h3", "h4", "h5"])?;

    writer::start(&lab, "external", 60)?;
    lab.host("kill", "h5")?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    let listed = lab.must(&["ls"])?;
    ensure!(listed.contains("Degraded"), "{listed}");
    let file = declaration(&lab, &small(&["h3", "h4", "h6"]))?;
    let refused = lab.kubeon(&["create", "-f", &file, "--yes"])?;
    ensure!(refused.code == 2 && refused.err.contains("--without"), "{refused:?}");
    let start = Instant::now();
    lab.must(&["create", "-f", &file, "--yes", "--without", &lab.addresses[4]])?;
    println!("  a dead host of etcd was replaced in {:.1} s", start.elapsed().as_secs_f64());
    ensure!(members(&lab)? == names(["h3", "h4", "h6"]), "{:?}", members(&lab)?);
    let unit = lab.on("h1", "systemctl cat kube-apiserver")?;
    ensure!(unit.contains(&lab.addresses[5]) && !unit.contains(&lab.addresses[4]), "{unit}");
    println!("  {}", writer::report(&lab)?);

    lab.must(&["delon", cluster, "h6", "--yes"])?;
    ensure!(members(&lab)? == names(["h3", "h4"]), "{:?}", members(&lab)?);
    lab.is_bare("h6")?;
    lab.must(&["addon", cluster, "--etcd", &lab.addresses[5]])?;
    ensure!(members(&lab)? == names(["h3", "h4", "h6"]), "{:?}", members(&lab)?);

    let snapshot = lab.file("external.db").display().to_string();
    lab.must(&["etcd", "save", cluster, &snapshot])?;
    lab.must(&["etcd", "check", cluster, &snapshot])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    lab.must(&["destroy", cluster, "--yes"])?;
    for host in ["h1", "h2", "h3", "h4", "h6"] {
        lab.is_bare(host)?;
    }
    Ok(())
}

/// A setting restarts the members one after another. The only API server runs on, and none of the requests through the haproxy of the
/// worker fails.
fn all_members_restart(lab: &TestLab, members: &[&str]) -> Result<()> {
    let cluster = lab.name();
    let api_server =
        || lab.on("h1", "systemctl show -p ExecMainStartTimestampMonotonic --value kube-apiserver");
    let before = api_server()?;
    probe::start(lab, "h2")?;
    let set = ["config", "set", cluster, "extraArgs.etcd.snapshot-count=20000"];
    timed("three members of etcd restart one after another", || lab.must(&set))?;
    println!("  {}", probe::none_failed(lab, "h2")?);
    lab.on("h2", "systemctl stop probe")?;
    ensure!(api_server()? == before, "the API server started again");
    for host in members {
        let arguments = lab.on(host, &format!("tr '\\0' ' ' </proc/{MEMBER}/cmdline"))?;
        ensure!(arguments.contains("--snapshot-count=20000"), "etcd on {host} runs with {arguments}");
    }
    lab.wait_up_to_date(cluster, MINUTE)
}

#[test]
#[ignore = "builds a second version of Kubernetes: ./test long"]
fn soak_a_cluster_with_hosts_of_etcd_is_upgraded_and_restored() -> Result<()> {
    const MEMBERS: [&str; 3] = ["h4", "h5", "h6"];
    const WORKER: &str = "h3";
    let lab = TestLab::up("e2e-external-upgrade", 7)?;
    let cluster = lab.name();
    lab.must(&["bundle", "build", NEXT])?;
    let declared = DeclaredHosts { version: VERSION, masters: &["h1", "h2"], worker: WORKER, etcd: &MEMBERS };
    let file = declaration(&lab, &declared)?;
    timed("create 2 + 1 with three hosts of etcd", || lab.must(&["create", "-f", &file]))?;
    lab.must(&["use", cluster])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    members_have(&lab, &MEMBERS, VERSION)?;
    // The pod that writes stays on the only worker: no node is drained.
    writer::start(&lab, "upgrade", 420)?;
    probe::start(&lab, WORKER)?;

    a_trial_goes_back(&lab)?;
    members_have(&lab, &MEMBERS, VERSION)?;
    etcd_goes_up_last(&lab, &MEMBERS)?;
    members_have(&lab, &MEMBERS, NEXT)?;
    println!("  {}", probe::none_failed(&lab, WORKER)?);
    lab.on(WORKER, "systemctl stop probe")?;
    println!("  {}", writer::report(&lab)?);
    writer::remove(&lab)?;
    restored(&lab, &DeclaredHosts { version: NEXT, etcd: &["h4", "h5", "h7"], ..declared })?;
    lab.must(&["destroy", cluster, "--yes"])?;
    ["h1", "h2", "h3", "h4", "h5", "h6", "h7"].iter().try_for_each(|host| lab.is_bare(host))
}

/// An upgrade that is killed while masters try the version goes back, and the members never restarted.
fn a_trial_goes_back(lab: &TestLab) -> Result<()> {
    let started = |host: &str| lab.on(host, "systemctl show -p ExecMainStartTimestampMonotonic --value etcd");
    let before = started("h4")?;
    let mut upgrade = Running::start(lab, &["upgrade", lab.name(), NEXT, "--skip-evict"])?;
    upgrade.until("the trial on the second master", 10 * MINUTE, |_| {
        api_server(lab, "h2").is_ok_and(|text| text.contains("--emulated-version=1.36"))
    })?;
    upgrade.kill()?;
    timed("abort while both masters may try the version", || lab.must(&["abort", lab.name()]))?;
    for host in ["h1", "h2"] {
        let text = api_server(lab, host)?;
        ensure!(text.contains(VERSION) && !text.contains("--emulated-version"), "{host}: {text}");
    }
    ensure!(started("h4")? == before, "the member on h4 started again");
    lab.wait_up_to_date(lab.name(), MINUTE)
}

/// The upgrade completes. No member changes before every master ran the control plane of the new version.
fn etcd_goes_up_last(lab: &TestLab, members: &[&str]) -> Result<()> {
    let begin = Instant::now();
    let mut upgrade = Running::start(lab, &["upgrade", lab.name(), NEXT, "--skip-evict"])?;
    let tried = format!("every master runs the control plane of {NEXT}");
    upgrade.until("both masters try the version", 10 * MINUTE, |run| run.output().contains(&tried))?;
    let tried = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let ended = upgrade.wait(20 * MINUTE)?;
    ensure!(ended.code == 0, "{ended:?}");
    println!("  the upgrade of 2 + 1 with three hosts of etcd took {:.0} s", begin.elapsed().as_secs_f64());
    for host in members {
        let started = lab.on(host, &format!("date -d \"$(ps -o lstart= -p {MEMBER})\" +%s"))?;
        let started = started.trim().parse::<u64>().with_context(|| started.clone())?;
        ensure!(started + CLOCK_TOLERANCE >= tried, "{host} started at {started}, tried until {tried}");
    }
    lab.wait_up_to_date(lab.name(), MINUTE)
}

/// The members that run have the version of etcd that the catalogue names for a version of Kubernetes.
fn members_have(lab: &TestLab, members: &[&str], version: &str) -> Result<()> {
    let tags = tags(version)?;
    let tag = tags.get("etcd").context("the catalogue has no etcd")?;
    let wanted = tag.trim_start_matches('v').split('-').next().unwrap_or(tag);
    for host in members {
        let running = lab.on(host, &format!("/proc/{MEMBER}/exe --version"))?;
        ensure!(running.contains(wanted), "etcd on {host} is {running}, not {wanted}");
    }
    Ok(())
}

/// The cluster comes back out of its snapshot on the hosts of a file: one host of etcd is another one.
fn restored(lab: &TestLab, declared: &DeclaredHosts<'_>) -> Result<()> {
    let (cluster, snapshot) = (lab.name(), lab.file("external.db").display().to_string());
    lab.kubectl(cluster, &["create", "configmap", "kept", "--from-literal=word=kept"])?;
    timed("snapshot", || lab.must(&["etcd", "save", cluster, &snapshot]))?;
    timed("destroy", || lab.must(&["destroy", cluster, "--yes"]))?;
    let named = lab.kubeon(&["etcd", "restore", cluster, &snapshot, "-m", &lab.addresses[0]])?;
    ensure!(named.code == 2 && named.err.contains("with etcdList"), "{named:?}");
    let file = declaration(lab, declared)?;
    let restore = ["etcd", "restore", cluster, &snapshot, "-f", &file];
    timed("2 + 1 with three hosts of etcd out of the snapshot", || lab.must(&restore))?;
    lab.must(&["use", cluster])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    let wanted: BTreeSet<String> = declared.etcd.iter().map(|host| (*host).to_owned()).collect();
    ensure!(members(lab)? == wanted, "{:?}", members(lab)?);
    members_have(lab, declared.etcd, NEXT)?;
    let kept = ["get", "configmap", "kept", "-o", "jsonpath={.data.word}"];
    ensure!(lab.kubectl(cluster, &kept)? == "kept", "the object of before is there");
    writer::start(lab, "restored", 5)?;
    println!("  {}", writer::report(lab)?);
    eventually("the nodes are Ready", MINUTE, || {
        let nodes = lab.kubectl(cluster, &["get", "nodes", "--no-headers"])?;
        ensure!(nodes.lines().filter(|line| line.contains(" Ready ")).count() == 3, "{nodes}");
        Ok(())
    })
}

/// Writes the declaration of a cluster. Returns the path of the file.
fn declaration(lab: &TestLab, declared: &DeclaredHosts<'_>) -> Result<String> {
    let host = |name: &&str| -> Result<Value> {
        let index: usize = name.trim_start_matches('h').parse()?;
        Ok(json!({ "ip": lab.addresses[index - 1] }))
    };
    let hosts = |names: &[&str]| names.iter().map(host).collect::<Result<Vec<_>>>();
    let object = json!({
        "apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": { "name": lab.name() },
        "spec": { "cluster": {
            "kubeVersion": declared.version, "masterList": hosts(declared.masters)?,
            "nodeList": hosts(&[declared.worker])?, "etcdList": hosts(declared.etcd)?,
        } },
    });
    let file = lab.file("cluster.json");
    std::fs::write(&file, object.to_string())?;
    Ok(file.display().to_string())
}

/// The names of the members of etcd.
fn members(lab: &TestLab) -> Result<BTreeSet<String>> {
    let list = lab.must(&["etcd", lab.name(), "member", "list", "--write-out=json"])?;
    let list: Value = serde_json::from_str(&list)?;
    let members = list["members"].as_array().context("no members")?;
    Ok(members.iter().filter_map(|member| member["name"].as_str().map(str::to_owned)).collect())
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}
