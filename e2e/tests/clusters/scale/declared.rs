//! Kernel parameters and taints come and go while the cluster runs, and restart nothing. An argument that a program does not
//! know stops before anything restarts.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);
const PARAMETER: &str = "net.ipv4.tcp_keepalive_time";
const IN_KERNEL: &str = "cat /proc/sys/net/ipv4/tcp_keepalive_time";

/// On a cluster of a master and two workers with default settings.
pub(super) fn parameters_and_taints_come_and_go(lab: &TestLab, cluster: &str) -> Result<()> {
    lab.wait_up_to_date(cluster, MINUTE)?;
    let before = (kubelets(lab)?, lab.on("h3", IN_KERNEL)?);
    let refused = lab.kubeon(&["config", "set", cluster, "kernelParameters.net.ipv4.ip_forward=0"])?;
    ensure!(refused.code == 2 && refused.err.contains("is set to 1 by kubeon"), "{refused:?}");
    let file = declare(lab, cluster, &json!({ PARAMETER: "611" }))?;
    let planned: Value =
        serde_json::from_str(&lab.must(&["create", "-f", &file, "--dry-run", "-o", "json"])?)?;
    for text in ["taint node h3 with dedicated=gpu:NoSchedule", "net.ipv4.tcp_keepalive_time=611"] {
        ensure!(planned.to_string().contains(text), "{text:?} is missing in {planned}");
    }
    lab.must(&["create", "-f", &file])?;
    ensure!(lab.on("h3", IN_KERNEL)?.trim() == "611", "the parameter of h3 must be set");
    lab.on("h2", &format!("grep -qx '{PARAMETER} = 611' /etc/sysctl.d/99-kubeon.conf"))?;
    ensure!(taints(lab, cluster, "h3")? == ["dedicated=gpu:NoSchedule"], "h3 must have its taint");
    ensure!(taints(lab, cluster, "h2")?.is_empty(), "h2 must have none");
    lab.kubectl(cluster, &["taint", "node", "h3", "mine=1:PreferNoSchedule"])?;
    lab.must(&["config", "set", cluster, "kernelParameters="])?;
    ensure!(lab.on("h3", IN_KERNEL)? == before.1, "the parameter of h3 must have its old value");
    ensure!(taints(lab, cluster, "h3")?.len() == 2, "settings change no taints");
    let plain = declared(lab, cluster, &json!({}), &json!([]))?;
    lab.must(&["create", "-f", &plain])?;
    ensure!(taints(lab, cluster, "h3")? == ["mine=1:PreferNoSchedule"], "only the declared taint is removed");
    lab.kubectl(cluster, &["taint", "node", "h3", "mine-"])?;
    ensure!(kubelets(lab)? == before.0, "no kubelet may restart");
    unknown_argument_restarts_nothing(lab, cluster)
}

fn unknown_argument_restarts_nothing(lab: &TestLab, cluster: &str) -> Result<()> {
    let before = kubelets(lab)?;
    let failed = lab.kubeon(&["config", "set", cluster, "extraArgs.kubelet.no-such=1"])?;
    ensure!(failed.code == 1 && failed.err.contains("unknown flag: --no-such"), "{failed:?}");
    let failed = lab.kubeon(&[
        "config",
        "set",
        cluster,
        "extraArgs.kubelet.no-such=",
        "extraArgs.etcd.no-such=1",
        "extraArgs.kubeScheduler.v=words",
    ])?;
    ensure!(failed.code == 1 && failed.err.contains("flag provided but not defined: -no-such"), "{failed:?}");
    ensure!(kubelets(lab)? == before, "no kubelet may restart");
    lab.must(&["config", "set", cluster, "extraArgs="])?;
    ensure!(kubelets(lab)? == before, "no kubelet may restart");
    lab.wait_up_to_date(cluster, MINUTE)
}

fn declare(lab: &TestLab, cluster: &str, parameters: &Value) -> Result<String> {
    let taints = json!([{ "key": "dedicated", "value": "gpu", "effect": "NoSchedule" }]);
    declared(lab, cluster, parameters, &taints)
}

/// Writes the declaration. Returns its path.
fn declared(lab: &TestLab, cluster: &str, parameters: &Value, taints: &Value) -> Result<String> {
    let [master, worker, tainted] = [0, 1, 2].map(|index| lab.addresses[index].as_str());
    let document = json!({
        "apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": { "name": cluster },
        "spec": { "cluster": {
            "kubeVersion": VERSION, "masterList": [{ "ip": master }],
            "nodeList": [{ "ip": worker }, { "ip": tainted, "taints": taints }],
            "kernelParameters": parameters,
        } },
    });
    let path = lab.file("declared.yaml");
    fs::write(&path, document.to_string())?;
    path.to_str().map(str::to_owned).context("the path is no text")
}

/// The taints of a node, sorted.
fn taints(lab: &TestLab, cluster: &str, node: &str) -> Result<Vec<String>> {
    let text = r#"jsonpath={range .spec.taints[*]}{.key}={.value}:{.effect}{"\n"}{end}"#;
    let listed = lab.kubectl(cluster, &["get", "node", node, "-o", text])?;
    let mut taints: Vec<String> = listed.lines().map(str::to_owned).collect();
    taints.sort_unstable();
    Ok(taints)
}

/// When the kubelets were started.
fn kubelets(lab: &TestLab) -> Result<Vec<String>> {
    ["h1", "h2", "h3"]
        .iter()
        .map(|host| lab.on(host, "systemctl show -P ExecMainStartTimestampMonotonic kubelet"))
        .collect()
}
