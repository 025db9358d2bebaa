//! Prechecks hosts, and adds, drains, removes and re-adds a worker. Also checks the progress events, disruption
//! budgets, routes of a cloud provider, kernel parameters and taints, the order in which kubelets restart, the change to a
//! load balancer and back, and another build of the bundle.

pub(crate) mod balancer;
mod cloud;
mod declared;
pub(crate) mod rolling;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use kubeon_e2e::program::{eventually, folder};
use serde_json::{Value, json};

const CLUSTER: &str = "scale";
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_worker_is_added_removed_and_added_again() -> Result<()> {
    let mut lab = TestLab::up("e2e-scale", 3)?;
    check_prechecks(&lab)?;
    create_with_hold(&lab)?;
    lab.wait_up_to_date(CLUSTER, MINUTE)?;
    let start = Instant::now();
    add_worker(&lab)?;
    print_time("a worker added", start);
    let routes = cloud::begin(&mut lab, CLUSTER)?;
    budget_blocks_removal(&lab)?;
    complete_removal(&lab)?;
    cloud::are_to_the_nodes(&lab, CLUSTER, &routes)?;
    add_worker_after_its_parts(&lab)?;
    cloud::are_to_the_nodes(&lab, CLUSTER, &routes)?;
    print_time("a worker added, removed and added again", start);
    declared::parameters_and_taints_come_and_go(&lab, CLUSTER)?;
    rolling::kubelets_restart_one_after_another(&lab, CLUSTER)?;
    balancer::workers_change_to_a_load_balancer_and_back(&lab, CLUSTER)?;
    remove_dead_worker(&lab)?;
    cloud::are_to_the_nodes(&lab, CLUSTER, &routes)?;
    rolling::another_build_is_asked_about(&lab, CLUSTER)?;
    cloud::block_a_destroy(&lab, CLUSTER, &routes)?;
    destroy(&lab)?;
    cloud::are_gone(&routes)
}

#[test]
#[ignore = "waits some minutes for a server that never answers: ./test long"]
fn soak_a_load_balancer_that_leads_elsewhere_changes_no_worker() -> Result<()> {
    let lab = TestLab::up("e2e-elsewhere", 2)?;
    lab.must(&["create", CLUSTER, VERSION, "-m", &lab.addresses[0], "-w", &lab.addresses[1]])?;
    balancer::another_server_changes_no_worker(&lab, CLUSTER)?;
    lab.must(&["destroy", CLUSTER, "--yes"]).map(drop)
}

#[allow(clippy::print_stderr, reason = "prints measured times")]
fn print_time(what: &str, start: Instant) {
    eprintln!("{what}: {:.1} s", start.elapsed().as_secs_f64());
}

fn nodes(lab: &TestLab) -> Result<Vec<String>> {
    let ready = r#"jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}"#;
    let text = lab.kubectl(CLUSTER, &["get", "nodes", "-o", ready])?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The report contains every host and check. A port in use blocks `create` until the check is ignored.
fn check_prechecks(lab: &TestLab) -> Result<()> {
    let hosts = ["-m", &lab.addresses[0], "-w", &lab.addresses[1]];
    let precheck = |more: &[&str]| lab.kubeon(&[&["precheck"], &hosts[..], &["-o", "json"], more].concat());
    let report: Value = serde_json::from_str(&precheck(&[])?.out)?;
    ensure!(report["ok"] == true, "{report:#}");
    let reported = report["hosts"].as_array().context("no hosts")?;
    ensure!(reported.len() == 2 && reported[0]["role"] == "master", "{report:#}");
    let peers = reported[1]["checks"]
        .as_array()
        .and_then(|checks| checks.iter().find(|check| check["check"] == "peers"));
    ensure!(peers.is_some_and(|peers| peers["found"] == "1 of 1 answer"), "{peers:?}");
    lab.on("h2", "systemd-run --quiet --unit=squatter /usr/sbin/sshd -D -p 10250")?;
    eventually("the port is in use", MINUTE, || {
        lab.on("h2", "grep -q ':280A .* 0A' /proc/net/tcp /proc/net/tcp6").map(drop)
    })?;
    let refused = precheck(&[])?;
    let cause =
        format!("[precheck] failed with:\n {} : another program listens on port 10250", lab.addresses[1]);
    ensure!(refused.code == 2 && refused.err.contains(&cause), "{refused:?}");
    ensure!(precheck(&["--ignore", "ports"])?.code == 0, "the check must be ignorable");
    let create = [&["create", CLUSTER, VERSION], &hosts[..]].concat();
    let refused = lab.kubeon(&create)?;
    ensure!(refused.code == 2 && refused.err.contains(&cause), "{refused:?}");
    lab.on("h2", "systemctl stop squatter; systemctl reset-failed squatter 2>/dev/null; true")?;
    lab.is_bare("h1")
}

/// A program runs `create --hold` and reads JSON events. No host is changed before the program confirms.
fn create_with_hold(lab: &TestLab) -> Result<()> {
    let mut child = Command::new(folder().join("kubeon"))
        .args(["create", CLUSTER, VERSION, "-m", &lab.addresses[0], "-w", &lab.addresses[1]])
        .args(["--progress", "json", "--hold"])
        .envs(lab.environment())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stderr.take().context("no standard error")?).lines();
    let mut events: Vec<Value> = Vec::new();
    loop {
        let Some(line) = lines.next() else { bail!("create ended before the event `saved`: {events:?}") };
        events.push(serde_json::from_str(&line?)?);
        if events.last().is_some_and(|line| line["event"] == "saved") {
            break;
        }
    }
    for host in ["h1", "h2"] {
        lab.is_bare(host).context("a host was changed before the confirmation")?;
    }
    let exported = Command::new(folder().join("kubeon"))
        .args(["state", "export", CLUSTER])
        .envs(lab.environment())
        .output()?;
    ensure!(
        exported.status.success() && exported.stdout.len() > 1000,
        "state export must work while create waits"
    );
    child.stdin.take().context("no standard input")?.write_all(b"go\n")?;
    for line in lines {
        let line = line?;
        events.push(serde_json::from_str(&line).with_context(|| format!("not JSON: {line}"))?);
    }
    let mut out = String::new();
    child.stdout.take().context("no standard output")?.read_to_string(&mut out)?;
    ensure!(child.wait()?.success(), "{events:?}");
    let count = |event: &str| events.iter().filter(|line| line["event"] == event).count();
    ensure!(count("saved") == 1 && count("precheck") == 1 && count("end") == 1, "{events:?}");
    ensure!(count("started") > 20 && count("started") == count("finished") + count("failed"), "{events:?}");
    ensure!(events.last().is_some_and(|end| end["ok"] == true), "{events:?}");
    lab.must(&["use", CLUSTER])?;
    ensure!(nodes(lab)? == ["h1 True", "h2 True"], "{:?}", nodes(lab)?);
    Ok(())
}

/// `addon` executes exactly the steps of `--dry-run`, and a pod runs on the new worker.
fn add_worker(lab: &TestLab) -> Result<()> {
    let worker = lab.addresses[2].as_str();
    let plan: Value =
        serde_json::from_str(&lab.must(&["addon", CLUSTER, "-w", worker, "--dry-run", "-o", "json"])?)?;
    let planned: Vec<&str> = plan["steps"]
        .as_array()
        .context("no steps")?
        .iter()
        .filter_map(|step| step["title"].as_str())
        .collect();
    let before = logins(lab, "h2")?;
    let answer = lab.kubeon(&["addon", CLUSTER, "-w", worker, "--progress", "json"])?;
    ensure!(answer.code == 0, "{answer:?}");
    // Each count is a login itself.
    ensure!(logins(lab, "h2")? == before + 1, "a new worker must not cause a login to the other worker");
    let lines: Vec<Value> = answer.err.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let mut finished: Vec<&str> = lines
        .iter()
        .filter(|line| line["event"] == "finished")
        .filter_map(|line| line["step"].as_str())
        .collect();
    let mut wanted = planned.clone();
    finished.sort_unstable();
    wanted.sort_unstable();
    ensure!(finished == wanted, "planned {wanted:?}, finished {finished:?}");
    let on_h2 = lines.iter().filter(|line| line["event"] == "started" && line["name"] == "h2");
    let on_h2: Vec<_> = on_h2.filter_map(|line| line["step"].as_str()).collect();
    ensure!(on_h2.is_empty(), "a new worker must not change the other worker: {on_h2:?}");
    ensure!(nodes(lab)? == ["h1 True", "h2 True", "h3 True"], "{:?}", nodes(lab)?);
    let again = lab.kubeon(&["addon", CLUSTER, "-w", worker])?;
    ensure!(again.code == 2 && again.err.contains("Cluster ip is duplicate"), "{again:?}");
    lab.load_client(CLUSTER)?;
    create_deployment(lab)
}

/// `addon --only-parts` puts the parts onto the new worker and starts nothing there. `create` does the rest without them.
fn add_worker_after_its_parts(lab: &TestLab) -> Result<()> {
    let worker = lab.addresses[2].as_str();
    let put: Value =
        serde_json::from_str(&lab.must(&["addon", CLUSTER, "-w", worker, "--only-parts", "-o", "json"])?)?;
    ensure!(put["hosts"] == 3 && put["parts"].as_u64() > Some(5), "{put}");
    ensure!(nodes(lab)? == ["h1 True", "h2 True"], "{:?}", nodes(lab)?);
    lab.on("h3", "test ! -e /etc/systemd/system/kubelet.service && test ! -e /usr/local/bin/ctr")?;
    let again: Value =
        serde_json::from_str(&lab.must(&["create", CLUSTER, "--only-parts", "-o", "json"])?)?;
    ensure!(again["parts"] == 0 && again["changed"] == false, "{again}");
    let left = lab.plan(CLUSTER)?;
    let titles: Vec<&str> = left.iter().filter_map(|step| step["title"].as_str()).collect();
    let puts = titles.iter().any(|title| title.starts_with("put "));
    ensure!(!titles.is_empty() && !puts, "{titles:?}");
    lab.must(&["create", CLUSTER])?;
    ensure!(nodes(lab)? == ["h1 True", "h2 True", "h3 True"], "{:?}", nodes(lab)?);
    lab.load_client(CLUSTER)?;
    create_deployment(lab)
}

fn logins(lab: &TestLab, host: &str) -> Result<u32> {
    let count = lab.on(host, "journalctl -q --no-pager _COMM=sshd | grep -c 'Accepted '")?;
    count.trim().parse().with_context(|| format!("{count:?} is no number"))
}

/// Creates a Deployment with a pod on h3.
fn create_deployment(lab: &TestLab) -> Result<()> {
    let labels = json!({ "app": "hello" });
    lab.apply(CLUSTER, &json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "hello" }, "spec": {
        "replicas": 2, "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": {
            "terminationGracePeriodSeconds": 1,
            "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": { "matchLabels": labels } }],
            "containers": [{ "name": "hello", "image": kubeon_e2e::image::NAME, "imagePullPolicy": "IfNotPresent",
                "args": ["serve", "8080"],
                "readinessProbe": { "httpGet": { "path": "/", "port": 8080 }, "periodSeconds": 1 } }],
        } } } }))?;
    lab.kubectl(CLUSTER, &["rollout", "restart", "deployment/hello"])?;
    lab.kubectl(CLUSTER, &["rollout", "status", "deployment/hello", "--timeout=120s"])?;
    eventually("a pod runs on the new worker", MINUTE, || {
        let hosts = hosts_of_pods(lab)?;
        ensure!(hosts.contains("h3"), "{hosts}");
        Ok(())
    })
}

fn hosts_of_pods(lab: &TestLab) -> Result<String> {
    lab.kubectl(CLUSTER, &["get", "pods", "-l", "app=hello", "-o", "jsonpath={.items[*].spec.nodeName}"])
}

/// A disruption budget that allows no eviction blocks the removal, and the error names it with its pod.
fn budget_blocks_removal(lab: &TestLab) -> Result<()> {
    let unconfirmed = lab.kubeon(&["delon", CLUSTER, "name=h3"])?;
    ensure!(unconfirmed.code == 2 && unconfirmed.err.contains("not confirmed"), "{unconfirmed:?}");
    let master = lab.kubeon(&["delon", CLUSTER, "name=h1", "--yes"])?;
    ensure!(master.code == 2 && master.err.contains("no master exists after delete"), "{master:?}");
    lab.apply(
        CLUSTER,
        &json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "keep" },
        "spec": { "minAvailable": 2, "selector": { "matchLabels": { "app": "hello" } } } }),
    )?;
    eventually("the budget counts its pods", MINUTE, || {
        let expected =
            lab.kubectl(CLUSTER, &["get", "pdb", "keep", "-o", "jsonpath={.status.expectedPods}"])?;
        ensure!(expected == "2", "{expected}");
        Ok(())
    })?;
    let refused = lab.kubeon(&["delon", CLUSTER, "name=h3", "--yes", "--drain-timeout", "5"])?;
    ensure!(refused.code == 1, "{refused:?}");
    for text in
        ["node h3 is not empty: pod default/hello-", "disruption budget", "keep", "kubeon create scale"]
    {
        ensure!(refused.err.contains(text), "{text:?} is missing in {}", refused.err);
    }
    ensure!(nodes(lab)?.len() == 3, "the node must stay while its pods run");
    lab.kubectl(CLUSTER, &["delete", "pdb", "keep"]).map(drop)
}

/// `create` without arguments completes the removal, and no leftovers of the worker exist.
fn complete_removal(lab: &TestLab) -> Result<()> {
    let start = Instant::now();
    lab.must(&["create", CLUSTER])?;
    print_time("a worker removed", start);
    ensure!(nodes(lab)? == ["h1 True", "h2 True"], "{:?}", nodes(lab)?);
    lab.is_bare("h3")?;
    let count = lab.on("h1", "grep -cw h3 /etc/hosts; true")?;
    ensure!(count.trim() == "0", "h1 still has the name in /etc/hosts: {count}");
    eventually("the pods run on the remaining worker", MINUTE, || {
        lab.kubectl(CLUSTER, &["rollout", "status", "deployment/hello", "--timeout=30s"])?;
        let hosts = hosts_of_pods(lab)?;
        ensure!(!hosts.contains("h3"), "{hosts}");
        Ok(())
    })?;
    lab.wait_up_to_date(CLUSTER, MINUTE)
}

/// A worker without power is named in the error, and is removed with `--without`.
fn remove_dead_worker(lab: &TestLab) -> Result<()> {
    lab.host("kill", "h3")?;
    let refused = lab.kubeon(&["delon", CLUSTER, "h3", "--yes"])?;
    ensure!(refused.code == 2, "{refused:?}");
    for text in [lab.addresses[2].as_str(), "remove it from the cluster without a reset: --without"] {
        ensure!(refused.err.contains(text), "{text:?} is missing in {}", refused.err);
    }
    let is_unknown = || -> Result<()> {
        ensure!(nodes(lab)?.iter().any(|node| node == "h3 Unknown"), "{:?}", nodes(lab)?);
        Ok(())
    };
    eventually("the node of h3 is Unknown", MINUTE * 2, is_unknown)?;
    lab.must(&["delon", CLUSTER, "h3", "--yes", "--without", &lab.addresses[2]])?;
    ensure!(nodes(lab)? == ["h1 True", "h2 True"], "{:?}", nodes(lab)?);
    lab.wait_up_to_date(CLUSTER, MINUTE)
}

/// The hosts reboot after the cluster was removed.
fn destroy(lab: &TestLab) -> Result<()> {
    for host in ["h1", "h2"] {
        lab.on(host, "touch /run/before-the-reboot")?;
    }
    lab.must(&["destroy", CLUSTER, "--yes", "--force"])?;
    for host in ["h1", "h2"] {
        eventually(&format!("{host} has rebooted"), MINUTE, || {
            lab.on(host, "test ! -e /run/before-the-reboot && systemctl is-active -q multi-user.target")
                .map(drop)
        })?;
        lab.is_bare(host)?;
    }
    Ok(())
}
