//! A `KubernetesCluster` from its creation to its deletion. The test ends its Jobs.

use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kubeon_api::{ClusterOperation, KubernetesCluster, Phase};
use serde_json::json;
use tokio::time::timeout;

use crate::lab::{Lab, TIMEOUT};

fn phase(object: &KubernetesCluster) -> Option<Phase> {
    object.status.as_ref().and_then(|status| status.phase)
}

/// Ends the running Job of the object.
async fn job_ends(lab: &Lab, name: &str, begins: &str) {
    let job = |object: &KubernetesCluster| object.status.as_ref().and_then(|status| status.job_name.clone());
    let wanted = |object: &KubernetesCluster| job(object).is_some_and(|job| job.starts_with(begins));
    let object = lab.until_business(name, wanted).await;
    lab.job_ends(&job(&object).unwrap(), true).await;
}

async fn nodes(lab: &Lab, nodes: &[&str]) {
    let list: Vec<_> = nodes.iter().map(|ip| json!({"ip": ip})).collect();
    let patch = Patch::Merge(json!({"spec": {"cluster": {"nodeList": list}}}));
    lab.businesses().patch("shop", &PatchParams::default(), &patch).await.unwrap();
}

/// Whether a server with this audience accepts the token in a `TokenReview`.
async fn takes(lab: &Lab, token: &str, audiences: &[&str]) -> bool {
    let review = json!({"spec": {"token": token, "audiences": audiences}});
    let review: TokenReview = serde_json::from_value(review).unwrap();
    let answer = Api::all(lab.client.clone()).create(&PostParams::default(), &review).await.unwrap();
    answer.status.and_then(|status| status.authenticated) == Some(true)
}

async fn tells_a_listener_with_a_token_for_its_operation_alone(lab: &Lab, job: &str) {
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
    assert!(takes(lab, &token, &[&audience]).await);
    assert!(!takes(lab, &token, &["kubeon-callback/of-another-operation"]).await);
    assert!(!takes(lab, &token, &[]).await, "an API server");
}

#[tokio::test]
async fn a_declared_cluster_is_made_grown_shrunk_and_taken_down() {
    let lab = Lab::open().await;
    lab.start_with(&["--leader-elect=false", "--callback-url=https://gateway.example"]);
    let declared: KubernetesCluster = serde_json::from_value(json!({
        "apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": "shop"},
        "spec": {"cluster": {"masterList": [{"ip": "10.0.0.1"}], "nodeList": [{"ip": "10.0.0.2"}],
            "authConfig": {"password": "hunter2"}, "timeoutMins": "30"}}}))
    .unwrap();
    lab.businesses().create(&PostParams::default(), &declared).await.unwrap();
    let at_work =
        |object: &KubernetesCluster| object.status.as_ref().is_some_and(|status| status.job_name.is_some());
    let object = lab.until_business("shop", at_work).await;
    let job = object.status.unwrap().job_name.unwrap();
    let deadline = lab.jobs().get(&job).await.unwrap().spec.unwrap().active_deadline_seconds;
    assert_eq!(deadline, Some(1800), "contract B, case 29: thirty minutes were declared");
    tells_a_listener_with_a_token_for_its_operation_alone(&lab, &job).await;
    let state = format!("{}-shop-state", lab.namespace);
    let secrets: Api<Secret> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let saved = Patch::Merge(json!({"stringData": {"state.tar.zst": "keys"}}));
    let kept = secrets.patch(&state, &PatchParams::default(), &saved).await.unwrap();
    let job = kept.metadata.annotations.unwrap()["kubeon.io/job"].clone();
    assert!(job.starts_with("create-"), "{job}");
    job_ends(&lab, "shop", "create-").await;
    let object = lab.until_business("shop", |object| phase(object) == Some(Phase::Running)).await;
    let annotations = object.metadata.annotations.clone().unwrap();
    assert_eq!(annotations["app.kubernetes.io/operation"], "create-finished");
    assert!(!annotations["app.kubernetes.io/spec"].contains("hunter2"));
    nodes(&lab, &["10.0.0.2", "10.0.0.4"]).await;
    job_ends(&lab, "shop", "scale-up-").await;
    lab.until_business("shop", |object| phase(object) == Some(Phase::Running)).await;
    nodes(&lab, &["10.0.0.4"]).await;
    job_ends(&lab, "shop", "scale-down-").await;
    lab.until_business("shop", |object| phase(object) == Some(Phase::Running)).await;
    let operations = lab.operations().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(operations.len(), 3);
    lab.businesses().delete("shop", &DeleteParams::default()).await.unwrap();
    job_ends(&lab, "shop", "delete-").await;
    let gone =
        await_condition(lab.businesses(), "shop", |object: Option<&KubernetesCluster>| object.is_none());
    timeout(TIMEOUT, gone).await.expect("the cluster is deleted").unwrap();
    for operation in operations {
        let name = operation.metadata.name.unwrap();
        let gone =
            await_condition(lab.operations(), &name, |object: Option<&ClusterOperation>| object.is_none());
        timeout(TIMEOUT, gone).await.expect("its operations are deleted").unwrap();
    }
    let jobs = lab.jobs().list(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(jobs, 4, "one Job for each operation");
}
