//! The objects of kube-on-kube's samples, changed only in addresses, key and variables.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{Ground, MINUTE, SEED, ends, told};

/// The kind, as no other is called.
pub const CLUSTERS: &str = "clusters.kubeonkube.clay.io";
/// The same of operations.
pub const OPERATIONS: &str = "clusteroperations.kubeonkube.clay.io";

/// The image that the samples name; the runner's image carries that name as well.
const IMAGE: &str = "wangzhichidocker/kubeonkube:v0.1";

/// A shell action, then a cluster by `cluster.yml`, a worker by `scale.yml`, and bare hosts by `reset.yml`.
pub fn shell_and_playbooks(ground: &Ground) -> Result<()> {
    let hosts = [ground.lab.addresses[1].as_str(), &ground.lab.addresses[2]];
    inventory(ground, &hosts[..1])?;
    cluster(ground, "sample")?;
    ends::begin(ground)?;
    operate(
        ground,
        "sample-shell",
        json!({"actionType": "shell", "action": "echo the hosts: $(wc -l < /conf/hosts.yml) lines"}),
    )?;
    done(ground, "sample-shell")?;
    let pod = "job-name=kubeonkube-sample-shell-job";
    ground.kubectl(&["-n", "kubeon-system", "delete", "pod", "-l", pod])?;
    ends::log_says(ground, "sample-shell", &["the hosts: "], &[])?;
    ends::as_expected(ground)?;
    operate(
        ground,
        "sample-create",
        json!({"actionType": "playbook", "action": "cluster.yml",
        "preHook": [{"actionType": "playbook", "action": "ping.yml"}]}),
    )?;
    ground.kill_operators()?;
    done(ground, "sample-create")?;
    inventory(ground, &hosts)?;
    operate(
        ground,
        "sample-node-add",
        json!({"actionType": "playbook", "action": "scale.yml", "extraArgs": "--limit=worker01"}),
    )?;
    done(ground, "sample-node-add")?;
    let ready = r#"kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes -o jsonpath='{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}'"#;
    let nodes = ground.lab.on("h2", ready)?;
    ensure!(nodes.trim() == "master01=True worker01=True", "{nodes}");
    operate(
        ground,
        "sample-reset",
        json!({"actionType": "playbook", "action": "reset.yml", "extraArgs": "-e reset_confirmation=yes"}),
    )?;
    done(ground, "sample-reset")?;
    ground.is_bare("h2")?;
    ground.is_bare("h3")?;
    history(ground)?;
    ground.kubectl(&["delete", CLUSTERS, "sample", "--timeout=60s"]).map(drop)
}

/// A Cluster on the inventory of the samples.
pub fn cluster(ground: &Ground, name: &str) -> Result<()> {
    ground.apply(&json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "namespace": SEED, "labels": {"clusterName": name}},
        "spec": {"hostsConfRef": reference("sample-hosts-conf"), "varsConfRef": reference("sample-vars-conf"),
            "sshAuthRef": reference("sample-ssh-auth")}}))
}

fn reference(name: &str) -> Value {
    json!({"namespace": SEED, "name": name})
}

/// The ConfigMaps as kubespray's users write them, and the key.
fn inventory(ground: &Ground, hosts: &[&str]) -> Result<()> {
    let name = |i: usize| if i == 0 { "master01".to_owned() } else { format!("worker0{i}") };
    let host = |(i, ip): (usize, &&str)| {
        format!(
            "    {}: {{ip: {ip}, access_ip: {ip}, ansible_host: {ip}, ansible_connection: ssh, ansible_user: root}}\n",
            name(i)
        )
    };
    let all: String = hosts.iter().enumerate().map(host).collect();
    let workers: String = (1..hosts.len()).map(|i| format!("{}: , ", name(i))).collect();
    let file = format!(
        "all:\n  hosts:\n{all}  children:\n    kube_control_plane: {{hosts: {{master01: }}}}\n    kube_node: {{hosts: {{{workers}}}}}\n    \
         etcd: {{hosts: {{master01: }}}}\n    k8s_cluster: {{children: {{kube_control_plane: , kube_node: }}}}\n    calico_rr: {{hosts: {{}}}}\n"
    );
    let variables = "kube_version: v1.36.3\nkube_network_plugin: flannel\ncontainer_manager: containerd\n";
    let map = |name: &str, key: &str, text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": SEED}, "data": {key: text}});
    ground.apply(&map("sample-hosts-conf", "hosts.yml", &file))?;
    ground.apply(&map("sample-vars-conf", "group_vars.yml", variables))?;
    let key = std::fs::read_to_string(ground.lab.key())?;
    ground.apply(&json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/ssh-auth",
        "metadata": {"name": "sample-ssh-auth", "namespace": SEED}, "stringData": {"ssh-privatekey": key}}))
}

fn operate(ground: &Ground, name: &str, action: Value) -> Result<()> {
    operate_on(ground, "sample", name, &action)
}

/// An operation with these fields in its spec, in the image of the samples unless they name another.
pub fn operate_on(ground: &Ground, cluster: &str, name: &str, action: &Value) -> Result<()> {
    let mut spec = json!({"cluster": cluster, "image": IMAGE});
    for (field, value) in action.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    ground.apply(&json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
        "metadata": {"name": name, "namespace": SEED}, "spec": spec}))
}

/// Waits until it ended well.
pub fn done(ground: &Ground, name: &str) -> Result<()> {
    let start = Instant::now();
    let succeeded = ground.eventually(&format!("{name} ends"), MINUTE * 5, || {
        let status = ground.get(&[OPERATIONS, name])?["status"].clone();
        let word = status["status"].as_str().unwrap_or_default();
        ensure!(word == "Succeeded" || word == "Failed", "{status:#}");
        Ok(word == "Succeeded")
    })?;
    ensure!(succeeded, "{name} failed\n{}", ground.story(OPERATIONS, name));
    told(name, start);
    Ok(())
}

/// Every operation of the cluster stands in its status with how it ended.
fn history(ground: &Ground) -> Result<()> {
    ground.eventually("the history", MINUTE, || {
        let cluster = ground.get(&[CLUSTERS, "sample"])?;
        let entries = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let succeeded = entries.iter().filter(|entry| entry["status"] == "Succeeded").count();
        ensure!(succeeded == 4 && entries.len() == 4, "{entries:#?}");
        Ok(())
    })
}
