//! The test API server behaves as a real one: admission, roles, definitions, service accounts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on")]

use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use kubeon_envtest::{ApiServerOptions, TestApiServer};
use serde_json::json;

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "a": "b" } })).unwrap()
}

async fn client_of(text: &str) -> Client {
    let config = Kubeconfig::from_yaml(text).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn stores_objects_and_enforces_roles() {
    let server = TestApiServer::shared().await.unwrap();
    let namespace = server.namespace().await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(server.client().await.unwrap(), &namespace);
    maps.create(&PostParams::default(), &config_map("one")).await.unwrap();
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items[0].name_any(), "one");

    let nobody = server.client_as("nobody", &["some", "groups"]).await.unwrap();
    let refused = Api::<Secret>::namespaced(nobody, &namespace).list(&ListParams::default()).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));
}

#[tokio::test]
async fn issues_tokens_for_service_accounts_and_the_administrator() {
    let server = TestApiServer::shared().await.unwrap();
    let namespace = server.namespace().await.unwrap();
    let token = server.service_account(&namespace, "runner").await.unwrap();
    let runner = client_of(&server.kubeconfig_of_token(&token)).await;
    let refused =
        Api::<Secret>::namespaced(runner, &namespace).list(&ListParams::default()).await.unwrap_err();
    let name = format!("system:serviceaccount:{namespace}:runner");
    assert!(refused.to_string().contains(&name), "{refused}");

    let admin = client_of(&server.kubeconfig_of_token(server.admin_token())).await;
    Api::<Secret>::namespaced(admin, &namespace).list(&ListParams::default()).await.unwrap();
    let file = std::fs::read_to_string(server.kubeconfig_file()).unwrap();
    client_of(&file).await.apiserver_version().await.unwrap();
}

#[tokio::test]
async fn serves_custom_resources_and_enforces_their_rules() {
    let server = TestApiServer::shared().await.unwrap();
    server.apply_crds(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")).await.unwrap();
    let kind = kube::core::GroupVersionKind::gvk("kubeonkube.clay.io", "v1alpha1", "Cluster");
    let client = server.client().await.unwrap();
    let (resource, _) = kube::discovery::pinned_kind(&client, &kind).await.unwrap();
    let clusters = Api::<kube::api::DynamicObject>::all_with(client, &resource);
    let without_hosts = json!({ "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "Cluster",
        "metadata": { "name": "bad" }, "spec": {} });
    let refused =
        clusters.create(&PostParams::default(), &serde_json::from_value(without_hosts).unwrap()).await;
    assert!(refused.unwrap_err().to_string().contains("hostsConfRef"));
}

#[tokio::test]
async fn collects_garbage_and_creates_accounts_with_controllers() {
    let server = TestApiServer::start(ApiServerOptions::default().with_controllers()).await.unwrap();
    let client = server.client().await.unwrap();
    let namespace = server.namespace().await.unwrap();
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), &namespace);
    kube::runtime::wait::await_condition(accounts, "default", |account: Option<&ServiceAccount>| {
        account.is_some()
    })
    .await
    .unwrap();
    let pod =
        json!({ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(client, &namespace);
    let mut owned = config_map("owned");
    owned.metadata.owner_references = Some(vec![kube::Resource::owner_ref(&pod, &()).unwrap()]);
    let owned = maps.create(&PostParams::default(), &owned).await.unwrap();
    pods.delete("p", &DeleteParams::default()).await.unwrap();
    let uid = owned.uid().unwrap();
    let deleted = kube::runtime::wait::await_condition(
        maps,
        "owned",
        kube::runtime::wait::conditions::is_deleted(&uid),
    );
    tokio::time::timeout(std::time::Duration::from_secs(60), deleted).await.unwrap().unwrap();
}

#[tokio::test]
async fn reports_the_log_tail_of_a_server_that_does_not_start() {
    let options =
        ApiServerOptions { arguments: vec!["--no-such-flag".into()], ..ApiServerOptions::default() };
    let error = TestApiServer::start(options).await.err().unwrap().to_string();
    assert!(error.contains("kube-apiserver") && error.contains("no-such-flag"), "{error}");
}
