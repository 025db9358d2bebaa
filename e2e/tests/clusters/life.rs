//! What happens to one cluster over the years: masters join, the first one dies and is replaced, a snapshot comes back on other
//! hosts, an upgrade fails and goes back, the next one completes, settings change, workers change from haproxy to the Service
//! of the API servers, and a master dies while the members of etcd restart one after another. No acknowledged write is lost.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{NEXT, TestLab, VERSION};
use kubeon_e2e::program::{eventually, must};
use kubeon_e2e::running::Running;
use kubeon_e2e::{image, probe, writer};
use serde_json::{Value, json};

use crate::scale::balancer::{SERVICE, leads_to};
use crate::upgrade_failures::{is_old, upgrade_fails, versions};

const MINUTE: Duration = Duration::from_secs(60);
/// The hosts after the restore: two that were never used, and three that the cluster had before.
const MASTERS: [&str; 3] = ["h7", "h3", "h4"];
const WORKERS: [&str; 2] = ["h8", "h2"];

#[test]
#[ignore = "builds a second version of Kubernetes: ./test long"]
fn soak_the_life_of_a_cluster() -> Result<()> {
    let lab = TestLab::up("e2e-life", 8)?;
    let cluster = lab.name();
    lab.must(&["bundle", "build", NEXT])?;
    let (master, worker) = (addresses(&lab, &["h1"])?, addresses(&lab, &["h2"])?);
    timed("create 1 + 1", || lab.must(&["create", cluster, VERSION, "-m", &master, "-w", &worker]))?;
    lab.must(&["use", cluster])?;
    the_first_master_dies(&lab)?;
    let written = written(&lab)?;
    restored_on_other_hosts(&lab)?;
    has_written(&lab, written)?;
    upgraded_at_the_second_attempt(&lab)?;
    settings_change(&lab)?;
    four_settings_change_at_once(&lab)?;
    labels_change(&lab)?;
    a_master_dies_while_members_restart(&lab)?;
    has_written(&lab, written)?;
    writer::start(&lab, "after", 5)?;
    println!("  {}", writer::report(&lab)?);
    lab.wait_up_to_date(cluster, MINUTE)?;
    lab.must(&["destroy", cluster, "--yes"])?;
    MASTERS.iter().chain(&WORKERS).try_for_each(|host| lab.is_bare(host))
}

/// A worker and two masters join, and the first master is replaced, while a pod writes.
fn the_first_master_dies(lab: &TestLab) -> Result<()> {
    let cluster = lab.name();
    let (worker, masters) = (addresses(lab, &["h6"])?, addresses(lab, &["h3", "h4"])?);
    timed("a worker more", || lab.must(&["addon", cluster, "-w", &worker]))?;
    writer::start(lab, "life", 120)?;
    timed("two masters more", || lab.must(&["addon", cluster, "-m", &masters]))?;
    lab.host("kill", "h1")?;
    let new = addresses(lab, &["h5"])?;
    timed("the first master is replaced", || lab.must(&["replace", cluster, "h1", &new, "--yes"]))?;
    println!("  {}", writer::report(lab)?);
    lab.wait_up_to_date(cluster, MINUTE)
}

/// The cluster is saved, destroyed, and made out of its snapshot again.
fn restored_on_other_hosts(lab: &TestLab) -> Result<()> {
    let (cluster, file) = (lab.name(), lab.file("life.db").display().to_string());
    timed("snapshot", || lab.must(&["etcd", "save", cluster, &file]))?;
    timed("destroy", || lab.must(&["destroy", cluster, "--yes"]))?;
    let (masters, workers) = (addresses(lab, &MASTERS)?, addresses(lab, &WORKERS)?);
    let restore = ["etcd", "restore", cluster, &file, "-m", &masters, "-w", &workers];
    timed("3 + 2 out of the snapshot", || lab.must(&restore))?;
    lab.must(&["use", cluster])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    // Its object is in the snapshot.
    writer::remove(lab)
}

/// A program of the new version does not start on one master: the upgrade goes back. Without the fault it completes. The API
/// serves all the time.
fn upgraded_at_the_second_attempt(lab: &TestLab) -> Result<()> {
    let (cluster, worker) = (lab.name(), WORKERS[0]);
    probe::start(lab, worker)?;
    timed("an upgrade that fails", || upgrade_fails(lab, MASTERS[1], "kube-scheduler"))?;
    timed("abort", || lab.must(&["abort", cluster]))?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    for unit in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        is_old(lab, &MASTERS, unit)?;
    }
    timed("upgrade", || lab.must(&["upgrade", cluster, NEXT]))?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    ensure!(versions(lab)?.iter().all(|version| version == NEXT), "{:?}", versions(lab)?);
    println!("  {}", probe::none_failed(lab, worker)?);
    lab.on(worker, "systemctl stop probe").map(drop)
}

/// A setting of every kubelet changes, and then the way of the workers to the API servers.
fn settings_change(lab: &TestLab) -> Result<()> {
    let cluster = lab.name();
    timed("a setting of every kubelet", || lab.must(&["config", "set", cluster, "network.maxPods=100"]))?;
    let pods = ["get", "nodes", "-o", "jsonpath={.items[*].status.capacity.pods}"];
    eventually("the nodes report their new capacity", MINUTE, || {
        let found = lab.kubectl(cluster, &pods)?;
        ensure!(found.split(' ').all(|pods| pods == "100"), "{found}");
        Ok(())
    })?;
    timed("haproxy to updater", || lab.must(&["config", "set", cluster, "loadBalancer.mode=updater"]))?;
    for worker in WORKERS {
        leads_to(lab, worker, SERVICE)?;
        lab.on(worker, "! systemctl cat haproxy 2>/dev/null")?;
    }
    lab.wait_up_to_date(cluster, MINUTE)
}

/// Node ports, a name in the certificates of the API servers, the size of packets, and a feature gate: each is in use afterwards.
fn four_settings_change_at_once(lab: &TestLab) -> Result<()> {
    let cluster = lab.name();
    let settings = [
        "network.nodePortRange=20000-20100",
        "apiServer.certSANs=life.example.com",
        "network.mtu=1400",
        "featureGates=AllAlpha=false",
    ];
    timed("four settings", || lab.must(&[&["config", "set", cluster], &settings[..]].concat()))?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    for master in MASTERS {
        let address = addresses(lab, &[master])?;
        let names = format!(
            "openssl s_client -connect {address}:6443 </dev/null 2>/dev/null | openssl x509 -noout -ext subjectAltName"
        );
        let names = must("sh", &["-c", &names], &[])?;
        ensure!(names.contains("DNS:life.example.com"), "{master} serves a certificate of {names}");
    }
    for node in MASTERS.iter().chain(&WORKERS) {
        let used = lab.kubectl(cluster, &["get", "--raw", &format!("/api/v1/nodes/{node}/proxy/configz")])?;
        let used: Value = serde_json::from_str(&used)?;
        let gates = &used["kubeletconfig"]["featureGates"];
        ensure!(gates["AllAlpha"] == false, "the kubelet of {node} has the gates {gates}");
    }
    a_new_pod_has_a_node_port_and_small_packets(lab)
}

fn a_new_pod_has_a_node_port_and_small_packets(lab: &TestLab) -> Result<()> {
    let (cluster, [host, other]) = (lab.name(), WORKERS);
    lab.load_client(cluster)?;
    let mut pod = image::pod("ports", Some(host));
    pod["metadata"]["labels"] = json!({ "app": "ports" });
    lab.apply(cluster, &json!({ "apiVersion": "v1", "kind": "List", "items": [pod,
        { "apiVersion": "v1", "kind": "Service", "metadata": { "name": "ports" }, "spec": { "type": "NodePort",
          "selector": { "app": "ports" }, "ports": [{ "port": 80, "targetPort": 8080, "nodePort": 20080 }] } },
    ] }))?;
    lab.kubectl(cluster, &["wait", "--for=condition=Ready", "pod/ports", "--timeout=60s"])?;
    let url = format!("http://{}:20080/", addresses(lab, &[other])?);
    eventually("the node port of the other worker serves", MINUTE, || {
        let answer = must("curl", &["-sS", "-m", "5", &url], &[])?;
        ensure!(answer.contains("hello from ports"), "{answer}");
        Ok(())
    })?;
    let address = lab.kubectl(cluster, &["get", "pod", "ports", "-o", "jsonpath={.status.podIP}"])?;
    let link = format!(
        "for ns in /run/netns/*; do if nsenter --net=$ns ip -o -4 addr show dev eth0 | grep -q ' {address}/'; \
         then nsenter --net=$ns ip -o link show dev eth0; fi; done"
    );
    let link = lab.on(host, &link)?;
    ensure!(link.contains("mtu 1400 "), "the link of a new pod is {link:?}");
    lab.kubectl(cluster, &["delete", "pod,service", "ports"]).map(drop)
}

/// Each worker gets a label, and nothing restarts.
fn labels_change(lab: &TestLab) -> Result<()> {
    let (cluster, masters, workers) = (lab.name(), addresses(lab, &MASTERS)?, addresses(lab, &WORKERS)?);
    let labels = ["--worker-labels", "tier=gold", "--worker-labels", "tier=silver"];
    let create = ["create", cluster, NEXT, "-m", &masters, "-w", &workers];
    timed("labels", || lab.must(&[&create[..], &labels].concat()))?;
    for (tier, worker) in ["gold", "silver"].into_iter().zip(WORKERS) {
        let nodes = lab.kubectl(cluster, &["get", "nodes", "-l", &format!("tier={tier}"), "-o", "name"])?;
        ensure!(nodes.trim() == format!("node/{worker}"), "{tier}: {nodes}");
    }
    lab.wait_up_to_date(cluster, MINUTE)
}

/// A setting restarts the members of etcd, and the first master loses power after its own restart, while a pod writes. The command
/// restarts no other member, because the last one would be alone. When the master is back, the same command completes.
fn a_master_dies_while_members_restart(lab: &TestLab) -> Result<()> {
    let (cluster, begin) = (lab.name(), Instant::now());
    writer::start(lab, "members", 150)?;
    let set = ["config", "set", cluster, "extraArgs.etcd.snapshot-count=20000"];
    let mut run = Running::start(lab, &set)?;
    run.until("the first master is restarted", 5 * MINUTE, |run| restarted(&run.output()).is_some())?;
    let first = restarted(&run.output()).context("no master is restarted")?;
    lab.host("kill", &first)?;
    let others: Vec<&str> = MASTERS.into_iter().filter(|host| *host != first).collect();
    let starts = || others.iter().map(|host| start_of_etcd(lab, host)).collect::<Result<Vec<_>>>();
    let before = starts()?;
    let ended = run.wait(10 * MINUTE)?;
    let after = starts()?;
    ensure!(before == after, "{others:?}: a member restarted without {first}: {before:?}, {after:?}");
    ensure!(ended.err.contains("is not restarted: without it 1 of 3 members"), "{ended:?}");
    println!("  {first} lost power while members restart: {:.0} s", begin.elapsed().as_secs_f64());
    println!("  {}", writer::report(lab)?);
    writer::remove(lab)?;
    lab.host("start", &first)?;
    eventually("the same command completes", 5 * MINUTE, || lab.must(&set).map(drop))?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    for host in MASTERS {
        let arguments = "tr '\\0' ' ' </proc/$(systemctl show -p MainPID --value etcd)/cmdline";
        let arguments = lab.on(host, arguments)?;
        ensure!(arguments.contains("--snapshot-count=20000"), "etcd on {host} runs with {arguments}");
    }
    Ok(())
}

/// The first node that proved that it works after its restart, in the output of a command.
fn restarted(output: &str) -> Option<String> {
    let proof = output.lines().find(|line| line.contains(" works after its restart ("))?;
    Some(proof.split("✓ node ").nth(1)?.split(' ').next()?.to_owned())
}

/// When etcd was started on a host, in microseconds since its boot.
fn start_of_etcd(lab: &TestLab, host: &str) -> Result<String> {
    lab.on(host, "systemctl show -p ExecMainStartTimestampMonotonic --value etcd")
}

/// The number of objects that the pod wrote.
fn written(lab: &TestLab) -> Result<usize> {
    let listed = lab.kubectl(lab.name(), &["get", "configmaps", "-l", "run=life", "-o", "name"])?;
    Ok(listed.lines().count())
}

fn has_written(lab: &TestLab, before: usize) -> Result<()> {
    let found = written(lab)?;
    ensure!(before > 0 && found == before, "{found} of {before} objects are there");
    Ok(())
}

/// The addresses of the hosts, as the flags of hosts take them.
fn addresses(lab: &TestLab, hosts: &[&str]) -> Result<String> {
    let address = |host: &&str| -> Result<String> {
        let number: usize = host.trim_start_matches('h').parse()?;
        Ok(lab.addresses[number - 1].clone())
    };
    Ok(hosts.iter().map(address).collect::<Result<Vec<_>>>()?.join(","))
}

fn timed<T>(what: &str, run: impl FnOnce() -> Result<T>) -> Result<()> {
    let begin = Instant::now();
    run()?;
    println!("  {what}: {:.1} s", begin.elapsed().as_secs_f64());
    Ok(())
}
