//! Who may write the inventory of a `Cluster`.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::policies::bound_everywhere;
use crate::world::*;

fn rules(namespace: &str, name: &str, resource: &str, verbs: &[&str]) -> [Value; 2] {
    let user = format!("ops-of-{namespace}");
    [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": name, "namespace": namespace},
            "rules": [{"apiGroups": [""], "resources": [resource], "verbs": verbs}],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }),
    ]
}

/// An inventory that names a host of its writer would send the key's user there, with commands of the writer.
#[tokio::test]
async fn who_writes_an_inventory_must_be_allowed_to_read_its_key() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, world.namespace().await);
    let client = world.server.client_as(&format!("ops-of-{namespace}"), &[]).await.unwrap();
    for object in rules(&namespace, "maps", "configmaps", &["get", "create", "patch", "update"]) {
        apply(&admin, &object).await;
    }
    let reference = |name: &str| json!({"namespace": namespace, "name": name});
    let declared = json!({
        "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": format!("inventory-{namespace}")},
        "spec": {"hostsConfRef": reference("hosts"), "varsConfRef": reference("vars"), "sshAuthRef": reference("key")},
    });
    create(&admin, &declared).await.unwrap();
    let map = |name: &str, text: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace},
            "data": {"hosts.yml": text},
        })
    };
    let words = format!(
        "data: this ConfigMap says where Cluster inventory-{namespace} uses its key; who writes it must be allowed to read \
         the Secret in its spec.sshAuthRef; ops-of-{namespace} is not"
    );
    for name in ["hosts", "vars"] {
        let refusal = || async {
            create_dry(&client, &map(name, "all: {}")).await.err().filter(|said| said.contains(&words))
        };
        eventually("the refusal of a new inventory", refusal).await;
    }
    create(&client, &map("mine", "all: {}")).await.unwrap();

    create(&admin, &map("hosts", "all: {}")).await.unwrap();
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(client.clone(), &namespace);
    let patch = |patch: Value| {
        let maps = maps.clone();
        async move { said(maps.patch("hosts", &PatchParams::default(), &Patch::Merge(patch)).await) }
    };
    refused(patch(json!({"data": {"hosts.yml": "all: {hosts: {evil: {}}}"}})).await, &words);
    refused(patch(json!({"binaryData": {"hosts.yml": "eA=="}, "data": null})).await, &words);
    // Labels are not where a key is used.
    patch(json!({"metadata": {"labels": {"mine": "yes"}}})).await.unwrap();

    for object in rules(&namespace, "key", "secrets", &["get"]) {
        apply(&admin, &object).await;
    }
    let allowed = || async { patch(json!({"data": {"hosts.yml": "all: {hosts: {h9: {}}}"}})).await.ok() };
    eventually("the right to read the key", allowed).await;
}

/// Another inventory under the same key sends the key to other hosts.
#[tokio::test]
async fn who_exchanges_an_inventory_must_be_allowed_to_read_its_key() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, world.namespace().await);
    let user = format!("ops-of-{namespace}");
    let client = world.server.client_as(&user, &[]).await.unwrap();
    for object in rules(&namespace, "maps", "configmaps", &["get"]) {
        apply(&admin, &object).await;
    }
    for role in ["kubeon-cluster-editor", "kubeon-cluster-user"] {
        apply(&admin, &bound_everywhere(&user, role)).await;
    }
    let reference = |name: &str| json!({"namespace": namespace, "name": name});
    let name = format!("exchanged-{namespace}");
    let declared = json!({
        "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {"hostsConfRef": reference("hosts"), "varsConfRef": reference("vars"), "sshAuthRef": reference("key")},
    });
    create(&admin, &declared).await.unwrap();
    let clusters: kube::Api<kubeon_api::Cluster> = kube::Api::all(client);
    let exchange = |field: &'static str| {
        let (clusters, name) = (clusters.clone(), name.clone());
        let patch = Patch::Merge(json!({"spec": {field: reference("mine")}}));
        async move { said(clusters.patch(&name, &PatchParams::default(), &patch).await) }
    };
    let words = format!(
        "spec.sshAuthRef: who refers to secrets {namespace}/key must be allowed to read it; {user} is not"
    );
    for field in ["hostsConfRef", "varsConfRef"] {
        let refusal = || async { exchange(field).await.err().filter(|said| said.contains(&words)) };
        eventually("the refusal of another inventory", refusal).await;
    }
    for object in rules(&namespace, "key", "secrets", &["get"]) {
        apply(&admin, &object).await;
    }
    for field in ["hostsConfRef", "varsConfRef"] {
        eventually("the right to read the key", || async { exchange(field).await.ok() }).await;
    }
}
