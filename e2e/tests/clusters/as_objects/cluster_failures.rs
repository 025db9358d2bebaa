//! A declared cluster with failures and interventions: paused, a host that fails the precheck, cancelled, a host
//! that hangs until the timeout, deleted during its creation.

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::VERSION;
use serde_json::{Value, json};

use super::MINUTE;
use super::declared_cluster::{NAMESPACE, declared, wait_job_running};
use super::deletion::{Deletion, check_nothing_left};
use super::environment::{MetaCluster, condition};
use super::samples::OPERATIONS;

const NAME: &str = "failures";
const HOST: &str = "h7";

/// Suspends kubeon-node for most of the time.
const SLOW: &str = "systemd-run --quiet --unit=slow sh -c 'while :; do \
    pkill -STOP ^kubeon-node; sleep 0.2; pkill -CONT ^kubeon-node; sleep 0.1; done'";

/// Runs the cases one after the other on one host.
pub(crate) fn run(meta: &MetaCluster) -> Result<()> {
    pause(meta)?;
    fail_precheck(meta)?;
    cancel(meta)?;
    exceed_timeout(meta)?;
    delete_during_creation(meta)
}

fn status(meta: &MetaCluster) -> Result<Value> {
    Ok(meta.get(&["ecs", NAME])?["status"].clone())
}

/// Waits until the last operation has failed, and returns the reason.
fn wait_failed(meta: &MetaCluster) -> Result<String> {
    let status = meta.eventually("the status reports the failure", MINUTE * 2, || {
        let status = status(meta)?;
        ensure!(status["phase"] == "Failed", "{status:#}");
        Ok(status)
    });
    let status = status.map_err(|error| error.context(meta.diagnosis("ecs", NAME)))?;
    let degraded = condition(&status, "Degraded").context("no condition Degraded")?;
    ensure!(degraded["status"] == "True" && degraded["message"] == status["reason"], "{status:#}");
    Ok(status["reason"].as_str().unwrap_or_default().to_owned())
}

/// The operation that was created last.
fn last_operation(meta: &MetaCluster) -> Result<Value> {
    let all = meta.get(&[OPERATIONS, "-l", &format!("clusterName={NAME}")])?;
    let all = all["items"].as_array().cloned().unwrap_or_default();
    let last = all.into_iter().max_by_key(|one| one["metadata"]["creationTimestamp"].to_string());
    last.context("there is no operation")
}

/// Waits until the messages of an object's events with this reason contain these texts, because events are
/// recorded after the status.
fn wait_event(meta: &MetaCluster, object: &Value, reason: &str, texts: &[&str]) -> Result<()> {
    let uid = object["metadata"]["uid"].as_str().context("no UID")?;
    let selector = format!("reason={reason},involvedObject.uid={uid}");
    let path = "jsonpath={.items[*].message}";
    let recorded = meta.eventually(&format!("an event {reason} is recorded"), MINUTE, || {
        let messages = meta.kubectl(&["get", "events", "-A", "--field-selector", &selector, "-o", path])?;
        ensure!(texts.iter().all(|text| messages.contains(text)), "{messages:?}");
        Ok(())
    });
    recorded.map_err(|error| error.context(meta.diagnosis("ecs", NAME)))
}

/// No operation is created while `spec.paused` is true.
fn pause(meta: &MetaCluster) -> Result<()> {
    let mut object = declared(NAME, VERSION, meta.address(HOST)?, &[]);
    object["spec"]["paused"] = json!(true);
    object["spec"]["cluster"]["timeout_mins"] = json!("10");
    meta.apply(&object)?;
    let status = meta.eventually("the status reports the pause", MINUTE, || {
        let status = status(meta)?;
        ensure!(status["reason"] == "spec.paused is true: nothing is changed", "{status:#}");
        Ok(status)
    })?;
    let progress = condition(&status, "Progressing").context("no condition Progressing")?;
    ensure!(progress["status"] == "False" && progress["reason"] == "Paused", "{status:#}");
    let operations =
        meta.kubectl(&["get", OPERATIONS, "-l", &format!("clusterName={NAME}"), "-o", "name"])?;
    ensure!(operations.trim().is_empty() && status["phase"].is_null(), "{operations} {status:#}");
    Ok(())
}

/// Another program listens on the kubelet's port, and the host has files of another kind of cluster. The object, the
/// operation and events name both, and the host is not changed.
fn fail_precheck(meta: &MetaCluster) -> Result<()> {
    let squat = "mkdir /etc/kubeedge && systemd-run --quiet --unit=squatter /usr/sbin/sshd -D -p 10250";
    meta.lab.on(HOST, squat)?;
    meta.eventually("the port is in use", MINUTE, || {
        meta.lab.on(HOST, "grep -q ':280A .* 0A' /proc/net/tcp /proc/net/tcp6").map(drop)
    })?;
    // A killed operator loses the events that it has not sent yet.
    let lock = meta.lock_operators();
    meta.patch(&["ecs", NAME], &json!({"spec": {"paused": false}}))?;
    let reason = wait_failed(meta)?;
    let address = meta.address(HOST)?;
    let prefix = format!("[precheck] failed with:\n {address} : ");
    let causes = ["another program listens on port 10250", "contains another cluster (found /etc/kubeedge)"];
    let names_causes = |text: &str| causes.iter().all(|cause| text.contains(cause));
    ensure!(reason.starts_with(&prefix) && names_causes(&reason), "{reason}");
    let operation = last_operation(meta)?;
    let prechecked = condition(&operation["status"], "Prechecked").context("no condition Prechecked")?;
    let message = prechecked["message"].as_str().unwrap_or_default();
    ensure!(prechecked["status"] == "False" && names_causes(message), "{prechecked:#}");
    ensure!(errors(&operation, address)? == [("leftover", false), ("ports", false)], "{operation:#}");
    let cluster = meta.get(&["ecs", NAME])?;
    for (object, event) in [
        (&operation, "Failed"),
        (&operation, "PrecheckFailed"),
        (&cluster, "CreateKubeJobFailed"),
        (&cluster, "PrecheckFailed"),
    ] {
        wait_event(meta, object, event, &[causes[0], causes[1], address])?;
    }
    drop(lock);
    meta.lab.is_bare(HOST)
}

/// The checks that found an error on a host, sorted by name, and whether each is ignored.
fn errors<'o>(operation: &'o Value, address: &str) -> Result<Vec<(&'o str, bool)>> {
    let findings = operation["status"]["findings"].as_array().context("no findings")?;
    let errors = findings.iter().filter(|one| one["host"] == address && one["severity"] == "error");
    let mut checks: Vec<_> = errors
        .filter_map(|one| Some((one["check"].as_str()?, one["ignored"].as_bool().unwrap_or_default())))
        .collect();
    checks.sort_unstable();
    Ok(checks)
}

/// The annotation with ignored checks requests the operation again, and the same findings do not block it. Then a
/// user cancels the operation.
fn cancel(meta: &MetaCluster) -> Result<()> {
    meta.annotate(NAME, "kubeon.io/ignore-checks", "ports,leftover")?;
    wait_job_running(meta, NAME, "create-")?;
    let operation = meta.eventually("the precheck passed", MINUTE, || {
        let operation = last_operation(meta)?;
        let prechecked = condition(&operation["status"], "Prechecked").context("no condition Prechecked")?;
        ensure!(prechecked["status"] == "True" && prechecked["reason"] == "Passed", "{prechecked:#}");
        Ok(operation)
    })?;
    let ignored = [("leftover", true), ("ports", true)];
    ensure!(errors(&operation, meta.address(HOST)?)? == ignored, "{operation:#}");
    meta.eventually("the host was changed", MINUTE, || {
        meta.lab.on(HOST, "test -e /var/lib/kubeon").map(drop)
    })?;
    let name = operation["metadata"]["name"].as_str().unwrap_or_default();
    pause_and_continue(meta, name)?;
    evict(meta, name)?;
    meta.patch(&[OPERATIONS, name], &json!({"spec": {"cancelled": true}}))?;
    let reason = wait_failed(meta)?;
    ensure!(reason == "cancelled", "{reason}");
    let ended = meta.get(&[OPERATIONS, name])?["status"].clone();
    ensure!(ended["status"] == "Failed" && ended["reason"] == "cancelled", "{ended:#}");
    let repair = "systemctl stop squatter; systemctl reset-failed squatter 2>/dev/null; rmdir /etc/kubeedge";
    meta.lab.on(HOST, repair).map(drop)
}

/// A user pauses the operation: its pod ends, and nothing works on the host. Then the operation continues with another
/// pod, of which the log is the whole one.
fn pause_and_continue(meta: &MetaCluster, operation: &str) -> Result<()> {
    let set_paused =
        |paused: bool| meta.patch(&[OPERATIONS, operation], &json!({"spec": {"paused": paused}}));
    let status = || Ok::<_, anyhow::Error>(meta.get(&[OPERATIONS, operation])?["status"].clone());
    let job = status()?["jobRef"]["name"].as_str().context("no Job")?.to_owned();
    let pods = |path: &str| {
        meta.kubectl(&["-n", NAMESPACE, "get", "pods", "-l", &format!("job-name={job}"), "-o", path])
    };
    set_paused(true)?;
    meta.eventually("the pod of the paused operation has ended", MINUTE * 2, || {
        let left = pods("name")?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })?;
    let paused = status()?;
    ensure!(paused["status"] == "Running" && condition(&paused, "Paused").is_some(), "{paused:#}");
    let cluster = meta.get(&["ecs", NAME])?["status"].clone();
    let progress = condition(&cluster, "Progressing").context("no condition Progressing")?;
    ensure!(progress["status"] == "False" && progress["reason"] == "Paused", "{cluster:#}");
    meta.eventually("nothing works on the host", MINUTE, || {
        meta.lab.on(HOST, "! pgrep '^kubeon-node'").map(drop)
    })?;
    set_paused(false)?;
    meta.eventually("the operation continues", MINUTE * 2, || {
        let status = status()?;
        ensure!(condition(&status, "Paused").is_none(), "{status:#}");
        let phase = pods("jsonpath={.items[*].status.phase}")?;
        ensure!(phase == "Running", "{phase}");
        Ok(())
    })?;
    log_has_parts(meta, &job, 2)
}

/// The log of the running pod begins with those of the stopped pods before it.
fn log_has_parts(meta: &MetaCluster, job: &str, count: usize) -> Result<()> {
    let log = meta.kubectl(&["-n", NAMESPACE, "logs", &format!("job/{job}")])?;
    let parts: Vec<&str> = log.split("another pod continues here").collect();
    let stopped = parts.iter().filter(|part| part.contains("stopping the work")).count();
    ensure!((parts.len(), stopped) == (count, count - 1), "{log}");
    Ok(())
}

/// The node of the pod is drained: another pod continues the operation.
fn evict(meta: &MetaCluster, operation: &str) -> Result<()> {
    let job = meta.get(&[OPERATIONS, operation])?["status"]["jobRef"]["name"]
        .as_str()
        .context("no Job")?
        .to_owned();
    let label = format!("job-name={job}");
    let pods = || {
        meta.kubectl(&[
            "-n",
            NAMESPACE,
            "get",
            "pods",
            "-l",
            &label,
            "-o",
            "jsonpath={.items[*].metadata.name}",
        ])
    };
    let pod = pods()?;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}});
    let file = meta.lab.file("eviction.json");
    std::fs::write(&file, eviction.to_string())?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction");
    meta.kubectl(&["create", "--raw", &path, "-f", &file.to_string_lossy()])?;
    meta.eventually("another pod continues", MINUTE * 2, || {
        let now = pods()?;
        ensure!(!now.is_empty() && now != pod, "{now}");
        meta.pod_is_running(NAMESPACE, &job)
    })?;
    let status = meta.get(&[OPERATIONS, operation])?["status"].clone();
    ensure!(status["status"] == "Running" && status["lostPods"] == json!([pod]), "{status:#}");
    let path = "jsonpath={.items[*].metadata.uid}";
    let uid = meta.kubectl(&["-n", NAMESPACE, "get", "pods", "-l", &label, "-o", path])?;
    meta.eventually("the operation names the pod that continues", MINUTE, || {
        let recorded = meta.get(&[OPERATIONS, operation])?["status"]["runnerPod"].clone();
        ensure!(recorded == json!(uid), "{recorded}, and the pod is {uid}");
        Ok(())
    })?;
    log_has_parts(meta, &job, 3)
}

/// The host hangs, so the operation runs until the timeout in `timeout_mins`. Contract B, case 29.
fn exceed_timeout(meta: &MetaCluster) -> Result<()> {
    request_creation(meta, "1")?;
    let job = wait_job_running(meta, NAME, "create-")?;
    meta.suspend_node_agent(HOST)?;
    meta.eventually("the Job exceeds its deadline", MINUTE * 2, || check_job_stopping(meta, &job))?;
    // A killed operator loses the events that it has not sent yet.
    let _lock = meta.lock_operators();
    meta.resume_node_agent(HOST)?;
    let reason = wait_failed(meta)?;
    ensure!(reason == "the [creating] job running timeout(>60s)", "{reason}");
    let (operation, cluster) = (last_operation(meta)?, meta.get(&["ecs", NAME])?);
    ensure!(operation["status"]["reason"] == reason.as_str(), "{operation:#}");
    wait_event(meta, &cluster, "CreateKubeJobFailed", &[&reason])
}

/// Requests the creation again, which may take so many minutes. One write, because another spec alone is a request too.
fn request_creation(meta: &MetaCluster, minutes: &str) -> Result<()> {
    let annotations = json!({"app.kubernetes.io/operation": "creating"});
    let spec = json!({"cluster": {"timeout_mins": minutes}});
    meta.patch(&["ecs", NAME], &json!({"metadata": {"annotations": annotations}, "spec": spec}))
}

/// Fails unless the Job has a condition: the Job controller stops a Job that failed, was suspended or exceeded its
/// deadline.
fn check_job_stopping(meta: &MetaCluster, job: &str) -> Result<()> {
    let path = r#"jsonpath={.status.conditions[?(@.status=="True")].type}"#;
    let conditions = meta.kubectl(&["-n", NAMESPACE, "get", "job", job, "-o", path])?;
    ensure!(!conditions.trim().is_empty(), "{job} still runs");
    Ok(())
}

/// Requests the creation again (contract B, case 30), and deletes the cluster while the Job runs: the operation is
/// stopped, and the host is bare.
fn delete_during_creation(meta: &MetaCluster) -> Result<()> {
    // The creation takes seconds. With a killed operator, or at full speed, it might be complete before the deletion.
    let lock = meta.lock_operators();
    // The attempt before may have been almost complete.
    meta.lab.on(HOST, "systemctl stop kubelet kube-apiserver etcd; true")?;
    meta.lab.on(HOST, SLOW)?;
    let before = status(meta)?["jobName"].clone();
    request_creation(meta, "10")?;
    let restarted = meta.eventually("the status has a new Job and no old reason", MINUTE, || {
        let status = status(meta)?;
        let is_new = status["jobName"].is_string() && status["jobName"] != before;
        ensure!(is_new && status["reason"].is_null(), "{status:#}");
        Ok(status)
    })?;
    let creation = last_operation(meta)?;
    wait_job_running(meta, NAME, "create-")?;
    let runs = meta.eventually("kubeon-node runs on the host", MINUTE, || {
        meta.lab.on(HOST, "pgrep '^kubeon-node'").map(drop)
    });
    runs.map_err(|error| error.context(meta.diagnosis("ecs", NAME)))?;
    ensure!(status(meta)?["jobName"] == restarted["jobName"], "the Job has already ended");
    let deletion = Deletion::start(meta, NAME)?;
    meta.lab.on(HOST, "systemctl stop slow; pkill -CONT '^kubeon-node'; true")?;
    let message = deletion.finish(meta)?;
    drop(lock);
    ensure!(message == "the cluster was taken down", "{message}");
    wait_event(meta, &creation, "Stopping", &["the KubernetesCluster is being deleted"])?;
    check_nothing_left(meta, NAME, &[HOST])
}
