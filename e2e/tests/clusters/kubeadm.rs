//! A cluster that kubeadm made is adopted: it keeps its keys, its network and its pods, and changes from then on as every cluster in
//! container mode.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use kubeon_e2e::program::{eventually, must};
use serde_json::Value;

const MINUTE: Duration = Duration::from_secs(60);
/// kubectl of kubeadm on a master.
const KUBECTL: &str = "kubectl --kubeconfig /etc/kubernetes/admin.conf";

#[test]
#[ignore = "takes ten minutes: ./test long"]
fn soak_kubeon_adopts_a_cluster_that_kubeadm_made() -> Result<()> {
    let lab = TestLab::up("e2e-kubeadm", 5)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    timed("kubeadm makes 3 + 1", || made_by_kubeadm(&lab))?;
    start_pods(&lab)?;
    let (pods, authority) = (pods(&lab)?, lab.on("h1", "cat /etc/kubernetes/pki/ca.crt")?);
    let token = lab.on("h1", &format!("{KUBECTL} create token default --duration=2h"))?;

    refusals(&lab)?;
    let adopt = ["adopt", cluster, "-m", &hosts[0], "-o", "json"];
    let shown: Value = serde_json::from_str(&lab.must(&[&adopt[..], &["--dry-run"]].concat())?)?;
    let ids: Vec<&str> = steps(&shown["plan"]).collect();
    for id in ["etcd/member@h2", "control/apiserver@h3", "join/kubelet@h4", "network/remove-kubeadm"] {
        ensure!(ids.contains(&id), "{id} is missing in {ids:?}");
    }
    ensure!(!lab.file(&format!("{cluster}.json")).exists(), "a dry run stores nothing");
    let adopted: Value = serde_json::from_str(&lab.must(&adopt)?)?;
    ensure!(adopted["masters"].as_array().is_some_and(|masters| masters.len() == 3), "{adopted}");
    let key = fs::read_to_string(lab.file(&format!("secret/{cluster}/ca-kubernetes.pem")))?;
    ensure!(
        key.contains("RSA PRIVATE KEY") && key.contains(authority.trim()),
        "the keys are taken as they are"
    );
    lab.on("h1", "! ls -d /var/lib/kubeon 2>/dev/null")?;

    timed("the first change", || lab.must(&["create", cluster]))?;
    lab.must(&["use", cluster])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    ensure!(self::pods(&lab)? == pods, "pods of users run on: {pods}, now {}", self::pods(&lab)?);
    ensure!(
        lab.on("h1", "cat /etc/kubernetes/pki/ca.crt")?.trim() == authority.trim(),
        "the authority stays"
    );
    taken_over(&lab, token.trim())?;
    let again = lab.kubeon(&["adopt", "another", "-m", &hosts[0]])?;
    ensure!(again.code == 2 && again.err.contains(&format!("belongs to cluster {cluster}")), "{again:?}");

    lab.must(&["config", "set", cluster, "network.maxPods=100"])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    timed("a worker is added", || added(&lab))?;
    timed("the first master leaves", || lab.must(&["delon", cluster, "h1", "--yes"]))?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    lab.must(&["destroy", cluster, "--yes"]).map(drop)
}

fn timed<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let done = work()?;
    println!("  {what}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(done)
}

/// Three masters and a worker of the bundle's kubeadm.
fn made_by_kubeadm(lab: &TestLab) -> Result<()> {
    let listed: Value = serde_json::from_str(&lab.must(&["bundle", "ls", "-o", "json"])?)?;
    let bundle = listed.as_array().context("no list")?.iter().find(|bundle| bundle["version"] == VERSION);
    let bundle = bundle.and_then(|bundle| bundle["folder"].as_str()).context("the bundle is not built")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/bench/kubeadm");
    let (key, known) = (lab.key().display().to_string(), lab.file("kubeadm-hosts").display().to_string());
    let masters = lab.addresses[..3].join(" ");
    must(script, &[&key, &known, &masters, &lab.addresses[3], bundle, VERSION], &[]).map(drop)
}

/// Pods of users, on the worker.
fn start_pods(lab: &TestLab) -> Result<()> {
    let image = "$(ctr -n k8s.io images ls -q | grep /pause: | head -1)";
    lab.on("h1", &format!("{KUBECTL} create deployment idle --replicas=2 --image={image}"))?;
    lab.on("h1", &format!("{KUBECTL} rollout status deployment idle --timeout=120s")).map(drop)
}

/// The identities and the restarts of the pods of users.
fn pods(lab: &TestLab) -> Result<String> {
    let columns = "-o=custom-columns=UID:.metadata.uid,NODE:.spec.nodeName,RESTARTS:.status.containerStatuses[0].restartCount";
    lab.on("h1", &format!("{KUBECTL} get pods -l app=idle --sort-by=.metadata.uid '{columns}'"))
}

fn steps(plan: &Value) -> impl Iterator<Item = &str> {
    plan["steps"].as_array().into_iter().flatten().filter_map(|step| step["id"].as_str())
}

/// What kubeon would not keep is named, and nothing is stored.
fn refusals(lab: &TestLab) -> Result<()> {
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    let refused = |arguments: &[&str], words: &str| -> Result<()> {
        let answer = lab.kubeon(&[&["adopt", cluster], arguments].concat())?;
        ensure!(answer.code == 2 && answer.err.contains(words), "{words:?} is missing in {answer:?}");
        ensure!(!lab.file(&format!("{cluster}.json")).exists(), "{words}: it was stored");
        Ok(())
    };
    let foreign = "/etc/kubernetes/manifests/own.yaml";
    lab.on("h4", &format!("mkdir -p /etc/kubernetes/manifests && echo '# not a pod' >{foreign}"))?;
    refused(&["-m", &hosts[0]], "has the static pod own.yaml")?;
    lab.on("h4", &format!("rm {foreign}"))?;
    lab.on("h4", "cp -p /var/lib/kubelet/config.yaml /root/kept && echo 'podPidsLimit: 9' >>/var/lib/kubelet/config.yaml")?;
    refused(&["-m", &hosts[0]], "its kubelet has podPidsLimit")?;
    lab.on("h4", "mv /root/kept /var/lib/kubelet/config.yaml")?;
    refused(&["-m", &hosts[3]], "belongs to no cluster of kubeon")?;
    refused(&["-m", &hosts[0], "-w", &hosts[4]], "is no node of the cluster")
}

/// kubeon runs the programs of all nodes, and the network of the owner goes on.
fn taken_over(lab: &TestLab, token: &str) -> Result<()> {
    for host in ["h1", "h2", "h3", "h4"] {
        lab.on(
            host,
            "systemctl is-active containerd kubelet kube-proxy && ! systemctl cat flanneld 2>/dev/null",
        )?;
        let unit = lab.on(host, "systemctl cat kubelet containerd")?;
        ensure!(
            !unit.contains("KUBELET_KUBEADM_ARGS") && unit.matches("# Written by kubeon").count() >= 2,
            "{unit}"
        );
    }
    for host in ["h1", "h2", "h3"] {
        for pod in ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
            let manifest = lab.on(host, &format!("cat /etc/kubernetes/manifests/{pod}.yaml"))?;
            ensure!(manifest.contains("\n  uid: \""), "kubeon started {pod} of {host}: {manifest}");
        }
    }
    let sets = lab.kubectl(lab.name(), &["get", "daemonsets", "-n", "kube-system", "-o", "name"])?;
    ensure!(sets.trim() == "daemonset.apps/flannel", "{sets}");
    let server = "--kubeconfig=/dev/null --server=https://127.0.0.1:6443 --certificate-authority=/etc/kubernetes/pki/ca.crt";
    let user = lab.on("h1", &format!("kubectl {server} --token={token} auth whoami"))?;
    ensure!(user.contains("system:serviceaccount:default:default"), "tokens stay valid: {user}");
    let members = lab.must(&["etcd", lab.name(), "member", "list", "--write-out=json"])?;
    let members: Value = serde_json::from_str(&members)?;
    ensure!(members["members"].as_array().is_some_and(|members| members.len() == 3), "{members}");
    Ok(())
}

/// Adds a worker. Its network is the owner's: the plugin gets its configuration when the node has its share of the pod network.
fn added(lab: &TestLab) -> Result<()> {
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    let mut addition = lab.spawn(&["addon", cluster, "-w", &hosts[4]])?;
    let network = eventually("the share of h5", 5 * MINUTE, || {
        let network = lab.kubectl(cluster, &["get", "node", "h5", "-o=jsonpath={.spec.podCIDR}"])?;
        ensure!(network.contains('/'), "h5 has no share: {network}");
        Ok(network)
    })?;
    let template = lab.on("h4", "cat /etc/containerd/cni.template")?;
    let text = template.replace("{{.PodCIDR}}", network.trim());
    lab.on(
        "h5",
        &format!("mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-own.conflist <<'T'\n{text}\nT"),
    )?;
    network_image(lab)?;
    ensure!(addition.wait()?.success(), "the addition failed");
    eventually("h5 is Ready", MINUTE, || {
        let nodes = lab.kubectl(cluster, &["get", "nodes", "--no-headers"])?;
        ensure!(nodes.lines().filter(|line| line.contains(" Ready ")).count() == 5, "{nodes}");
        Ok(())
    })
}

/// Sends the file to everyone who connects.
const SHARE: &str = "import socket; s = socket.create_server(('', 8099))\nwhile True:\n  c, _ = s.accept()\n  c.sendall(open('/run/network.tar', 'rb').read())\n  c.close()";

/// The image of the owner's network comes to h5 from another node: the lab has no registry.
fn network_image(lab: &TestLab) -> Result<()> {
    let image = "$(ctr -n k8s.io images ls -q | grep flannel: | head -1)";
    let share = format!(
        "printf \"{SHARE}\" >/run/share.py && systemd-run --quiet --unit=share python3 /run/share.py"
    );
    lab.on("h4", &format!("ctr -n k8s.io images export /run/network.tar {image} && {share}"))?;
    let fetch = format!(
        "import socket; c = socket.create_connection(('{}', 8099)); f = open('/run/network.tar', 'wb')\nwhile b := c.recv(1 << 20): f.write(b)",
        lab.addresses[3]
    );
    eventually("the image is on h5", MINUTE, || {
        lab.on("h5", &format!("python3 -c \"{fetch}\" && ctr -n k8s.io images import /run/network.tar"))
            .map(drop)
    })?;
    lab.on("h4", "systemctl stop share").map(drop)
}
