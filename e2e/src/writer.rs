//! A pod that writes to the API and reads back every acknowledged write, while a test changes the cluster.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::lab::TestLab;
use crate::program::eventually;

/// The API by its Service address. By its name, the writer would stop with the DNS of a dead node.
const ADDRESS: &str = "https://$(KUBERNETES_SERVICE_HOST)";
/// How long a writer may take to end after its time.
const LIMIT: Duration = Duration::from_secs(600);

/// Starts the writer for this number of seconds on a node that is not a master. `run` names its objects.
///
/// # Errors
/// When the pod does not start.
pub fn start(lab: &TestLab, run: &str, seconds: u32) -> Result<()> {
    lab.load_client(lab.name())?;
    let seconds = seconds.to_string();
    lab.apply(lab.name(), &json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "writer" },
          "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" },
          "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": "default" }] },
        { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "writer" }, "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "writer", "image": crate::image::NAME,
                "imagePullPolicy": "IfNotPresent", "env": [{ "name": "RUN", "value": run }],
                "args": ["write", ADDRESS, &seconds] }] } },
    ] }))?;
    lab.kubectl(lab.name(), &["wait", "--for=condition=Ready", "pod/writer", "--timeout=60s"]).map(drop)
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
