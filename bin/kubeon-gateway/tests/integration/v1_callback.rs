//! Callbacks of version 1: only the token of the latest operation counts, and nothing is ever changed.

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kubeon_api::ClusterOperation;
use serde_json::{Value, json};

use crate::support::{RestServer, rest};

/// An operation of a cluster, as the operator derives it.
async fn operation(rest: &RestServer, cluster: &str, name: &str, action: &str) -> ClusterOperation {
    let operations: Api<ClusterOperation> = Api::all(rest.admin().await);
    let object: ClusterOperation = serde_json::from_value(json!({
        "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
        "metadata": {"name": name, "labels": {"kubeon.io/cluster-namespace": "team-b", "kubeon.io/cluster-uid": "u"}},
        "spec": {"cluster": cluster, "actionType": "kubeon", "action": action, "image": "runner"},
    }))
    .unwrap();
    let created = operations.create(&PostParams::default(), &object).await.unwrap();
    // The gateway sees it in its watch.
    for _ in 0..100 {
        let token = rest.server.admin_token();
        if rest.send(Some(token), "GET", &format!("/api/v2/operations/{name}"), "").await.0 == 200 {
            return created;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the gateway does not see operation {name}");
}

async fn set_result(rest: &RestServer, name: &str, result: &str) {
    patch_status(rest, name, json!({"status": result})).await;
}

/// The token of the runner of an operation.
async fn token_for(rest: &RestServer, operation: &ClusterOperation) -> String {
    rest.server.service_account("team-b", "kubeon-runner").await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(rest.admin().await, "team-b");
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(vec![format!("kubeon-callback/{}", operation.uid().unwrap())]),
            expiration_seconds: Some(3600),
            bound_object_ref: None,
        }),
        ..TokenRequest::default()
    };
    let answer =
        accounts.create_token_request("kubeon-runner", &PostParams::default(), &request).await.unwrap();
    answer.status.unwrap().token.unwrap()
}

async fn call(
    rest: &RestServer,
    token: Option<&str>,
    cluster: &str,
    route: &str,
    success: bool,
) -> (u16, Value) {
    let path = format!("/api/v1/region/default/cluster/{cluster}/{route}/callback");
    let body = json!({"name": cluster, "namespace": "team-b", "success": success, "kubeconfig": "K", "message": "m"});
    rest.send(token, "POST", &path, &body.to_string()).await
}

#[tokio::test]
async fn b15_b16_b17_a_callback_is_accepted_once_if_the_status_says_the_same() {
    let rest = rest().await;
    rest.cluster_in("team-b", "reported", "Creating").await;
    let created = operation(rest, "reported", "reported-creating", "creating").await;
    let token = token_for(rest, &created).await;
    let early = call(rest, Some(&token), "reported", "create", true).await;
    assert!(early.0 == 409 && early.1["message"].as_str().unwrap().contains("is Waiting"), "{early:?}");
    set_result(rest, "reported-creating", "Succeeded").await;
    let opposite = call(rest, Some(&token), "reported", "create", false).await;
    assert_eq!(opposite.0, 409, "{opposite:?}");
    let before = rest.clusters("team-b").await.get("reported").await.unwrap().resource_version();
    let accepted = call(rest, Some(&token), "reported", "create", true).await;
    assert_eq!((accepted.0, &accepted.1["message"]), (200, &json!("success")));
    let after = rest.clusters("team-b").await.get("reported").await.unwrap().resource_version();
    assert_eq!(before, after, "a callback changes nothing");
    rest.set_status("team-b", "reported", json!({"phase": "Running"})).await;
    let text = "job timeout or callback is already done.Current phase(Running) not is creating";
    for _ in 0..100 {
        let again = call(rest, Some(&token), "reported", "create", true).await;
        assert_eq!(again.0, 400);
        if again.1["message"] == text {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the second callback is not refused with: {text}");
}

async fn patch_status(rest: &RestServer, name: &str, status: Value) {
    let operations: Api<ClusterOperation> = Api::all(rest.admin().await);
    let patch = Patch::Merge(json!({"status": status}));
    operations.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// The Job of the caller still runs, so the operator has not decided the result.
#[tokio::test]
async fn b15_a_callback_is_accepted_if_the_runner_wrote_the_same() {
    let rest = rest().await;
    for (cluster, reason, success) in
        [("calling", "Succeeded", true), ("idle", "NothingToDo", true), ("failing", "Terminated", false)]
    {
        rest.cluster_in("team-b", cluster, "Creating").await;
        let name = format!("{cluster}-creating");
        let created = operation(rest, cluster, &name, "creating").await;
        let token = token_for(rest, &created).await;
        let progressing = |status: &str| {
            json!({"status": "Running", "conditions": [{"type": "Progressing", "status": status, "reason": reason,
                "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        };
        patch_status(rest, &name, progressing("True")).await;
        let early = call(rest, Some(&token), cluster, "create", success).await;
        assert!(early.0 == 409 && early.1["message"].as_str().unwrap().contains("is Running"), "{early:?}");
        patch_status(rest, &name, progressing("False")).await;
        assert_eq!(call(rest, Some(&token), cluster, "create", !success).await.0, 409, "{cluster}");
        assert_eq!(call(rest, Some(&token), cluster, "create", success).await.0, 200, "{cluster}");
    }
}

/// Each replica remembers the used tokens for itself.
#[tokio::test]
async fn b16_a_callback_long_after_the_end_is_refused_by_every_replica() {
    let rest = rest().await;
    rest.cluster_in("team-b", "late", "Running").await;
    let created = operation(rest, "late", "late-creating", "creating").await;
    let token = token_for(rest, &created).await;
    let ended = json!({"status": "Succeeded", "endTime": "2026-01-01T00:00:00Z"});
    patch_status(rest, "late-creating", ended).await;
    let refused = call(rest, Some(&token), "late", "create", true).await;
    assert_eq!(refused.0, 400, "{refused:?}");
    let text = refused.1["message"].as_str().unwrap();
    assert!(text.starts_with("job timeout or callback is already done"), "{text}");
}

#[tokio::test]
async fn b19_b25_a_callback_without_the_token_of_the_latest_operation_is_refused() {
    let rest = rest().await;
    rest.cluster_in("team-b", "guarded", "Scaling").await;
    let old = operation(rest, "guarded", "guarded-creating", "creating").await;
    // Creation times have seconds.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let new = operation(rest, "guarded", "guarded-scaling", "scaling-down").await;
    for name in ["guarded-creating", "guarded-scaling"] {
        set_result(rest, name, "Succeeded").await;
    }
    assert_eq!(call(rest, None, "guarded", "scaledown", true).await.0, 401);
    let general = rest.server.service_account("team-b", "kubeon-runner").await.unwrap();
    assert_eq!(call(rest, Some(&general), "guarded", "scaledown", true).await.0, 401);
    let other = operation(rest, "stranger", "stranger-creating", "scaling-down").await;
    let foreign = token_for(rest, &other).await;
    assert_eq!(call(rest, Some(&foreign), "guarded", "scaledown", true).await.0, 401);
    let old = token_for(rest, &old).await;
    assert_eq!(call(rest, Some(&old), "guarded", "create", true).await.0, 409);
    let token = token_for(rest, &new).await;
    assert_eq!(
        call(rest, Some(&token), "guarded", "scaleup", true).await.0,
        409,
        "the operation scales down"
    );
    assert_eq!(call(rest, Some(&token), "guarded", "scaledown", true).await.0, 200);
}
