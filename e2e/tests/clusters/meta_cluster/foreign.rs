//! A foreign image with other playbooks: Debian with bash and Ansible, without kubeon. Contract A's script is
//! process 1 in it.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kubeon_e2e::image;
use serde_json::{Value, json};

use super::ends::{self, always, failed, log_says, shell};
use super::environment::{MetaCluster, condition, time, within};
use super::seed::{self, done, operate_on};

/// The name of the foreign image.
pub(crate) const IMAGE: &str = "docker.io/elsewhere/installer:2";
/// The time limit for the end of a cancelled command, in seconds.
const ENDS_WITHIN: i64 = 20;

const CONFIG: &str = "[defaults]\nhost_key_checking = False\n[ssh_connection]\npipelining = True\n";
/// Says on the host what it knows from inventory, variables and arguments.
const MAKES: &str = "\
- hosts: kube_control_plane
  gather_facts: false
  tasks:
    - name: A mark is left
      ansible.builtin.raw: echo '{{ inventory_hostname }} {{ kube_version }} {{ place }}' > /tmp/of-somebody-else
";
const LOOKS: &str = "\
- hosts: all
  gather_facts: false
  tasks:
    - name: The mark is there
      ansible.builtin.raw: cat /tmp/of-somebody-else
";

/// Makes the image known to the meta cluster and begins its operations.
pub(crate) fn begin(meta: &MetaCluster) -> Result<()> {
    load(meta)?;
    let swept = json!([always("echo swept"), shell("echo never")]);
    let ours =
        "if command -v kubeon || command -v kubeon-runner; then exit 9; fi; echo process $$ of $CLUSTER_NAME";
    let looks = json!({"actionType": "playbook", "action": "ping.yml"});
    for (name, mut spec) in [
        (
            "books",
            json!({"actionType": "playbook", "action": "cluster.yml", "extraArgs": "-e place=lab",
                "preHook": [shell(ours)], "postHook": [looks, always("echo swept")]}),
        ),
        ("broken", json!({"action": "echo broken; exit 3", "postHook": swept})),
        ("stopped", json!({"action": "echo at work; sleep 600", "postHook": swept})),
        ("slow", json!({"action": "sleep 600", "activeDeadlineSeconds": 15, "postHook": swept})),
    ] {
        let name = format!("foreign-{name}");
        seed::cluster(meta, &name)?;
        spec["image"] = json!(IMAGE);
        if spec["actionType"].is_null() {
            spec["actionType"] = json!("shell");
        }
        operate_on(meta, &name, &format!("does-{name}"), &spec)?;
    }
    Ok(())
}

fn load(meta: &MetaCluster) -> Result<()> {
    let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/images/kubeon-runner.tar");
    let archive = meta.lab.file("foreign.tar");
    let files =
        [("kubespray/ansible.cfg", CONFIG), ("kubespray/cluster.yml", MAKES), ("kubespray/ping.yml", LOOKS)];
    image::write_foreign(&runner, IMAGE, &files, &archive)?;
    meta.lab.must(&["image", "load", &archive.to_string_lossy(), "meta"]).map(drop)
}

/// Checks the results.
pub(crate) fn as_expected(meta: &MetaCluster) -> Result<()> {
    ends::cancelled(meta, "does-foreign-stopped", &["at work", "swept"], &["never"])?;
    let status = meta.get(&[seed::OPERATIONS, "does-foreign-stopped"])?["status"].clone();
    let (cancelled, ended) = (since(&status, "Stopping")?, since(&status, "Failed")?);
    within("cancelled until ended", cancelled, ended, ENDS_WITHIN)?;
    playbooks(meta)?;
    let reason = failed(meta, "does-foreign-broken")?;
    ensure!(reason == "its container ended with exit code 3", "{reason}");
    log_says(meta, "does-foreign-broken", &["broken", "swept"], &["never"])?;
    late(meta)?;
    for name in ["books", "broken", "stopped", "slow"] {
        meta.kubectl(&["delete", seed::CLUSTERS, &format!("foreign-{name}"), "--wait=false"])?;
    }
    Ok(())
}

fn playbooks(meta: &MetaCluster) -> Result<()> {
    done(meta, "does-foreign-books")?;
    let words = ["process 1 of foreign-books", "A mark is left", "The mark is there", "PLAY RECAP", "swept"];
    log_says(meta, "does-foreign-books", &words, &["never"])?;
    let mark = meta.lab.on("h2", "cat /tmp/of-somebody-else; rm /tmp/of-somebody-else")?;
    ensure!(mark.trim() == "master01 v1.36.3 lab", "{mark}");
    let job = meta.get(&["-n", super::environment::OPERATOR, "job", "kubeonkube-does-foreign-books-job"])?;
    let pod = &job["spec"]["template"]["spec"];
    ensure!(pod["containers"][0]["command"] == json!(["/bin/entrypoint.sh"]), "{pod:#}");
    ensure!(pod["automountServiceAccountToken"] == false && pod["serviceAccountName"].is_null(), "{pod:#}");
    Ok(())
}

/// Its time is up, and hooks that always run still do, soon.
fn late(meta: &MetaCluster) -> Result<()> {
    let reason = failed(meta, "does-foreign-slow")?;
    ensure!(reason == "its Job ran longer than 15 s", "{reason}");
    log_says(meta, "does-foreign-slow", &["swept"], &["never"])?;
    let status: Value = meta.get(&[seed::OPERATIONS, "does-foreign-slow"])?["status"].clone();
    let (begun, ended) = (time(&status["startTime"])?, since(&status, "Failed")?);
    within("begun until ended", begun, ended, 15 + ENDS_WITHIN).map(drop)
}

/// The last transition time of a condition.
fn since(status: &Value, type_: &str) -> Result<Timestamp> {
    let found =
        condition(status, type_).with_context(|| format!("{type_} is not a condition of {status:#}"))?;
    time(&found["lastTransitionTime"])
}
