//! Three masters and two workers: creates the cluster, kills each master once, operates it while the first master is dead,
//! and destroys the cluster. Then a user with passwords creates another cluster on the same hosts.

#![allow(clippy::print_stdout, reason = "prints measured times")]

mod bootstrap;
mod degraded;
mod passwords;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::{eventually, folder, must};
use serde_json::json;

const CLUSTER: &str = "ha";
const MINUTE: Duration = Duration::from_secs(60);

fn print_time(what: &str, start: Instant) {
    println!("  {what}: {:.1} s", start.elapsed().as_secs_f64());
}

#[test]
fn three_masters_and_two_workers_survive_each_master() -> Result<()> {
    let lab = TestLab::up("e2e-ha", 5)?;
    let plan = dry_run(&lab)?;
    let planned = planned_steps(&lab, &plan)?;
    let (start, sent) = (Instant::now(), sent_bytes(&lab)?);
    let created = lab.kubeon(&lab.create(CLUSTER, 3))?;
    print_time("create 3 + 2", start);
    hosts_forward_parts(&plan, sent_bytes(&lab)? - sent)?;
    assert_eq!(created.code, 0, "{}", created.err);
    assert_eq!(completed_steps(&created.err), planned, "create executes exactly the planned steps");
    check_logins(&lab)?;
    lab.wait_up_to_date(CLUSTER, MINUTE)?;
    create_marker(&lab)?;
    let start = Instant::now();
    lab.must(&["create", CLUSTER])?;
    print_time("create again without changes", start);
    check_no_file_written(&lab)?;
    lab.must(&["use", CLUSTER])?;
    check_nodes_ready(&lab, 5)?;
    for host in ["h1", "h2", "h3", "h4", "h5"] {
        lab.on(host, "sockets=$(ss -ltn) && ! echo \"$sockets\" | grep ':8080 '")
            .with_context(|| format!("port 8080 of {host} is open"))?;
    }
    assert!(lab.plan(CLUSTER)?.is_empty(), "the plan of a new cluster has no steps");
    create_workloads(&lab)?;
    secure_defaults(&lab)?;
    bootstrap::a_host_requests_a_certificate_only_for_its_node(&lab, CLUSTER)?;
    bootstrap::a_node_changes_only_itself(&lab, CLUSTER)?;
    bootstrap::a_host_gets_no_certificate_of_another_node(&lab, CLUSTER)?;
    for master in ["h1", "h2", "h3"] {
        kill_and_start_master(&lab, master)?;
    }
    lab.must(&["destroy", CLUSTER, "--yes"])?;
    check_bare(&lab)?;
    remove_packet_tools(&lab, "h1")?;
    remove_packet_tools(&lab, "h2")?;
    let start = Instant::now();
    passwords::create(&lab, "again")?;
    print_time("create 1 + 1 on two of the hosts, without nft and iptables", start);
    let tables = lab.on("h2", "PATH=$PATH:/var/lib/kubeon/tools nft list tables")?;
    assert!(tables.contains("table ip kube-proxy"), "created by the bundle's nft: {tables}");
    passwords::destroy(&lab, "again")?;
    check_bare(&lab)
}

/// Checks what no plan shows: Secrets are encrypted in etcd, the audit log is written, daemons run confined, and servers have
/// their limits.
fn secure_defaults(lab: &TestLab) -> Result<()> {
    lab.kubectl(CLUSTER, &["create", "secret", "generic", "sealed", "--from-literal=word=plain"])?;
    let pki = "/etc/kubernetes/pki/etcd";
    let read = format!(
        "etcdctl --endpoints=https://127.0.0.1:2379 --cacert={pki}/ca.crt --cert={pki}/healthcheck-client.crt \
         --key={pki}/healthcheck-client.key get /registry/secrets/default/sealed --print-value-only | head -c 26"
    );
    assert_eq!(lab.on("h2", &read)?, "k8s:enc:secretbox:v1:key1:");
    let recorded = lab.on("h1", "cat /var/log/kubernetes/audit.log | grep -c kube-system || true")?;
    assert!(recorded.trim().parse::<u32>()? > 0, "the audit log of h1 is empty");
    for host in ["h1", "h4"] {
        let files = "/etc/kubernetes/*.yaml /etc/kubernetes/*.conf /etc/containerd/*.toml /var/lib/kubelet/config.yaml";
        let modes = lab.on(host, &format!("stat -c %a {files} | sort -u"))?;
        assert_eq!(modes.trim(), "600", "configuration of {host}");
    }
    for (host, unit) in [("h1", "etcd"), ("h1", "kube-apiserver"), ("h4", "haproxy")] {
        let status = format!("cat /proc/$(systemctl show -p MainPID --value {unit})/status");
        let status = lab.on(host, &status)?;
        assert!(status.contains("NoNewPrivs:\t1"), "{unit}: {status}");
        assert!(status.contains("CapEff:\t0000000000000000"), "{unit}: {status}");
        assert!(unit != "haproxy" || !status.contains("Uid:\t0\t"), "{unit}: {status}");
    }
    api_server_warns_and_refuses(lab)?;
    kubelet_has_its_limits(lab)?;
    old_tls_is_refused(&lab.addresses[0])
}

/// Privileged pods are warned of, and no Service gets an external address. Nothing is stored.
fn api_server_warns_and_refuses(lab: &TestLab) -> Result<()> {
    let refused = |arguments: &[&str], text: &str| match lab.kubectl(CLUSTER, arguments) {
        Ok(done) => bail!("not refused: {done}"),
        Err(error) => {
            let said = format!("{error:#}");
            assert!(said.contains(text), "{text:?} is missing in {said}");
            Ok(())
        }
    };
    let dry_run = "--dry-run=server";
    let privileged = ["run", "privileged", "--image=none", "--privileged", "--warnings-as-errors", dry_run];
    refused(&privileged, "would violate PodSecurity")?;
    let address = r#"{"spec":{"externalIPs":["192.0.2.1"]}}"#;
    let external = ["patch", "service", "kubernetes", "--patch", address, dry_run];
    refused(&external, "external IPs is denied by admission control")
}

/// The kubelet of a worker uses what its file says: a limit of processes, a filter of system calls, and the kernel's parameters.
fn kubelet_has_its_limits(lab: &TestLab) -> Result<()> {
    let file: serde_json::Value = serde_json::from_str(&lab.on("h4", "cat /var/lib/kubelet/config.yaml")?)?;
    let used = lab.kubectl(CLUSTER, &["get", "--raw", "/api/v1/nodes/h4/proxy/configz"])?;
    let used: serde_json::Value = serde_json::from_str(&used)?;
    let used = &used["kubeletconfig"];
    assert_eq!((&used["seccompDefault"], &used["podPidsLimit"]), (&json!(true), &json!(4096)), "{used}");
    // It leaves out what is false, as on a host whose parameters cannot be set.
    let insists = |config: &serde_json::Value| config["protectKernelDefaults"] == json!(true);
    assert_eq!(insists(used), insists(&file), "{used}");
    Ok(())
}

/// etcd, the API server and the kubelet of a master refuse TLS 1.1.
fn old_tls_is_refused(address: &str) -> Result<()> {
    for port in [2379, 6443, 10250] {
        let hello = format!(
            "openssl s_client -connect {address}:{port} -tls1_1 -cipher DEFAULT@SECLEVEL=0 </dev/null 2>&1 || true"
        );
        let answer = must("sh", &["-c", &hello], &[])?;
        assert!(answer.contains("alert protocol version"), "port {port}: {answer}");
    }
    Ok(())
}

/// Removes the programs for packet rules from a host. `create` waits for DNS on every host, and DNS is a
/// Service: it answers only if kube-proxy has written its rules.
fn remove_packet_tools(lab: &TestLab, host: &str) -> Result<()> {
    lab.on(
        host,
        "rm -f /usr/sbin/nft /usr/sbin/conntrack /usr/sbin/iptables* /usr/sbin/ip6tables* /usr/sbin/xtables*",
    )?;
    let found = lab.on(host, "command -v nft iptables || echo none")?;
    assert_eq!(found.trim(), "none");
    Ok(())
}

fn dry_run(lab: &TestLab) -> Result<serde_json::Value> {
    let mut arguments = lab.create(CLUSTER, 3);
    arguments.extend(["--dry-run", "-o", "json"]);
    Ok(serde_json::from_str(&lab.must(&arguments)?)?)
}

/// The bytes that this machine sent to the hosts of the lab.
fn sent_bytes(lab: &TestLab) -> Result<u64> {
    let path = format!("/sys/class/net/{}/statistics/tx_bytes", lab.link()?);
    Ok(std::fs::read_to_string(path)?.trim().parse()?)
}

/// Five hosts need the parts of the bundle, and this machine sends each part once.
fn hosts_forward_parts(plan: &serde_json::Value, sent: u64) -> Result<()> {
    let steps = plan["steps"].as_array().context("the plan has no steps")?;
    let parts = steps.iter().map(|step| &step["op"]).filter(|op| op["op"] == "part");
    let sizes: Vec<(&str, u64)> =
        parts.filter_map(|part| Some((part["digest"].as_str()?, part["size"].as_u64()?))).collect();
    let each: u64 = sizes.iter().copied().collect::<BTreeMap<_, _>>().values().sum();
    let all: u64 = sizes.iter().map(|(_, size)| size).sum();
    println!("  of parts of {} MiB for all hosts, {} MiB were sent from here", all >> 20, sent >> 20);
    // The node program, the images of the bundle and everything else.
    let more = 100 << 20;
    assert!(all > 3 * each && sent < each + more, "{sent} bytes were sent, the bundle has {each}");
    Ok(())
}

/// All steps of the plan, as `HOST  ✓ TITLE`.
fn planned_steps(lab: &TestLab, plan: &serde_json::Value) -> Result<Vec<String>> {
    let line = |step: &serde_json::Value| {
        let address = step["host"].as_str()?;
        let host = lab.addresses.iter().position(|host| host == address)? + 1;
        Some(format!("h{host}  ✓ {}", step["title"].as_str()?))
    };
    let steps = plan["steps"].as_array().context("the plan has no steps")?;
    let mut lines: Vec<String> = steps.iter().filter_map(line).collect();
    assert!(lines.len() == steps.len() && lines.len() > 100, "{plan}");
    lines.sort_unstable();
    Ok(lines)
}

/// All steps in the output of `create`, without the time before and the duration after each.
fn completed_steps(output: &str) -> Vec<String> {
    let line = |line: &str| {
        let (_, line) = line.split_once("  ")?;
        Some(line.rsplit_once(" (")?.0.to_owned()).filter(|line| line.contains("  ✓ "))
    };
    let mut lines: Vec<String> = output.lines().filter_map(line).collect();
    lines.sort_unstable();
    lines
}

/// Checks that no host had more than three logins, including those of the plan before `create`.
fn check_logins(lab: &TestLab) -> Result<()> {
    for host in 1..=lab.addresses.len() {
        let name = format!("h{host}");
        let count = lab.on(&name, "journalctl -q --no-pager _COMM=sshd | grep -c 'Accepted '")?;
        // This command is one more login.
        assert!((2..=4).contains(&count.trim().parse::<u32>()?), "{name} had {count} logins");
    }
    Ok(())
}

/// Creates a file on every host, whose time [`check_no_file_written`] compares.
fn create_marker(lab: &TestLab) -> Result<()> {
    for host in 1..=lab.addresses.len() {
        lab.on(&format!("h{host}"), "touch /run/mark && sleep 0.1")?;
    }
    Ok(())
}

/// Checks that since [`create_marker`] no file was written in kubeon's folders and in the static folders of a host.
fn check_no_file_written(lab: &TestLab) -> Result<()> {
    let command =
        "find /etc /usr /opt /home /srv /boot /var/lib/kubeon /var/lib/kubelet/config.yaml -newer /run/mark";
    for host in 1..=lab.addresses.len() {
        let name = format!("h{host}");
        let written = lab.on(&name, command)?;
        assert_eq!(written.trim(), "", "written on {name}");
    }
    Ok(())
}

fn check_nodes_ready(lab: &TestLab, count: usize) -> Result<()> {
    let text = lab.kubectl(CLUSTER, &["get", "nodes", "-o", "json"])?;
    let nodes: serde_json::Value = serde_json::from_str(&text)?;
    let ready = nodes["items"].as_array().context("no list")?.iter().filter(|node| is_ready(node)).count();
    if ready == count { Ok(()) } else { bail!("{ready} of {count} nodes are Ready:\n{text}") }
}

fn is_ready(node: &serde_json::Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.is_some_and(|all| {
        all.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    })
}

/// Creates a Deployment on both workers, a Service and the permissions of the writer, and checks DNS from a
/// pod.
fn create_workloads(lab: &TestLab) -> Result<()> {
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

/// Kills a master while a pod writes through its worker's haproxy, and starts the master again.
fn kill_and_start_master(lab: &TestLab, master: &str) -> Result<()> {
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
        .context("the admin kubeconfig does not work without the master")?;
    print_time(&format!("kubectl answers with {master} dead, after"), start);
    if master == "h1" {
        use_selects_a_running_master(lab)?;
    }
    let phase = eventually("the writer ends", 3 * MINUTE, || {
        let phase = lab.kubectl(CLUSTER, &["get", "pod", &pod, "-o", "jsonpath={.status.phase}"])?;
        if matches!(phase.as_str(), "Succeeded" | "Failed") {
            Ok(phase)
        } else {
            bail!("the phase of the pod is {phase}")
        }
    })?;
    let log = lab.kubectl(CLUSTER, &["logs", &pod])?;
    println!("  {master} lost power: {}", log.trim());
    assert_eq!(phase, "Succeeded", "no write is lost: {log}");
    let degraded = (master == "h1").then(|| degraded::operate(lab, CLUSTER)).transpose()?;
    let start = Instant::now();
    lab.host("start", master)?;
    eventually("all nodes are Ready again", 3 * MINUTE, || check_nodes_ready(lab, 5))?;
    if let Some(took) = degraded {
        degraded::repair(lab, CLUSTER, took)?;
    }
    lab.wait_up_to_date(CLUSTER, 3 * MINUTE)?;
    print_time(&format!("{master} started, cluster healthy again after"), start);
    Ok(())
}

/// If the hosts file is not writable, `use` selects a context with a master that answers; otherwise the
/// context of all masters.
fn use_selects_a_running_master(lab: &TestLab) -> Result<()> {
    let hosts = lab.file("hosts");
    std::fs::write(&hosts, "127.0.0.1 localhost\n")?;
    // A file that is a mount point cannot be replaced.
    let line = format!(
        "mount --bind '{}' /etc/hosts && exec '{}' use {CLUSTER} -o json",
        hosts.display(),
        folder().join("kubeon").display()
    );
    let own = lab.environment();
    let own: Vec<(&str, &str)> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let output = must("unshare", &["--mount", "sh", "-ec", &line], &own)?;
    let chosen: serde_json::Value = serde_json::from_str(&output)?;
    let context = chosen["context"].as_str().context("no context")?;
    assert!(["ha-h2", "ha-h3"].contains(&context), "{chosen}");
    lab.kubectl(CLUSTER, &["get", "nodes", "--request-timeout=10s"])
        .context("the selected context does not work")?;
    lab.must(&["use", CLUSTER])?;
    assert_eq!(lab.kubectl(CLUSTER, &["config", "current-context"])?.trim(), CLUSTER);
    lab.kubectl(CLUSTER, &["get", "nodes", "--request-timeout=30s"]).map(drop)
}

/// Checks that no host has leftovers of a cluster.
fn check_bare(lab: &TestLab) -> Result<()> {
    for host in 1..=lab.addresses.len() {
        let list = "ls -d /var/lib/kubeon /etc/kubernetes /var/lib/etcd /var/lib/kubelet 2>/dev/null; \
                    pgrep -l 'kube|etcd|containerd|flanneld|haproxy'; ip -o link | grep -E 'cni0|flannel'; true";
        let name = format!("h{host}");
        let left = lab.on(&name, list)?;
        assert_eq!(left.trim(), "", "left on {name}");
    }
    Ok(())
}
