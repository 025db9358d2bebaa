//! What people bring along, side by side: a script in place of the one that is made, actions out of a ConfigMap, in an image
//! of ours and in one of somebody else, inventories with groups of their own.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::ends::{failed, log_says};
use super::environment::{MetaCluster, condition};
use super::seed::{CLUSTERS, OPERATIONS, cluster, done, operate_on, reference};
use super::{SEED, foreign};

/// The ConfigMap with scripts and playbook, and those with inventories. None is named as those that go with a Cluster.
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

/// Begins all of them.
pub(crate) fn begin(meta: &MetaCluster) -> Result<()> {
    let files = json!({"entrypoint.sh": SCRIPT, "hello.sh": COMMAND, "mine.yml": PLAYBOOK});
    config_map(meta, FILES, &files)?;
    config_map(meta, RACKS, &json!({"hosts.yml": with_group(meta, "blue_rack")?}))?;
    config_map(meta, MISNAMED, &json!({"hosts.yml": with_group(meta, "kube_nodes")?}))?;
    let command = from_map("shell", "hello.sh");
    let mut playbook = from_map("playbook", "mine.yml");
    playbook["image"] = json!(foreign::IMAGE);
    playbook["preHook"] = json!([command]);
    let made = "echo made of the action";
    for (name, spec) in [
        ("script", json!({"actionType": "shell", "action": made, "entrypointSHRef": reference(FILES)})),
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

/// The samples' first inventory, its master in one more group.
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

/// What came of them.
pub(crate) fn as_expected(meta: &MetaCluster) -> Result<()> {
    done(meta, "does-brought-script")?;
    let (own, made) = ("a script of its own for brought-script", "made of the action");
    log_says(meta, "does-brought-script", &[own], &[made])?;
    let command = "a command out of a ConfigMap";
    done(meta, "does-brought-command")?;
    log_says(meta, "does-brought-command", &[command], &[])?;
    done(meta, "does-brought-playbook")?;
    let words = [command, "brought along for master01", "PLAY RECAP"];
    log_says(meta, "does-brought-playbook", &words, &[])?;
    looked_at(meta)?;
    misnamed(meta)?;
    for name in ["script", "command", "playbook", "groups"] {
        meta.kubectl(&["delete", CLUSTERS, &format!("brought-{name}"), "--wait=false"])?;
    }
    Ok(())
}

/// The host is fit, which its operation tells; a group that gives no role is named. Nothing was written to the host.
fn looked_at(meta: &MetaCluster) -> Result<()> {
    done(meta, "sample-precheck")?;
    let status = meta.get(&[OPERATIONS, "sample-precheck"])?["status"].clone();
    let fit = condition(&status, "Prechecked").with_context(|| format!("{status:#}"))?;
    ensure!(fit["status"] == "True" && fit["reason"] == "Passed", "{fit:#}");
    log_says(meta, "sample-precheck", &["group blue_rack: kubeon does not know it"], &[])?;
    meta.lab.is_bare("h2")
}

/// A group that was meant to give a role stops it before any host is touched.
fn misnamed(meta: &MetaCluster) -> Result<()> {
    let reason = failed(meta, "does-brought-groups")?;
    let words = "group kube_nodes: is unknown; did you mean kube_node?";
    ensure!(reason.contains(words), "{reason}");
    log_says(meta, "does-brought-groups", &[words], &[])
}
