//! Files of users, in parallel: a script that replaces the generated one, actions from a ConfigMap in
//! kubeon's image and in a foreign one, and inventories with additional groups.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::ends::{failed, log_says};
use super::environment::{MetaCluster, condition};
use super::seed::{CLUSTERS, OPERATIONS, cluster, done, operate_on, reference};
use super::{SEED, foreign};

/// The ConfigMap with scripts and a playbook, and those with inventories. Their names differ from those that
/// are deleted with a Cluster.
const FILES: &str = "brought-along";
const RACKS: &str = "hosts-in-racks";
const MISNAMED: &str = "hosts-in-misnamed-groups";

const SCRIPT: &str = "#!/bin/bash\necho a script of its own for $CLUSTER_NAME\n";
const COMMAND: &str = "#!/bin/bash\necho a command out of a ConfigMap\n";
const PLAYBOOK: &str = "\
- hosts: all
  gather_facts: false
  tasks:
    - name: It says where it is
      ansible.builtin.debug:
        msg: brought along for {{ inventory_hostname }}
";

/// Starts all operations.
pub(crate) fn begin(meta: &MetaCluster) -> Result<()> {
    let files = json!({"entrypoint.sh": SCRIPT, "hello.sh": COMMAND, "mine.yml": PLAYBOOK});
    config_map(meta, FILES, &files)?;
    config_map(meta, RACKS, &json!({"hosts.yml": with_group(meta, "blue_rack")?}))?;
    config_map(meta, MISNAMED, &json!({"hosts.yml": with_group(meta, "kube_nodes")?}))?;
    let command = from_map("shell", "hello.sh");
    let mut playbook = from_map("playbook", "mine.yml");
    playbook["image"] = json!(foreign::IMAGE);
    playbook["preHook"] = json!([command]);
    let generated = "echo made of the action";
    for (name, spec) in [
        ("script", json!({"actionType": "shell", "action": generated, "entrypointSHRef": reference(FILES)})),
        ("command", command),
        ("playbook", playbook),
        ("groups", precheck(MISNAMED)),
    ] {
        let name = format!("brought-{name}");
        cluster(meta, &name)?;
        operate_on(meta, &name, &format!("does-{name}"), &spec)?;
    }
    operate_on(meta, "sample", "sample-precheck", &precheck(RACKS))
}

fn config_map(meta: &MetaCluster, name: &str, data: &Value) -> Result<()> {
    meta.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": SEED}, "data": data}))
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
fn from_map(kind: &str, file: &str) -> Value {
    json!({"actionType": kind, "action": file, "actionSource": "configmap", "actionSourceRef": reference(FILES)})
}

fn precheck(hosts: &str) -> Value {
    json!({"actionType": "playbook", "action": "precheck.yml", "hostsConfRef": reference(hosts)})
}

/// Checks the results.
pub(crate) fn as_expected(meta: &MetaCluster) -> Result<()> {
    done(meta, "does-brought-script")?;
    let (own, generated) = ("a script of its own for brought-script", "made of the action");
    log_says(meta, "does-brought-script", &[own], &[generated])?;
    let command = "a command out of a ConfigMap";
    done(meta, "does-brought-command")?;
    log_says(meta, "does-brought-command", &[command], &[])?;
    done(meta, "does-brought-playbook")?;
    let words = [command, "brought along for master01", "PLAY RECAP"];
    log_says(meta, "does-brought-playbook", &words, &[])?;
    prechecked(meta)?;
    misnamed(meta)?;
    for name in ["script", "command", "playbook", "groups"] {
        meta.kubectl(&["delete", CLUSTERS, &format!("brought-{name}"), "--wait=false"])?;
    }
    Ok(())
}

/// The precheck passes, the log names the group without a role, and the host is not changed.
fn prechecked(meta: &MetaCluster) -> Result<()> {
    done(meta, "sample-precheck")?;
    let status = meta.get(&[OPERATIONS, "sample-precheck"])?["status"].clone();
    let fit = condition(&status, "Prechecked").with_context(|| format!("{status:#}"))?;
    ensure!(fit["status"] == "True" && fit["reason"] == "Passed", "{fit:#}");
    log_says(meta, "sample-precheck", &["group blue_rack: kubeon does not know it"], &[])?;
    meta.lab.is_bare("h2")
}

/// A misspelled group of a role fails the operation before a host is changed.
fn misnamed(meta: &MetaCluster) -> Result<()> {
    let reason = failed(meta, "does-brought-groups")?;
    let words = "group kube_nodes: is unknown; did you mean kube_node?";
    ensure!(reason.contains(words), "{reason}");
    log_says(meta, "does-brought-groups", &[words], &[])
}
