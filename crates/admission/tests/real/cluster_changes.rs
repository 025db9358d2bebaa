//! Who may change or delete a `Cluster` that exists.

use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kubeon_api::Cluster;
use serde_json::{Value, json};

use crate::policies::bound_everywhere;
use crate::world::*;

const GARBAGE_COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// A `Cluster` with its inventory in this namespace, and without a key.
fn declared(name: &str, namespace: &str) -> Value {
    let reference = |map: &str| json!({"namespace": namespace, "name": map});
    json!({
        "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "labels": {"of": namespace}},
        "spec": {"hostsConfRef": reference("hosts"), "varsConfRef": reference("vars")},
    })
}

async fn patch_cluster(client: &kube::Client, name: &str, patch: Value) -> Result<(), String> {
    let api: Api<Cluster> = Api::all(client.clone());
    said(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await)
}

async fn delete_cluster(client: &kube::Client, name: &str) -> Result<(), String> {
    let api: Api<Cluster> = Api::all(client.clone());
    said(api.delete(name, &DeleteParams::default()).await)
}

/// Changes that send operations elsewhere, keep a `Cluster` for ever, or let others delete it.
fn attacks(namespace: &str) -> [Value; 7] {
    let elsewhere = json!({"namespace": namespace, "name": "elsewhere"});
    let owner = json!([{"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "Cluster", "name": "gone",
        "uid": "00000000-0000-4000-8000-000000000000"}]);
    [
        json!({"spec": {"hostsConfRef": elsewhere}}),
        json!({"spec": {"varsConfRef": elsewhere}}),
        json!({"spec": {"jobPlacement": {"nodeSelector": {"none": "has-it"}}}}),
        json!({"metadata": {"annotations": {"note": "x"}}}),
        // A tool that installs from Git prunes what has its label.
        json!({"metadata": {"labels": {"app.kubernetes.io/instance": "x"}}}),
        // The garbage collector deletes what has an owner that is gone.
        json!({"metadata": {"ownerReferences": owner}}),
        json!({"metadata": {"finalizers": ["example.org/stay"]}}),
    ]
}

/// The rights of an owner of these Clusters: to use them, and to read inventories.
fn owner_role(name: &str, owned: &[&str]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [
            {"apiGroups": ["kubeonkube.clay.io"], "resources": ["clusters"], "resourceNames": owned, "verbs": ["use"]},
            {"apiGroups": ["kubeonkube.clay.io"], "resources": ["clusters"], "verbs": ["deletecollection"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
        ],
    })
}

/// A user who may write Clusters, and may use those of the role.
async fn editor(user: &str, role: &Value) -> kube::Client {
    let world = world().await;
    let admin = world.admin().await;
    apply(&admin, role).await;
    for role in ["kubeon-cluster-editor", role["metadata"]["name"].as_str().unwrap()] {
        apply(&admin, &bound_everywhere(user, role)).await;
    }
    let client = world.server.client_as(user, &[]).await.unwrap();
    let probe = declared(&format!("probe-{user}"), "default");
    eventually("the right to create", || async { create_dry(&client, &probe).await.ok() }).await;
    client
}

/// The right to write Clusters is one on the Clusters of all, and with a `Cluster` its operations are deleted.
#[tokio::test]
async fn who_changes_or_deletes_a_cluster_needs_the_right_to_use_it() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, world.namespace().await);
    let user = format!("editor-of-{namespace}");
    let [mine, theirs, new] = ["mine", "theirs", "new"].map(|whose| format!("{whose}-{namespace}"));
    let role = format!("owner-{namespace}");
    let client = editor(&user, &owner_role(&role, &[mine.as_str()])).await;
    let words = |name: &str| {
        format!(
            "spec, metadata: who changes or deletes Cluster {name} needs the verb use on clusters; {user} has it not"
        )
    };
    create(&admin, &declared(&theirs, &namespace)).await.unwrap();
    for attack in attacks(&namespace) {
        refused(patch_cluster(&client, &theirs, attack).await, &words(&theirs));
    }
    refused(delete_cluster(&client, &theirs).await, &words(&theirs));
    let (all, foreground) =
        (ListParams::default().labels(&format!("of={namespace}")), DeleteParams::foreground());
    let api: Api<Cluster> = Api::all(client.clone());
    refused(said(api.delete_collection(&DeleteParams::default(), &all).await), &words(&theirs));
    refused(said(api.delete(&theirs, &foreground).await), &words(&theirs));
    // What changes nothing, such as a repeated apply, needs no right.
    patch_cluster(&client, &theirs, json!({"metadata": {"labels": {"of": namespace}}})).await.unwrap();

    create(&client, &declared(&mine, &namespace)).await.unwrap();
    for change in attacks(&namespace) {
        patch_cluster(&client, &mine, change).await.unwrap();
    }
    patch_cluster(&client, &mine, json!({"metadata": {"finalizers": null}})).await.unwrap();
    delete_cluster(&client, &mine).await.unwrap();

    // Who creates one has no right on it until the owner of the meta cluster gives it.
    create(&client, &declared(&new, &namespace)).await.unwrap();
    refused(delete_cluster(&client, &new).await, &words(&new));
    apply(&admin, &owner_role(&role, &[mine.as_str(), new.as_str()])).await;
    eventually("the right to use", || async { delete_cluster(&client, &new).await.ok() }).await;
    delete_cluster(&admin, &theirs).await.unwrap();
}

/// The roles of an installation with one tenant, and Kubernetes itself, which has no right to use anything.
#[tokio::test]
async fn users_of_all_clusters_and_the_garbage_collector_change_and_delete_them() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, world.namespace().await);
    let user = format!("only-user-of-{namespace}");
    apply(&admin, &bound_everywhere(&user, "kubeon-cluster-user")).await;
    let client = editor(&user, &owner_role(&format!("none-{namespace}"), &["none"])).await;
    let name = format!("shared-{namespace}");
    create(&admin, &declared(&name, &namespace)).await.unwrap();
    let change = || patch_cluster(&client, &name, json!({"metadata": {"labels": {"seen": "yes"}}}));
    eventually("the right to use all", || async { change().await.ok() }).await;
    delete_cluster(&client, &name).await.unwrap();

    let collector = world.server.client_as(GARBAGE_COLLECTOR, &[]).await.unwrap();
    create(&admin, &declared(&name, &namespace)).await.unwrap();
    patch_cluster(&collector, &name, json!({"metadata": {"finalizers": ["example.org/stay"]}}))
        .await
        .unwrap();
    patch_cluster(&collector, &name, json!({"metadata": {"finalizers": null}})).await.unwrap();
    delete_cluster(&collector, &name).await.unwrap();
}
