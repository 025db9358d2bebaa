//! A `KubernetesCluster` from its creation to its deletion. The test ends its Jobs.

use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kubeon_api::{ClusterOperation, KubernetesCluster, Phase};
use serde_json::json;
use tokio::time::timeout;

use crate::lab::{Lab, TIMEOUT};

pub(crate) fn phase(object: &KubernetesCluster) -> Option<Phase> {
    object.status.as_ref().and_then(|status| status.phase)
}

/// Ends the running Job of the object.
pub(crate) async fn end_job(lab: &Lab, name: &str, prefix: &str) {
    let job = |object: &KubernetesCluster| object.status.as_ref().and_then(|status| status.job_name.clone());
    let wanted = |object: &KubernetesCluster| job(object).is_some_and(|job| job.starts_with(prefix));
    let object = lab.wait_kubernetes_cluster(name, wanted).await;
    lab.end_job(&job(&object).unwrap(), true).await;
}

async fn set_workers(lab: &Lab, nodes: &[&str]) {
    let list: Vec<_> = nodes.iter().map(|ip| json!({"ip": ip})).collect();
    let patch = Patch::Merge(json!({"spec": {"cluster": {"nodeList": list}}}));
    lab.kubernetes_clusters().patch("shop", &PatchParams::default(), &patch).await.unwrap();
}

/// Whether a server with this audience accepts the token in a `TokenReview`.
async fn is_accepted(lab: &Lab, token: &str, audiences: &[&str]) -> bool {
    let review = json!({"spec": {"token": token, "audiences": audiences}});
    let review: TokenReview = serde_json::from_value(review).unwrap();
    let answer = Api::all(lab.client.clone()).create(&PostParams::default(), &review).await.unwrap();
    answer.status.and_then(|status| status.authenticated) == Some(true)
}

/// The token for the callback URL is valid for its own operation, and neither for another operation nor for the API
/// server.
async fn check_callback_token(lab: &Lab, job: &str) {
    let job = lab.jobs().get(job).await.unwrap();
    let pod = job.spec.unwrap().template.spec.unwrap();
    let command = pod.containers[0].command.clone().unwrap();
    assert!(command.contains(&"--callback-url=https://gateway.example".to_owned()), "{command:?}");
    let volumes = pod.volumes.unwrap();
    let sources = volumes.into_iter().find_map(|volume| volume.projected).unwrap().sources.unwrap();
    let audience = sources[0].service_account_token.as_ref().unwrap().audience.clone().unwrap();
    let operations = lab.operations().list(&ListParams::default()).await.unwrap();
    assert_eq!(audience, format!("kubeon-callback/{}", operations.items[0].metadata.uid.as_deref().unwrap()));

    let accounts: Api<ServiceAccount> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let request = json!({"spec": {"audiences": [audience], "expirationSeconds": 3600}});
    let request = serde_json::from_value(request).unwrap();
    let answer =
        accounts.create_token_request("kubeon-runner", &PostParams::default(), &request).await.unwrap();
    let token = answer.status.unwrap().token.unwrap();
    assert!(is_accepted(lab, &token, &[&audience]).await);
    assert!(!is_accepted(lab, &token, &["kubeon-callback/of-another-operation"]).await);
    assert!(!is_accepted(lab, &token, &[]).await, "the API server must not accept the token");
}

#[tokio::test]
async fn a_declared_cluster_is_created_scaled_and_deleted() {
    let lab = Lab::open().await;
    lab.start_with(&["--leader-elect=false", "--callback-url=https://gateway.example"]);
    let declared: KubernetesCluster = serde_json::from_value(json!({
        "apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": "shop"},
        "spec": {"cluster": {"masterList": [{"ip": "10.0.0.1"}], "nodeList": [{"ip": "10.0.0.2"}],
            "authConfig": {"password": "hunter2"}, "timeoutMins": "30"}}}))
    .unwrap();
    lab.kubernetes_clusters().create(&PostParams::default(), &declared).await.unwrap();
    let has_job =
        |object: &KubernetesCluster| object.status.as_ref().is_some_and(|status| status.job_name.is_some());
    let object = lab.wait_kubernetes_cluster("shop", has_job).await;
    let job = object.status.unwrap().job_name.unwrap();
    let deadline = lab.jobs().get(&job).await.unwrap().spec.unwrap().active_deadline_seconds;
    assert_eq!(deadline, Some(1800), "contract B, case 29: the declared timeout is 30 minutes");
    check_callback_token(&lab, &job).await;
    let state = format!("{}-shop-state", lab.namespace);
    let secrets: Api<Secret> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let new_state = Patch::Merge(json!({"stringData": {"state.tar.zst": "keys"}}));
    let stored = secrets.patch(&state, &PatchParams::default(), &new_state).await.unwrap();
    let job = stored.metadata.annotations.unwrap()["kubeon.io/job"].clone();
    assert!(job.starts_with("create-"), "{job}");
    end_job(&lab, "shop", "create-").await;
    let object = lab.wait_kubernetes_cluster("shop", |object| phase(object) == Some(Phase::Running)).await;
    let annotations = object.metadata.annotations.clone().unwrap();
    assert_eq!(annotations["app.kubernetes.io/operation"], "create-finished");
    assert!(!annotations["app.kubernetes.io/spec"].contains("hunter2"));
    set_workers(&lab, &["10.0.0.2", "10.0.0.4"]).await;
    end_job(&lab, "shop", "scale-up-").await;
    lab.wait_kubernetes_cluster("shop", |object| phase(object) == Some(Phase::Running)).await;
    set_workers(&lab, &["10.0.0.4"]).await;
    end_job(&lab, "shop", "scale-down-").await;
    lab.wait_kubernetes_cluster("shop", |object| phase(object) == Some(Phase::Running)).await;
    let operations = lab.operations().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(operations.len(), 3);
    lab.kubernetes_clusters().delete("shop", &DeleteParams::default()).await.unwrap();
    end_job(&lab, "shop", "delete-").await;
    let deleted = await_condition(lab.kubernetes_clusters(), "shop", |object: Option<&KubernetesCluster>| {
        object.is_none()
    });
    timeout(TIMEOUT, deleted).await.expect("the cluster is deleted").unwrap();
    for operation in operations {
        let name = operation.metadata.name.unwrap();
        let deleted =
            await_condition(lab.operations(), &name, |object: Option<&ClusterOperation>| object.is_none());
        timeout(TIMEOUT, deleted).await.expect("its operations are deleted").unwrap();
    }
    let jobs = lab.jobs().list(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(jobs, 4, "one Job for each operation");
}
