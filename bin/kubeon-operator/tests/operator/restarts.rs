//! A restarted operator reads every object and writes none.

use kubeon_api::kubeonkube::OperationResult;

use crate::lab::Lab;

/// The number of a series of the metrics.
fn number(page: &str, series: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series));
    line.and_then(|rest| rest.trim().parse().ok()).unwrap_or_else(|| panic!("{series} is missing:\n{page}"))
}

/// Whether the operator has reconciled at least two keys, and none is left.
fn has_reconciled(page: &str) -> bool {
    number(page, r#"kubeon_operator_reconciles_total{word="done"}"#) >= 2
        && number(page, r#"kubeon_operator_queue_keys{word="ready"}"#) == 0
        && number(page, r#"kubeon_operator_queue_keys{word="working"}"#) == 0
}

/// One cluster has an operation that ended, one that runs and one that waits; another cluster is created.
#[tokio::test]
async fn a_restarted_operator_writes_nothing() {
    let lab = Lab::open().await;
    lab.start();
    lab.cluster("sample").await;
    lab.create_shell_operation("sample", "one").await;
    lab.finish("one").await;
    lab.create_shell_operation("sample", "two").await;
    lab.wait_result("two", OperationResult::Running).await;
    lab.create_shell_operation("sample", "three").await;
    lab.wait_operation("three", |operation| {
        operation.status.as_ref().and_then(|status| status.waits_for.as_deref()) == Some("two")
    })
    .await;
    lab.declare("shop", "10.0.0.1").await;
    lab.wait_kubernetes_cluster("shop", |shop| {
        shop.status.as_ref().is_some_and(|status| status.job_name.is_some())
    })
    .await;
    // The first restart completes what the killed operator had not written yet.
    for _ in 0..2 {
        lab.kill().await;
        lab.proxy.clear_requests();
        lab.start();
        lab.wait_metrics(has_reconciled).await;
    }
    let writes = lab.proxy.writes();
    assert!(writes.is_empty(), "{writes:#?}");
}
