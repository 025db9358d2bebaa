//! Helm asks before it removes the operator.

use tokio::process::Command;

use crate::lab::Lab;

/// Whether the question is answered with yes, and the log.
async fn may_be_removed(lab: &Lab) -> (bool, String) {
    let mut operator = Command::new(env!("CARGO_BIN_EXE_kubeon-operator"));
    operator.arg("--kubeconfig").arg(lab.proxy.kubeconfig_file()).arg("--check-uninstall");
    let output = operator.output().await.unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn an_operator_with_clusters_is_not_removed() {
    let lab = Lab::open().await;
    let (yes, log) = may_be_removed(&lab).await;
    assert!(yes, "{log}");
    lab.cluster("sample").await;
    let (yes, log) = may_be_removed(&lab).await;
    assert!(!yes && log.contains("the operator has clusters: Cluster sample; delete them first"), "{log}");
}
