//! A foreign image with other playbooks: Debian with bash and Ansible, without kubeon. Contract A's script is
//! process 1 in it.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kubeon_e2e::image;
use serde_json::{Value, json};

use super::environment::{MetaCluster, OPERATOR, condition, time, within};
use super::operation_results::{self, always, log_contains, shell, wait_failed};
use super::samples::{self, operate_on, wait_succeeded};

/// The name of the foreign image.
pub(crate) const IMAGE: &str = "docker.io/elsewhere/installer:2";
/// The time limit for the end of a cancelled operation, in seconds, on a busy machine.
const END_LIMIT: i64 = 60;

const CONFIG: &str = "[defaults]\nhost_key_checking = False\n[ssh_connection]\npipelining = True\n";
/// Writes values from the inventory, the variables and the arguments to a file on the host.
const WRITE_FILE: &str = "\
- hosts: kube_control_plane
  gather_facts: false
  tasks:
    - name: Write the file
      ansible.builtin.raw: echo '{{ inventory_hostname }} {{ kube_version }} {{ place }}' > /tmp/foreign-file
";
const READ_FILE: &str = "\
- hosts: all
  gather_facts: false
  tasks:
    - name: Read the file
      ansible.builtin.raw: cat /tmp/foreign-file
";

/// Loads the image into the meta cluster and starts its operations.
pub(crate) fn start(meta: &MetaCluster) -> Result<()> {
    load(meta)?;
    let cleanup = json!([always("echo cleanup done"), shell("echo never")]);
    let without_kubeon =
        "if command -v kubeon || command -v kubeon-runner; then exit 9; fi; echo process $$ of $CLUSTER_NAME";
    let read_file = json!({"actionType": "playbook", "action": "ping.yml"});
    for (name, mut spec) in [
        (
            "playbooks",
            json!({"actionType": "playbook", "action": "cluster.yml", "extraArgs": "-e place=lab",
                "preHook": [shell(without_kubeon)], "postHook": [read_file, always("echo cleanup done")]}),
        ),
        ("fail", json!({"action": "echo broken; exit 3", "postHook": cleanup})),
        ("cancel", json!({"action": "echo work started; sleep 600", "postHook": cleanup})),
        ("timeout", json!({"action": "echo work started; sleep 600", "postHook": cleanup})),
    ] {
        let name = format!("foreign-{name}");
        samples::cluster(meta, &name)?;
        spec["image"] = json!(IMAGE);
        if spec["actionType"].is_null() {
            spec["actionType"] = json!("shell");
        }
        operate_on(meta, &name, &format!("run-{name}"), &spec)?;
    }
    Ok(())
}

fn load(meta: &MetaCluster) -> Result<()> {
    let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/images/kubeon-runner.tar");
    let archive = meta.lab.file("foreign.tar");
    let files = [
        ("kubespray/ansible.cfg", CONFIG),
        ("kubespray/cluster.yml", WRITE_FILE),
        ("kubespray/ping.yml", READ_FILE),
    ];
    image::write_foreign(&runner, IMAGE, &files, &archive)?;
    meta.lab.must(&["image", "load", &archive.to_string_lossy(), "meta"]).map(drop)
}

/// Checks the results. The lock excludes killed operators: only they store the log of a deleted pod with a foreign
/// image.
pub(crate) fn check(meta: &MetaCluster) -> Result<()> {
    let lock = meta.lock_operators();
    operation_results::cancel(meta, "run-foreign-cancel", &["work started", "cleanup done"], &["never"])?;
    let status = meta.get(&[samples::OPERATIONS, "run-foreign-cancel"])?["status"].clone();
    let (cancelled, ended) = (transition_time(&status, "Stopping")?, transition_time(&status, "Failed")?);
    within("the cancelled operation ends", cancelled, ended, END_LIMIT)?;
    check_timeout(meta)?;
    drop(lock);
    check_playbooks(meta)?;
    let reason = wait_failed(meta, "run-foreign-fail")?;
    ensure!(reason == "its container ended with exit code 3", "{reason}");
    log_contains(meta, "run-foreign-fail", &["broken", "cleanup done"], &["never"])?;
    for name in ["playbooks", "fail", "cancel", "timeout"] {
        meta.kubectl(&["delete", samples::CLUSTERS, &format!("foreign-{name}"), "--wait=false"])?;
    }
    Ok(())
}

fn check_playbooks(meta: &MetaCluster) -> Result<()> {
    let operation = "run-foreign-playbooks";
    wait_succeeded(meta, operation)?;
    let texts =
        ["process 1 of foreign-playbooks", "Write the file", "Read the file", "PLAY RECAP", "cleanup done"];
    log_contains(meta, operation, &texts, &["never"])?;
    let content = meta.lab.on("h2", "cat /tmp/foreign-file; rm /tmp/foreign-file")?;
    ensure!(content.trim() == "master01 v1.36.3 lab", "{content}");
    let job = meta.get(&["-n", OPERATOR, "job", &operation_results::job_name(operation)])?;
    let pod = &job["spec"]["template"]["spec"];
    ensure!(pod["containers"][0]["command"] == json!(["/bin/entrypoint.sh"]), "{pod:#}");
    ensure!(pod["automountServiceAccountToken"] == false && pod["serviceAccountName"].is_null(), "{pod:#}");
    Ok(())
}

/// After the deadline, hooks with `when: Always` run and the operation ends within the time limit.
fn check_timeout(meta: &MetaCluster) -> Result<()> {
    let due = operation_results::pass_deadline(meta, "run-foreign-timeout")?;
    let status: Value = meta.get(&[samples::OPERATIONS, "run-foreign-timeout"])?["status"].clone();
    within("the operation ends after its deadline", due, transition_time(&status, "Failed")?, END_LIMIT)
        .map(drop)
}

/// The last transition time of a condition.
fn transition_time(status: &Value, type_: &str) -> Result<Timestamp> {
    let found =
        condition(status, type_).with_context(|| format!("{type_} is not a condition of {status:#}"))?;
    time(&found["lastTransitionTime"])
}
