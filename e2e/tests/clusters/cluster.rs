//! Three masters and two workers, from bare hosts to destroyed ones, each master dead once on the way.

#![allow(clippy::print_stdout, reason = "what was measured is for people")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::{eventually, folder, must};
use serde_json::json;

const CLUSTER: &str = "ha";
const MINUTE: Duration = Duration::from_secs(60);

fn told(what: &str, start: Instant) {
    println!("  {what}: {:.1} s", start.elapsed().as_secs_f64());
}

#[test]
fn three_masters_and_two_workers_survive_each_master() -> Result<()> {
    let lab = TestLab::up("e2e-ha", 5)?;
    let planned = planned(&lab)?;
    let start = Instant::now();
    let made = lab.kubeon(&lab.create(CLUSTER, 3))?;
    told("create 3 + 2", start);
    assert_eq!(made.code, 0, "{}", made.err);
    assert_eq!(done(&made.err), planned, "what the plan says is what is done, step for step");
    logins(&lab)?;
    lab.settled(CLUSTER, MINUTE)?;
    mark(&lab)?;
    let start = Instant::now();
    lab.must(&["create", CLUSTER])?;
    told("create once more, nothing to do", start);
    untouched(&lab)?;
    lab.must(&["use", CLUSTER])?;
    all_ready(&lab, 5)?;
    assert!(lab.plan(CLUSTER)?.is_empty(), "a fresh cluster has nothing to do");
    workloads(&lab)?;
    for master in ["h1", "h2", "h3"] {
        survives(&lab, master)?;
    }
    lab.must(&["destroy", CLUSTER, "--yes"])?;
    bare(&lab)?;
    without_tools(&lab, "h1")?;
    without_tools(&lab, "h2")?;
    let start = Instant::now();
    lab.must(&lab.create("again", 1))?;
    told("create 1 + 4 on the same hosts, two of them without nft and iptables", start);
    let tables = lab.on("h2", "PATH=$PATH:/var/lib/kubeon/tools nft list tables")?;
    assert!(tables.contains("table ip kube-proxy"), "made by the bundle's nft: {tables}");
    lab.must(&["destroy", "again", "--yes"])?;
    bare(&lab)
}

/// Takes the programs for packet rules off a host, as if nobody had ever installed them. DNS, which `create` waits for
/// on every host, is a Service: it answers only where kube-proxy could write its rules.
fn without_tools(lab: &TestLab, host: &str) -> Result<()> {
    lab.on(
        host,
        "rm -f /usr/sbin/nft /usr/sbin/conntrack /usr/sbin/iptables* /usr/sbin/ip6tables* /usr/sbin/xtables*",
    )?;
    let found = lab.on(host, "command -v nft iptables || echo none")?;
    assert_eq!(found.trim(), "none");
    Ok(())
}

/// Every step of the plan, as `HOST  ✓ TITLE`.
fn planned(lab: &TestLab) -> Result<Vec<String>> {
    let mut arguments = lab.create(CLUSTER, 3);
    arguments.extend(["--dry-run", "-o", "json"]);
    let plan: serde_json::Value = serde_json::from_str(&lab.must(&arguments)?)?;
    let line = |step: &serde_json::Value| {
        let host = step["id"].as_str()?.rsplit('@').next()?;
        Some(format!("{host}  ✓ {}", step["title"].as_str()?))
    };
    let steps = plan["steps"].as_array().context("a plan has steps")?;
    let mut lines: Vec<String> = steps.iter().filter_map(line).collect();
    assert!(lines.len() == steps.len() && lines.len() > 100, "{plan}");
    lines.sort_unstable();
    Ok(lines)
}

/// Every step that `create` says it did; before each stands the time, and after it how long it took.
fn done(words: &str) -> Vec<String> {
    let line = |line: &str| {
        let (_, line) = line.split_once("  ")?;
        Some(line.rsplit_once(" (")?.0.to_owned()).filter(|line| line.contains("  ✓ "))
    };
    let mut lines: Vec<String> = words.lines().filter_map(line).collect();
    lines.sort_unstable();
    lines
}

/// No host was logged in to more than three times, the plan before `create` included.
fn logins(lab: &TestLab) -> Result<()> {
    for host in 1..=lab.addresses.len() {
        let name = format!("h{host}");
        let seen = lab.on(&name, "journalctl -q --no-pager _COMM=sshd | grep -c 'Accepted '")?;
        // One of them is this look.
        assert!((2..=4).contains(&seen.trim().parse::<u32>()?), "{name} saw {seen} logins");
    }
    Ok(())
}

fn mark(lab: &TestLab) -> Result<()> {
    for host in 1..=lab.addresses.len() {
        lab.on(&format!("h{host}"), "touch /run/mark && sleep 0.1")?;
    }
    Ok(())
}

/// Nothing was written since the mark to what kubeon has on a host, nor anywhere else that running programs leave alone.
fn untouched(lab: &TestLab) -> Result<()> {
    let look =
        "find /etc /usr /opt /home /srv /boot /var/lib/kubeon /var/lib/kubelet/config.yaml -newer /run/mark";
    for host in 1..=lab.addresses.len() {
        let name = format!("h{host}");
        let written = lab.on(&name, look)?;
        assert_eq!(written.trim(), "", "written on {name}");
    }
    Ok(())
}

fn all_ready(lab: &TestLab, count: usize) -> Result<()> {
    let text = lab.kubectl(CLUSTER, &["get", "nodes", "-o", "json"])?;
    let nodes: serde_json::Value = serde_json::from_str(&text)?;
    let ready = nodes["items"].as_array().context("a list")?.iter().filter(|node| is_ready(node)).count();
    if ready == count { Ok(()) } else { bail!("{ready} of {count} nodes are Ready:\n{text}") }
}

fn is_ready(node: &serde_json::Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

/// A Deployment over both workers, a Service, names from a pod, and the right to write for the writer.
fn workloads(lab: &TestLab) -> Result<()> {
    lab.load_client(CLUSTER)?;
    let labels = json!({ "app": "hello" });
    lab.apply(CLUSTER, &json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "hello" }, "spec": {
            "replicas": 2, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": {
                "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
                    { "labelSelector": { "matchLabels": labels }, "topologyKey": "kubernetes.io/hostname" } ] } },
                "containers": [{ "name": "hello", "image": kubeon_e2e::image::NAME, "imagePullPolicy": "IfNotPresent",
                    "args": ["serve", "8080"], "readinessProbe": { "httpGet": { "path": "/", "port": 8080 }, "periodSeconds": 1 } }],
            } } } },
        { "apiVersion": "v1", "kind": "Service", "metadata": { "name": "hello" },
          "spec": { "selector": labels, "ports": [{ "port": 80, "targetPort": 8080 }] } },
        { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "writer" },
          "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" },
          "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": "default" }] },
    ] }))?;
    lab.kubectl(CLUSTER, &["rollout", "status", "deployment/hello", "--timeout=120s"])?;
    let hosts = lab
        .kubectl(CLUSTER, &["get", "pods", "-l", "app=hello", "-o", "jsonpath={.items[*].spec.nodeName}"])?;
    let mut hosts: Vec<&str> = hosts.split_whitespace().collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["h4", "h5"], "the pods run on both workers");
    let own = "http://hello.default.svc.cluster.local/name";
    let answer = eventually("the Service answers by name from a pod", MINUTE, || {
        lab.kubectl(CLUSTER, &["exec", "deployment/hello", "--", "/lab-client", "get", own])
    })?;
    assert!(answer.contains("you asked for /name"), "{answer}");
    let address = lab.kubectl(
        CLUSTER,
        &["exec", "deployment/hello", "--", "/lab-client", "resolve", "kubernetes.default.svc.cluster.local"],
    )?;
    assert_eq!(address.trim(), "10.64.0.1");
    Ok(())
}

/// A master loses power while a pod writes through its worker's haproxy; then it is started again.
fn survives(lab: &TestLab, master: &str) -> Result<()> {
    let pod = format!("writer-{master}");
    lab.apply(CLUSTER, &json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": pod }, "spec": {
        "hostNetwork": true, "nodeName": "h4", "restartPolicy": "Never",
        "containers": [{ "name": "writer", "image": kubeon_e2e::image::NAME, "imagePullPolicy": "IfNotPresent",
            "args": ["write", "https://127.0.0.1:6443", "30"], "env": [{ "name": "RUN", "value": format!("run-{master}") }] }],
    } }))?;
    lab.kubectl(
        CLUSTER,
        &["wait", "--for=jsonpath={.status.phase}=Running", &format!("pod/{pod}"), "--timeout=60s"],
    )?;
    std::thread::sleep(Duration::from_secs(3));
    lab.host("kill", master)?;
    let start = Instant::now();
    lab.kubectl(CLUSTER, &["get", "nodes", "--request-timeout=30s"])
        .context("the admin kubeconfig serves without it")?;
    told(&format!("kubectl answers with {master} dead, after"), start);
    if master == "h1" {
        use_picks_a_live_one(lab)?;
    }
    let done = eventually("the writer ends", 3 * MINUTE, || {
        let phase = lab.kubectl(CLUSTER, &["get", "pod", &pod, "-o", "jsonpath={.status.phase}"])?;
        if matches!(phase.as_str(), "Succeeded" | "Failed") { Ok(phase) } else { bail!("it is {phase}") }
    })?;
    let log = lab.kubectl(CLUSTER, &["logs", &pod])?;
    println!("  {master} lost power: {}", log.trim());
    assert_eq!(done, "Succeeded", "no write is lost: {log}");
    let start = Instant::now();
    lab.host("start", master)?;
    eventually("all nodes are Ready again", 3 * MINUTE, || all_ready(lab, 5))?;
    lab.settled(CLUSTER, 3 * MINUTE)?;
    told(&format!("{master} started, whole again after"), start);
    Ok(())
}

/// Where the hosts file may not be written, `use` leads kubectl to a master that answers; where it may, back to all.
fn use_picks_a_live_one(lab: &TestLab) -> Result<()> {
    let hosts = lab.file("hosts");
    std::fs::write(&hosts, "127.0.0.1 localhost\n")?;
    // Nothing can be put in the place of a file that something is mounted on.
    let line = format!(
        "mount --bind '{}' /etc/hosts && exec '{}' use {CLUSTER} -o json",
        hosts.display(),
        folder().join("kubeon").display()
    );
    let own = lab.environment();
    let own: Vec<(&str, &str)> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let said = must("unshare", &["--mount", "sh", "-ec", &line], &own)?;
    let chosen: serde_json::Value = serde_json::from_str(&said)?;
    let context = chosen["context"].as_str().context("a context")?;
    assert!(["ha-h2", "ha-h3"].contains(&context), "{chosen}");
    lab.kubectl(CLUSTER, &["get", "nodes", "--request-timeout=10s"]).context("its context serves")?;
    lab.must(&["use", CLUSTER])?;
    assert_eq!(lab.kubectl(CLUSTER, &["config", "current-context"])?.trim(), CLUSTER);
    lab.kubectl(CLUSTER, &["get", "nodes", "--request-timeout=30s"]).map(drop)
}

/// Nothing of a cluster is left on any host.
fn bare(lab: &TestLab) -> Result<()> {
    for host in 1..=lab.addresses.len() {
        let look = "ls -d /var/lib/kubeon /etc/kubernetes /var/lib/etcd /var/lib/kubelet 2>/dev/null; \
                    pgrep -l 'kube|etcd|containerd|flanneld|haproxy'; ip -o link | grep -E 'cni0|flannel'; true";
        let name = format!("h{host}");
        let left = lab.on(&name, look)?;
        assert_eq!(left.trim(), "", "left on {name}");
    }
    Ok(())
}
