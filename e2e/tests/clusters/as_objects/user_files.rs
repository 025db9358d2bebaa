//! Files of users, in parallel: a script that replaces the generated one, actions from a ConfigMap in
//! kubeon's image and in a foreign one, and inventories with additional groups.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::environment::{MetaCluster, condition};
use super::operation_results::{log_contains, wait_failed};
use super::samples::{CLUSTERS, OPERATIONS, cluster, operate_on, reference, wait_succeeded};
use super::{SAMPLES_NAMESPACE, foreign_image};

/// The ConfigMap with scripts and a playbook, and those with inventories. Their names differ from those that
/// are deleted with a Cluster.
const FILES: &str = "user-files";
const RACKS: &str = "hosts-in-racks";
const MISNAMED: &str = "hosts-in-misnamed-groups";

const SCRIPT: &str = "#!/bin/bash\necho user script for $CLUSTER_NAME\n";
const COMMAND: &str = "#!/bin/bash\necho command from a ConfigMap\n";
const PLAYBOOK: &str = "\
- hosts: all
  gather_facts: false
  tasks:
    - name: Print the host
      ansible.builtin.debug:
        msg: user playbook on {{ inventory_hostname }}
";

/// Starts all operations.
pub(crate) fn start(meta: &MetaCluster) -> Result<()> {
    let files = json!({"entrypoint.sh": SCRIPT, "hello.sh": COMMAND, "mine.yml": PLAYBOOK});
    config_map(meta, FILES, &files)?;
    config_map(meta, RACKS, &json!({"hosts.yml": with_group(meta, "blue_rack")?}))?;
    config_map(meta, MISNAMED, &json!({"hosts.yml": with_group(meta, "kube_nodes")?}))?;
    let command = action_from_config_map("shell", "hello.sh");
    let mut playbook = action_from_config_map("playbook", "mine.yml");
    playbook["image"] = json!(foreign_image::IMAGE);
    playbook["preHook"] = json!([command]);
    let generated = "echo generated from the action";
    for (name, spec) in [
        ("script", json!({"actionType": "shell", "action": generated, "entrypointSHRef": reference(FILES)})),
        ("command", command),
        ("playbook", playbook),
        ("groups", precheck(MISNAMED)),
    ] {
        let name = format!("user-{name}");
        cluster(meta, &name)?;
        operate_on(meta, &name, &format!("run-{name}"), &spec)?;
    }
    operate_on(meta, "sample", "sample-precheck", &precheck(RACKS))
}

fn config_map(meta: &MetaCluster, name: &str, data: &Value) -> Result<()> {
    meta.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": SAMPLES_NAMESPACE}, "data": data}))
}

/// The samples' first inventory with its master in an additional group.
fn with_group(meta: &MetaCluster, group: &str) -> Result<String> {
    let address = meta.address("h2")?;
    Ok(format!(
        "all:\n  hosts:\n    master01: {{ip: {address}, access_ip: {address}, ansible_host: {address}, ansible_user: root}}\n  \
         children:\n    kube_control_plane: {{hosts: {{master01: }}}}\n    {group}: {{hosts: {{master01: }}}}\n"
    ))
}

/// Contract A, case 35.
fn action_from_config_map(kind: &str, file: &str) -> Value {
    json!({"actionType": kind, "action": file, "actionSource": "configmap", "actionSourceRef": reference(FILES)})
}

fn precheck(hosts: &str) -> Value {
    json!({"actionType": "playbook", "action": "precheck.yml", "hostsConfRef": reference(hosts)})
}

/// Checks the results.
pub(crate) fn check(meta: &MetaCluster) -> Result<()> {
    wait_succeeded(meta, "run-user-script")?;
    let (own, generated) = ("user script for user-script", "generated from the action");
    log_contains(meta, "run-user-script", &[own], &[generated])?;
    let command = "command from a ConfigMap";
    wait_succeeded(meta, "run-user-command")?;
    log_contains(meta, "run-user-command", &[command], &[])?;
    wait_succeeded(meta, "run-user-playbook")?;
    let texts = [command, "user playbook on master01", "PLAY RECAP"];
    log_contains(meta, "run-user-playbook", &texts, &[])?;
    unknown_group_is_logged(meta)?;
    misspelled_group_fails(meta)?;
    for name in ["script", "command", "playbook", "groups"] {
        meta.kubectl(&["delete", CLUSTERS, &format!("user-{name}"), "--wait=false"])?;
    }
    Ok(())
}

/// The precheck passes, the log names the group without a role, and the host is not changed.
fn unknown_group_is_logged(meta: &MetaCluster) -> Result<()> {
    wait_succeeded(meta, "sample-precheck")?;
    let status = meta.get(&[OPERATIONS, "sample-precheck"])?["status"].clone();
    let prechecked = condition(&status, "Prechecked").with_context(|| format!("{status:#}"))?;
    ensure!(prechecked["status"] == "True" && prechecked["reason"] == "Passed", "{prechecked:#}");
    log_contains(meta, "sample-precheck", &["group blue_rack: kubeon does not know it"], &[])?;
    meta.lab.is_bare("h2")
}

/// A misspelled group of a role fails the operation before a host is changed.
fn misspelled_group_fails(meta: &MetaCluster) -> Result<()> {
    let reason = wait_failed(meta, "run-user-groups")?;
    let text = "group kube_nodes: is unknown; did you mean kube_node?";
    ensure!(reason.contains(text), "{reason}");
    log_contains(meta, "run-user-groups", &[text], &[])
}
