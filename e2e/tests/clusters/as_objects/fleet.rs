//! Many operations at once, each a real Pod of a meta cluster with one node.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::environment::{MetaCluster, OPERATOR};
use super::samples::{OPERATIONS, reference};
use super::{SAMPLES_NAMESPACE, print_time};

/// The operations, each of a cluster of its own, so that none waits for another one.
const OPERATIONS_AT_ONCE: usize = 400;
/// The Pods that may run at a time: a node of kubeon runs 110.
const MOST_PODS: &str = "90";
/// For all operations.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// No operation logs in anywhere, but a key must look like one.
const UNUSED_KEY: &str = "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n";

#[test]
#[ignore = "about ten minutes: ./test long"]
fn soak_400_operations_run_as_pods() -> Result<()> {
    let meta = MetaCluster::create_in("e2e-fleet", 1)?;
    let kubeconfig = meta.lab.file("conf/cluster/meta.yaml").to_string_lossy().into_owned();
    let install = ["meta", "install", "--kubeconfig", &kubeconfig, "--watch-namespace", SAMPLES_NAMESPACE];
    meta.lab.must(&[&install[..], &["--max-operations", MOST_PODS]].concat())?;
    meta.kubectl(&["-n", OPERATOR, "rollout", "status", "deployment/kubeon-operator", "--timeout=120s"])?;
    declare(&meta)?;

    let before = Usage::of(&meta)?;
    let start = Instant::now();
    let names = 0..OPERATIONS_AT_ONCE;
    let operation = |index: usize| {
        json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
            "metadata": {"name": format!("run-{index}"), "namespace": SAMPLES_NAMESPACE},
            "spec": {"cluster": format!("fleet-{index}"), "image": "wangzhichidocker/kubeonkube:v0.1",
                "actionType": "shell", "action": format!("echo done {index}")}})
    };
    meta.apply(&list(names.map(operation).collect()))?;
    print_time("all operations are created", start);
    let mut most = Usage::default();
    meta.eventually("all operations have ended", LIMIT, || {
        most.keep_larger(&Usage::of(&meta)?);
        let ended = results(&meta)?;
        let succeeded = ended.get("Succeeded").copied().unwrap_or_default();
        ensure!(
            succeeded + ended.get("Failed").copied().unwrap_or_default() == OPERATIONS_AT_ONCE,
            "{ended:?}"
        );
        Ok(())
    })?;
    print_time("all operations have ended", start);
    before.print("before");
    most.print("at most");
    Usage::of(&meta)?.print("after");

    let ended = results(&meta)?;
    let reasons = meta.kubectl(&["get", OPERATIONS, "-o", "jsonpath={.items[:3].status.reason}"])?;
    let all = BTreeMap::from([("Succeeded".to_owned(), OPERATIONS_AT_ONCE)]);
    ensure!(ended == all, "{ended:?}; reasons of the first: {reasons}");
    every_log_is_kept(&meta)
}

/// One cluster for each operation, all with the same inventory.
fn declare(meta: &MetaCluster) -> Result<()> {
    let address = meta.address("h1")?;
    let hosts =
        format!("all:\n  hosts:\n    master01:\n      ansible_host: {address}\n      ansible_user: root\n");
    let object = |kind: &str, name: &str, content: (&str, Value)| {
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": SAMPLES_NAMESPACE},
            content.0: content.1})
    };
    meta.apply(&list(vec![
        object("ConfigMap", "fleet-hosts", ("data", json!({"hosts.yml": hosts}))),
        object("ConfigMap", "fleet-vars", ("data", json!({"group_vars.yml": "{}"}))),
        object("Secret", "fleet-login", ("stringData", json!({"ssh-privatekey": UNUSED_KEY}))),
    ]))?;
    let cluster = |index: usize| {
        json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": format!("fleet-{index}")},
            "spec": {"hostsConfRef": reference("fleet-hosts"), "varsConfRef": reference("fleet-vars"),
                "sshAuthRef": reference("fleet-login")}})
    };
    let start = Instant::now();
    meta.apply(&list((0..OPERATIONS_AT_ONCE).map(cluster).collect()))?;
    print_time("all clusters are declared", start);
    Ok(())
}

fn list(items: Vec<Value>) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// The number of operations by result.
fn results(meta: &MetaCluster) -> Result<BTreeMap<String, usize>> {
    let path = r#"jsonpath={range .items[*]}{.status.status}{"\n"}{end}"#;
    let mut counts = BTreeMap::new();
    for result in meta.kubectl(&["get", OPERATIONS, "-o", path])?.lines() {
        *counts.entry(result.to_owned()).or_default() += 1;
    }
    Ok(counts)
}

/// The log of each operation has its own line.
fn every_log_is_kept(meta: &MetaCluster) -> Result<()> {
    for index in [0, OPERATIONS_AT_ONCE / 2, OPERATIONS_AT_ONCE - 1] {
        super::operation_results::log_contains(
            meta,
            &format!("run-{index}"),
            &[&format!("done {index}")],
            &[],
        )?;
    }
    Ok(())
}

/// What the meta cluster uses, in KiB.
#[derive(Debug, Default)]
struct Usage {
    operators: u64,
    runners: u64,
    api_server: u64,
    etcd_data: u64,
    disk: u64,
}

impl Usage {
    fn of(meta: &MetaCluster) -> Result<Self> {
        let memory = |name: &str| format!("ps -C {name} -o rss= | awk '{{s += $1}} END {{print s + 0}}'");
        let folder =
            |path: &str| format!("du -sk {path} 2>/dev/null | awk '{{s += $1}} END {{print s + 0}}'");
        let command = [
            memory("kubeon-operator"),
            memory("kubeon-runner"),
            memory("kube-apiserver"),
            folder("/var/lib/etcd"),
            folder("/var/lib/kubelet /var/lib/containerd /var/log/pods"),
        ];
        let printed = meta.lab.on("h1", &command.join("; "))?;
        let numbers: Vec<u64> = printed.lines().filter_map(|line| line.trim().parse().ok()).collect();
        let [operators, runners, api_server, etcd_data, disk] = numbers[..] else {
            anyhow::bail!("unexpected output: {printed}");
        };
        Ok(Self { operators, runners, api_server, etcd_data, disk })
    }

    fn keep_larger(&mut self, other: &Self) {
        self.operators = self.operators.max(other.operators);
        self.runners = self.runners.max(other.runners);
        self.api_server = self.api_server.max(other.api_server);
        self.etcd_data = self.etcd_data.max(other.etcd_data);
        self.disk = self.disk.max(other.disk);
    }

    #[allow(clippy::print_stderr, reason = "prints measured values")]
    fn print(&self, when: &str) {
        let [operators, runners, api_server, etcd_data, disk] =
            [self.operators, self.runners, self.api_server, self.etcd_data, self.disk].map(|kib| kib / 1024);
        eprintln!(
            "  {when}: memory of the operators {operators} MiB, of runners {runners} MiB, of the API server \
             {api_server} MiB; etcd {etcd_data} MiB, pods, images and logs {disk} MiB on disk"
        );
    }
}
