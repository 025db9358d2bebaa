//! The operator serves exactly the metrics that the alerts and the dashboard use.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::kubeonkube::OperationResult;
use kubeon_install::monitoring::METRICS;

use crate::lab::Lab;

/// The series of a page, with their values.
fn series(page: &str) -> BTreeMap<&str, &str> {
    page.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' ')).collect()
}

/// The labels of each metric, by its name as Prometheus knows it.
fn labels(page: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for one in series(page).keys() {
        let (name, rest) = one.split_once('{').unwrap_or((one, "}"));
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let all = found.entry(of_histogram.unwrap_or(name).to_owned()).or_default();
        let pairs = rest.trim_end_matches('}').split(',').filter_map(|pair| pair.split_once('='));
        all.extend(pairs.map(|(label, _)| label.to_owned()));
    }
    found
}

#[tokio::test]
async fn every_used_metric_is_served_with_its_labels() {
    let lab = Lab::open().await;
    lab.start();
    lab.cluster("sample").await;
    // The counters exist before the first failure, so that it is an increase.
    let page = lab.metrics().await;
    for zero in [
        r#"kubeon_operator_reconciles_total{word="failed"}"#,
        r#"kubeon_operator_events_total{word="Failed"}"#,
        r#"kubeon_operator_events_total{word="CreateKubeJobFailed"}"#,
        r#"kubeon_operator_watch_failures_total{word="Cluster"}"#,
    ] {
        assert_eq!(series(&page).get(zero), Some(&"0"), "{zero} in\n{page}");
    }
    lab.create_shell_operation("sample", "good").await;
    lab.finish("good").await;
    lab.create_shell_operation("sample", "bad").await;
    let running = lab.wait_result("bad", OperationResult::Running).await;
    let is = |page: &str, word: &str, number: &str| {
        series(page).get(format!(r#"kubeon_operator_operations{{word="{word}"}}"#).as_str()) == Some(&number)
    };
    lab.create_shell_operation("sample", "next").await;
    lab.wait_metrics(|page| is(page, "running", "1") && is(page, "waiting", "1")).await;
    lab.end_job(&lab.job_names(&running).await[0], false).await;
    lab.wait_result("bad", OperationResult::Failed).await;
    let page = lab
        .wait_metrics(|page| series(page).get(r#"kubeon_operator_events_total{word="Failed"}"#) == Some(&"1"))
        .await;
    let wanted: BTreeMap<_, _> = METRICS
        .iter()
        .map(|metric| (metric.name.to_owned(), metric.labels.iter().map(|&label| label.to_owned()).collect()))
        .collect();
    assert_eq!(labels(&page), wanted);
    let check =
        |name: &str, wanted: &str| assert_eq!(series(&page).get(name), Some(&wanted), "{name}\n{page}");
    check("kubeon_operator_leader", "1");
    check(r#"kubeon_operator_objects{word="ClusterOperation"}"#, "3");
    check(r#"kubeon_operator_events_total{word="Succeeded"}"#, "1");
    assert!(series(&page).contains_key(r#"kubeon_operator_queue_keys{word="ready"}"#));
}
