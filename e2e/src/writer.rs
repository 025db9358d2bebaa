//! A pod that writes to the API and reads back every acknowledged write, while a test changes the cluster.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::lab::TestLab;
use crate::program::{again_after, eventually, folder};

/// The API by its Service address. By its name, the writer would stop with the DNS of a dead node.
const ADDRESS: &str = "https://$(KUBERNETES_SERVICE_HOST)";
/// How long a writer may take to end after its time.
const LIMIT: Duration = Duration::from_secs(600);
/// The program on a host.
const ON_HOST: &str = "/var/tmp/lab-client";
/// Where programs in pods find their identity.
const IDENTITY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// What the writer on a host wrote, and how it ended.
const LOG: &str = "/run/writer.log";
const END: &str = "/run/writer.end";

/// Starts the writer for this number of seconds on a node that is not a master. `run` names its objects.
///
/// # Errors
/// When the pod does not start.
pub fn start(lab: &TestLab, run: &str, seconds: u32) -> Result<()> {
    lab.load_client(lab.name())?;
    let seconds = seconds.to_string();
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "writer" }, "spec": {
        "restartPolicy": "Never", "containers": [{ "name": "writer", "image": crate::image::NAME,
            "imagePullPolicy": "IfNotPresent", "env": [{ "name": "RUN", "value": run }],
            "args": ["write", ADDRESS, &seconds] }] } });
    lab.apply(lab.name(), &json!({ "apiVersion": "v1", "kind": "List", "items": [binding(), pod] }))?;
    lab.kubectl(lab.name(), &["wait", "--for=condition=Ready", "pod/writer", "--timeout=60s"]).map(drop)
}

/// The permission to write.
fn binding() -> Value {
    json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "writer" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" },
        "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": "default" }] })
}

/// Starts the writer for this number of seconds on a worker itself, through its haproxy: no drain ends it.
///
/// # Errors
/// When it does not start.
pub fn start_on_host(lab: &TestLab, host: &str, run: &str, seconds: u32) -> Result<()> {
    let cluster = lab.name();
    lab.apply(cluster, &binding())?;
    let token = lab.kubectl(cluster, &["create", "token", "default", "--duration=24h"])?;
    let program = folder().join("lab-client").display().to_string();
    lab.must(&["copy", &format!("{cluster}@{host}"), &program, ON_HOST])?;
    let identity = format!(
        "chmod 755 {ON_HOST}; umask 077; mkdir -p {IDENTITY}; cp /etc/kubernetes/pki/ca.crt {IDENTITY}/ca.crt; \
         printf %s '{}' >{IDENTITY}/token",
        token.trim()
    );
    let write = format!("{ON_HOST} write https://127.0.0.1:6443 {seconds} >{LOG} 2>&1");
    let line = format!("if {write}; then echo complete >{END}; else echo failed >{END}; fi");
    lab.on(
        host,
        &format!("{identity}; systemd-run --quiet --unit=writer --setenv=RUN={run} sh -c '{line}'"),
    )?;
    eventually("the writer runs", Duration::from_secs(10), || {
        lab.on(host, "systemctl is-active -q writer").map(drop)
    })
}

/// Waits until the writer on a host ended without a lost write. Returns its report.
///
/// # Errors
/// Like [`report`].
pub fn report_of_host(lab: &TestLab, host: &str) -> Result<String> {
    let end = again_after(Duration::from_secs(2), "the writer has ended", LIMIT, || {
        lab.on(host, &format!("cat {END}"))
    })?;
    let log = lab.on(host, &format!("cat {LOG}; rm -rf {END} {LOG} {IDENTITY} {ON_HOST}"))?;
    ensure!(end.trim() == "complete", "the writer on {host} ended with {}: {log}", end.trim());
    Ok(log.trim().to_owned())
}

/// Removes the pod of a writer: another one needs its name.
///
/// # Errors
/// When the API server does not remove it.
pub fn remove(lab: &TestLab) -> Result<()> {
    let delete = ["delete", "pod", "writer", "--ignore-not-found", "--force", "--grace-period=0"];
    lab.kubectl(lab.name(), &delete).map(drop)
}

/// Waits until the writer ended without a lost write. Returns its report.
///
/// # Errors
/// When a write was lost or refused; the error contains its log.
pub fn report(lab: &TestLab) -> Result<String> {
    let cluster = lab.name();
    let phase = eventually("the writer has ended", LIMIT, || {
        let phase = lab.kubectl(cluster, &["get", "pod", "writer", "-o", "jsonpath={.status.phase}"])?;
        ensure!(["Succeeded", "Failed"].contains(&phase.as_str()), "its phase is {phase}");
        Ok(phase)
    })?;
    let log = lab.kubectl(cluster, &["logs", "writer"])?;
    ensure!(phase == "Succeeded", "the writer ended with {phase}: {log}");
    Ok(log.trim().to_owned())
}
