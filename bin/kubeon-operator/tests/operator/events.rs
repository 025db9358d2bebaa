//! Events are recorded once by the leader even when the API server refuses some of them; refusals are
//! reported as well.

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kubeon_api::KubernetesCluster;
use kubeon_envtest::{FaultRule, ProxyFault, RequestMatcher};
use serde_json::json;
use tokio::process::Command;
use tokio::time::{Duration, sleep, timeout};

use crate::http::{free_port, get};
use crate::lab::{Lab, TIMEOUT};

async fn events(lab: &Lab, namespace: &str, name: &str, reason: &str) -> Vec<Event> {
    let about = ListParams::default().fields(&format!("involvedObject.name={name},reason={reason}"));
    Api::<Event>::namespaced(lab.client.clone(), namespace).list(&about).await.unwrap().items
}

/// Waits for an event.
async fn wait_event(lab: &Lab, namespace: &str, name: &str, reason: &str) -> Event {
    let found = async {
        loop {
            if let Some(event) = events(lab, namespace, name, reason).await.into_iter().next() {
                return event;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(TIMEOUT, found).await.unwrap_or_else(|_| panic!("no event {reason} about {name}"))
}

/// Waits until each of these events of an object is recorded, and fails if one is recorded twice.
pub(crate) async fn wait_once(lab: &Lab, namespace: &str, name: &str, reasons: &[&str]) {
    for reason in reasons {
        wait_event(lab, namespace, name, reason).await;
        let events = events(lab, namespace, name, reason).await;
        let count: i32 = events.iter().map(|event| event.count.unwrap_or(1)).sum();
        assert_eq!((events.len(), count), (1, 1), "{events:#?}");
    }
}

#[tokio::test]
async fn a_refused_event_is_retried() {
    let lab = Lab::open().await;
    lab.proxy
        .fail(FaultRule { when: RequestMatcher::nth("create", "events", 1), how: ProxyFault::Status(500) });
    lab.start();
    lab.cluster("sample").await;
    lab.create_shell_operation("sample", "retried-event").await;
    lab.wait_result("retried-event", kubeon_api::kubeonkube::OperationResult::Running).await;
    wait_event(&lab, "default", "retried-event", "Started").await;
}

#[tokio::test]
async fn only_the_leader_records_events_about_malformed_objects() {
    let lab = Lab::open().await;
    let malformed = json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": "malformed"},
        "spec": {"cluster": {"masterList": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.1", "port": 2222}]}}});
    let kind = kube::api::ApiResource::erase::<KubernetesCluster>(&());
    let api = Api::<DynamicObject>::namespaced_with(lab.client.clone(), &lab.namespace, &kind);
    api.create(&PostParams::default(), &serde_json::from_value(malformed).unwrap()).await.unwrap();
    lab.start_with(&[]);
    wait_event(&lab, &lab.namespace, "malformed", "Malformed").await;
    let port = free_port();
    let mut other = Command::new(env!("CARGO_BIN_EXE_kubeon-operator"))
        .arg("--kubeconfig")
        .arg(lab.proxy.kubeconfig_file())
        .args(["--namespace", &lab.namespace, "--metrics-address", "127.0.0.1:0", "--log", "error"])
        .args(["--health-address", &format!("127.0.0.1:{port}")])
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // When the replica is ready, its lists are complete, but it does not lead.
    let ready = async {
        while !get(port, "/readyz").await.starts_with("HTTP/1.1 200") {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(TIMEOUT, ready).await.expect("the other replica is ready in time");
    // A replica sends the events that it recorded before it ends.
    let pid = other.id().unwrap().to_string();
    assert!(Command::new("kill").arg(pid).status().await.unwrap().success());
    assert!(timeout(TIMEOUT, other.wait()).await.expect("the other replica ends in time").unwrap().success());
    let events = events(&lab, &lab.namespace, "malformed", "Malformed").await;
    let count: i32 = events.iter().map(|event| event.count.unwrap_or(1)).sum();
    assert_eq!((events.len(), count), (1, 1), "{events:#?}");
}

#[tokio::test]
async fn a_refused_write_without_an_operation_is_recorded_once_and_shown_in_the_status() {
    let lab = Lab::open().await;
    lab.start();
    let creations = RequestMatcher::every_write().verb("create").of("clusteroperations");
    lab.proxy.fail(FaultRule { when: creations, how: ProxyFault::Status(403) });
    lab.declare("shop", "10.0.0.1").await;
    let event = wait_event(&lab, &lab.namespace, "shop", "Refused").await;
    let message = event.message.unwrap();
    let prefix = format!("cannot create ClusterOperation {}-shop-", lab.namespace);
    assert!(message.starts_with(&prefix), "{message}");
    let refused = |object: &KubernetesCluster| {
        let conditions = object.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        conditions.iter().any(|one| one.type_ == "Progressing" && one.reason == "Refused")
    };
    lab.wait_kubernetes_cluster("shop", refused).await;
    // After a change the write is retried, and the event is not repeated.
    lab.cluster("other").await;
    let label = kube::api::Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    lab.kubernetes_clusters().patch("shop", &kube::api::PatchParams::default(), &label).await.unwrap();
    let attempts = || lab.proxy.writes().iter().filter(|it| it.resource == "clusteroperations").count();
    let retried = async {
        while attempts() < 2 {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(TIMEOUT, retried).await.expect("the write is retried");
    lab.proxy.restore();
    let label = kube::api::Patch::Merge(json!({"metadata": {"labels": {"a": "c"}}}));
    lab.kubernetes_clusters().patch("shop", &kube::api::PatchParams::default(), &label).await.unwrap();
    lab.wait_kubernetes_cluster("shop", |object| {
        object.status.as_ref().is_some_and(|it| it.job_name.is_some())
    })
    .await;
    // Events are sent in order: a second event about the refusal would precede this one.
    wait_event(&lab, &lab.namespace, "shop", "Creating").await;
    let events = events(&lab, &lab.namespace, "shop", "Refused").await;
    let count: i32 = events.iter().map(|event| event.count.unwrap_or(1)).sum();
    assert_eq!((events.len(), count), (1, 1), "{events:#?}");
}
