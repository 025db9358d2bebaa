//! Operations of one cluster run one after the other. Operations of different clusters run in parallel.

use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, PostParams};
use kubeon_api::KubernetesCluster;
use kubeon_api::kubeonkube::OperationResult;
use kubeon_envtest::{FaultRule, ProxyFault, RequestMatcher};
use serde_json::json;

use crate::lab::{Lab, TIMEOUT};

/// Longer than any step of the test: an operation that ends earlier did not wait.
const LONG: &str = "--request-timeout=300";

#[tokio::test]
async fn an_operation_completes_while_requests_of_other_clusters_hang() {
    let lab = Lab::open().await;
    lab.start_with(&["--leader-elect=false", LONG]);
    // Half of the keys that are reconciled at the same time.
    let slow: Vec<String> = (0..16).map(|number| format!("slow-{number:02}")).collect();
    let hangs = |name: &String| {
        let when = RequestMatcher::every_request().verb("create").of("jobs").about(name);
        lab.proxy.fail(FaultRule { when, how: ProxyFault::Hang })
    };
    let rules: Vec<_> = slow.iter().map(hangs).collect();
    for name in &slow {
        lab.cluster(name).await;
        lab.create_shell_operation(name, name).await;
    }
    let all_hang = async {
        while rules.iter().any(|rule| lab.proxy.matches(*rule).failed.is_empty()) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, all_hang).await.expect("all requests are sent");
    lab.cluster("fast").await;
    lab.create_shell_operation("fast", "fast").await;
    let ended = lab.finish("fast").await;
    assert_eq!(ended.status.unwrap().status, Some(OperationResult::Succeeded));
    for (name, rule) in slow.iter().zip(rules) {
        assert_eq!(lab.proxy.matches(rule).failed.len(), 1, "{name} still waits for its first answer");
        let operation = lab.operations().get(name).await.unwrap();
        assert!(lab.job_names(&operation).await.is_empty(), "{name}");
    }
}

#[tokio::test]
async fn jobs_of_different_clusters_run_in_parallel() {
    let lab = Lab::open().await;
    lab.start();
    let runs = |job: &Job| job.status.as_ref().is_none_or(|status| status.completion_time.is_none());
    let job = |object: &KubernetesCluster| object.status.as_ref().and_then(|status| status.job_name.clone());
    let mut jobs = Vec::new();
    for (name, master) in [("one", "10.0.0.1"), ("two", "10.0.0.2"), ("three", "10.0.0.3")] {
        lab.declare(name, master).await;
        let object = lab.wait_kubernetes_cluster(name, |object| job(object).is_some()).await;
        jobs.push(job(&object).unwrap());
        lab.cluster(name).await;
        lab.create_shell_operation(name, name).await;
        let running = lab.wait_result(name, OperationResult::Running).await;
        jobs.push(lab.job_names(&running).await.remove(0));
    }
    for name in &jobs {
        assert!(runs(&lab.jobs().get(name).await.unwrap()), "{name} does not run");
    }
    assert_eq!(jobs.len(), 6);
}

/// Three operations of different clusters; two may run.
#[tokio::test]
async fn operations_above_the_limit_start_in_their_order_when_others_end() {
    let lab = Lab::open().await;
    for name in ["a", "b", "c"] {
        lab.cluster(name).await;
        lab.create_shell_operation(name, name).await;
        // Creation times have whole seconds.
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    }
    let limit = &["--leader-elect=false", "--max-operations=2"];
    lab.start_with(limit);
    for name in ["a", "b"] {
        lab.wait_result(name, OperationResult::Running).await;
    }
    lab.wait_reason("c", "waits: 2 operations run, which is the limit, and 0 start before this one").await;
    // The next operator finds two that run.
    lab.kill().await;
    lab.start_with(limit);
    lab.cluster("d").await;
    lab.create_shell_operation("d", "d").await;
    lab.wait_reason("d", "and 1 start before this one").await;
    lab.finish("b").await;
    lab.wait_result("c", OperationResult::Running).await;
    let waiting = lab.operations().get("d").await.unwrap();
    assert!(lab.job_names(&waiting).await.is_empty(), "two others run");
    lab.operations().delete("a", &DeleteParams::default()).await.unwrap();
    lab.wait_result("d", OperationResult::Running).await;
}

/// Declares a cluster in a region. Returns its first operation.
async fn declare_in(lab: &Lab, region: &str, name: &str, master: &str) -> String {
    let declared = json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": name},
        "spec": {"cluster": {"region": region, "masterList": [{"ip": master}], "authConfig": {"password": "hunter2"}}}});
    let declared: KubernetesCluster = serde_json::from_value(declared).unwrap();
    lab.kubernetes_clusters().create(&PostParams::default(), &declared).await.unwrap();
    let operation =
        |object: &KubernetesCluster| object.status.as_ref().and_then(|status| status.operation.clone());
    let object = lab.wait_kubernetes_cluster(name, |object| operation(object).is_some()).await;
    operation(&object).unwrap()
}

#[tokio::test]
async fn a_full_region_holds_up_its_own_clusters_only() {
    let lab = Lab::open().await;
    lab.start_with(&["--leader-elect=false", "--max-operations-per-region=1"]);
    let first = declare_in(&lab, "north", "north-1", "10.0.0.1").await;
    let running = lab.wait_result(&first, OperationResult::Running).await;
    let second = declare_in(&lab, "north", "north-2", "10.0.0.2").await;
    let waits = "waits: 1 operations of region north run, which is the limit, and 0 start before this one";
    lab.wait_reason(&second, waits).await;
    let other = declare_in(&lab, "south", "south-1", "10.0.0.3").await;
    lab.wait_result(&other, OperationResult::Running).await;
    let waiting = lab.operations().get(&second).await.unwrap();
    assert!(lab.job_names(&waiting).await.is_empty(), "the region is full");
    lab.end_job(&running.status.unwrap().job_ref.unwrap().name, true).await;
    lab.wait_result(&second, OperationResult::Running).await;
}
