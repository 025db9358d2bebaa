//! The end of the operator: refused while it has clusters, handed over to the next installation, removed without a trace.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::json;

use super::environment::{MetaCluster, OPERATOR};
use super::print_time;
use super::samples::{CLUSTERS, OPERATIONS};

const KEPT: &str = "kept";
/// The Job of the chart with which Helm asks before it removes the operator.
const CHECK: &str = "kubeon-uninstall-check";

/// Runs last: it ends the operator.
pub(crate) fn run(meta: &MetaCluster) -> Result<()> {
    let start = Instant::now();
    let file = json!({"namespace": OPERATOR, "name": "none"});
    meta.apply(&json!({
        "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "Cluster", "metadata": {"name": KEPT},
        "spec": {"hostsConfRef": file, "varsConfRef": file},
    }))?;
    let kubeconfig = meta.lab.file("conf/cluster/meta.yaml").to_string_lossy().into_owned();
    let meta_command =
        |words: &[&str]| meta.lab.must(&[&["meta"], words, &["--kubeconfig", &kubeconfig]].concat());
    let refused = meta.lab.kubeon(&["meta", "uninstall", "--yes", "--kubeconfig", &kubeconfig])?;
    let said = &refused.err;
    ensure!(
        refused.code != 0 && said.contains("it has clusters") && said.contains(&format!("Cluster {KEPT}")),
        "{said}"
    );
    ensure!(said.contains("--hand-over"), "{said}");
    meta.kubectl(&["-n", OPERATOR, "get", "deployment", "kubeon-operator"])?;
    helm_is_refused(meta)?;

    meta_command(&["uninstall", "--hand-over", "--yes"])?;
    let left =
        meta.kubectl(&["get", "deployments,validatingadmissionpolicies,clusterroles", "-A", "-o", "name"])?;
    ensure!(
        ["kubeon-operator", "kubeon-references", "kubeon-runner"].iter().all(|name| !left.contains(name)),
        "{left}"
    );
    meta.kubectl(&["get", CLUSTERS, KEPT])?;
    meta_command(&["install"])?;

    meta.kubectl(&["delete", CLUSTERS, "--all", "--timeout=60s"])?;
    meta.kubectl(&["delete", OPERATIONS, "--all", "--timeout=60s"])?;
    meta_command(&["uninstall", "--yes"])?;
    let left = meta.kubectl(&[
        "get",
        "customresourcedefinitions,namespaces,priorityclasses,clusterroles",
        "-o",
        "name",
    ])?;
    ensure!(
        [OPERATOR, "kubeon-operator", "clay.io", "yun.com"].iter().all(|name| !left.contains(name)),
        "{left}"
    );
    // What is gone already is no error.
    meta_command(&["uninstall", "--yes"])?;
    print_time("uninstalled", start);
    Ok(())
}

/// The Job of the chart fails as long as there are clusters. Its pod is like that of the Deployment.
fn helm_is_refused(meta: &MetaCluster) -> Result<()> {
    let deployment = meta.get(&["-n", OPERATOR, "deployment", "kubeon-operator"])?;
    let own = &deployment["spec"]["template"]["spec"];
    let container = json!({"name": "check", "args": ["--check-uninstall"], "image": own["containers"][0]["image"],
        "imagePullPolicy": "IfNotPresent", "securityContext": own["containers"][0]["securityContext"]});
    let mut pod = json!({"automountServiceAccountToken": true, "containers": [container], "restartPolicy": "Never",
        "securityContext": own["securityContext"], "serviceAccountName": "kubeon-operator"});
    if own["tolerations"].is_array() {
        pod["tolerations"] = own["tolerations"].clone();
    }
    let spec = json!({"activeDeadlineSeconds": 120, "backoffLimit": 0, "template": {"spec": pod}});
    let metadata = json!({"name": CHECK, "namespace": OPERATOR});
    meta.apply(&json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}))?;
    let job = format!("job/{CHECK}");
    meta.kubectl(&["-n", OPERATOR, "wait", "--for=condition=Failed", &job, "--timeout=120s"])?;
    let said = meta.kubectl(&["-n", OPERATOR, "logs", &job])?;
    ensure!(
        said.contains("the operator has clusters") && said.contains(&format!("Cluster {KEPT}")),
        "{said}"
    );
    meta.kubectl(&["-n", OPERATOR, "delete", &job]).map(drop)
}
