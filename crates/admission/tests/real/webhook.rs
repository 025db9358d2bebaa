//! Rules that need other objects or the catalogue, and the behaviour while the webhook is down.

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use kubeon_api::ClusterOperation;
use kubeon_install::{InstallOptions, names, webhook};
use serde_json::{Value, json};

use crate::world::*;

#[tokio::test]
async fn names_the_field_and_the_reason() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, world.namespace().await);
    let object = cluster(&namespace, "a", "10.20.0", &[2, 4]);
    create(&admin, &object).await.unwrap();
    put(world, &object, "Running", true).await;
    let set = |field: &str, value| json!({"spec": {"cluster": {field: value}}});
    let nodes = |hosts: &[u8]| -> Value {
        hosts.iter().map(|host| json!({"ip": format!("10.20.0.{host}")})).collect()
    };
    for (patch, words) in [
        (set("masterList", nodes(&[3])), "spec.cluster.masterList: would keep no master"),
        (set("etcdList", nodes(&[7])), "etcd cannot move between the masters and hosts of its own"),
        (set("nodeList", nodes(&[])), "spec.cluster.nodeList: would be empty"),
        (set("kubeVersion", json!("v1.35.4")), "v1.35.4 is older than v1.36.1: a downgrade is not possible"),
        (
            set("kubeVersion", json!("v1.99.0")),
            "v1.99.0 is not in the catalogue; it holds v1.35.4, v1.36.1, v1.36.3",
        ),
        (set("network", json!({"cni": "cilium"})), "spec.cluster.network.cni: no bundle carries cilium"),
    ] {
        refused(change(&admin, &object, patch).await, words);
    }
    for (word, hosts, words) in [
        ("scaling-up", &[2, 5], "scaling-up keeps every node, but 10.20.0.4 would be removed"),
        ("scaling-down", &[2, 5], "scaling-down adds no node, but 10.20.0.5 is new"),
    ] {
        let mut asked = set("nodeList", nodes(hosts));
        asked["metadata"] = json!({"annotations": {"app.kubernetes.io/operation": word}});
        refused(change(&admin, &object, asked).await, words);
    }
    refused(
        ask(&admin, &object, "rollbacking").await,
        "spec.snapshots.restoreFrom: rollbacking needs the snapshot to which the cluster returns",
    );
    // A permitted change succeeds.
    change(&admin, &object, set("nodeList", nodes(&[2, 5]))).await.unwrap();
}

/// An invalid SSH key, networks that contain a host, and names that a shell would execute: contract B, cases
/// 14 and 50.
#[tokio::test]
async fn a_new_cluster_is_looked_through() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, world.namespace().await);
    let object = cluster(&namespace, "a", "10.24.0", &[2]);
    for (pointer, value, words) in [
        (
            "/spec/cluster/authConfig",
            json!({"privateSSHKey": "-----BEGIN RUBBISH"}),
            "spec.cluster.authConfig.privateSSHKey: ",
        ),
        ("/spec/cluster/nodeList/0/ip", json!("10.96.0.9"), "10.96.0.0/12 contains the host 10.96.0.9"),
        ("/spec/cluster/nodeList/0/name", json!("x;rm -rf /"), "spec.cluster.nodeList[0].name"),
        ("/spec/cluster/externalLoadBalancer", json!("$(id)"), "spec.cluster.externalLoadBalancer"),
        (
            "/spec/cluster/nodeList",
            json!([{"ip": "10.24.0.2"}, {"ip": "10.24.0.2", "port": 2222}]),
            "10.24.0.2",
        ),
    ] {
        refused(create(&admin, &with(object.clone(), pointer, value)).await, words);
    }
    refused(create(&admin, &with(object, "/metadata/name", json!("x;rm -rf /"))).await, "metadata.name");
}

/// Denials of the schema: contract B, case 48, and fixed fields.
#[tokio::test]
async fn the_schema_comes_first() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, world.namespace().await);
    let object = cluster(&namespace, "a", "10.21.0", &[2]);
    for (pointer, value, words) in [
        ("/spec/cluster/nodeList/0/ip", json!("300.1.1.1"), "spec.cluster.nodeList[0].ip"),
        ("/spec/cluster/deployMode", json!("foo"), "spec.cluster.deployMode"),
        ("/spec/cluster/podCIDR", json!("10.64.0.0/12"), "podCIDR and serviceCIDR overlap"),
        ("/spec/cluster/podCIDR", json!("10.96.0.0"), "spec.cluster.podCIDR"),
        ("/spec/cluster/masterList", json!([]), "masterList is empty"),
        (
            "/spec/cluster/etcdList",
            json!([{"ip": "10.21.0.1"}, {"ip": "10.21.0.2"}]),
            "an odd number of hosts",
        ),
        ("/spec/cluster/nodeList", json!([{"ip": "10.21.0.1"}]), "a host has one role"),
        ("/metadata/name", json!("x".repeat(64)), "at most 63"),
    ] {
        refused(create(&admin, &with(object.clone(), pointer, value)).await, words);
    }
    let logging_in = json!({"username": "ops", "credentialsRef": {"name": "key"}});
    let object = with(object, "/spec/cluster/authConfig", logging_in);
    create(&admin, &object).await.unwrap();
    for (field, value, words) in [
        ("podCIDR", json!("10.128.0.0/12"), "podCIDR cannot be changed"),
        ("serviceCIDR", json!("10.128.0.0/12"), "serviceCIDR cannot be changed"),
        ("clusterType", json!("k3s"), "clusterType cannot be changed"),
        ("deployMode", json!("container"), "deployMode cannot be changed"),
        ("authConfig", json!({"username": "root"}), "authConfig.username cannot be changed"),
        ("region", json!("eu"), ""),
        ("region", json!("us"), "region cannot be changed"),
    ] {
        let result = change(&admin, &object, json!({"spec": {"cluster": {field: value}}})).await;
        if words.is_empty() { result.unwrap() } else { refused(result, words) }
    }
}

#[tokio::test]
async fn an_address_has_one_cluster() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, world.namespace().await);
    create(&admin, &cluster(&namespace, "first", "10.22.0", &[2])).await.unwrap();
    let second = with(
        cluster(&namespace, "second", "10.22.1", &[]),
        "/spec/cluster/nodeList",
        json!([{"ip": "10.22.0.2"}]),
    );
    let words = format!(
        "spec.cluster.nodeList[0].ip: 10.22.0.2 belongs to KubernetesCluster {namespace}/first; a host has one cluster"
    );
    // The webhook observes the first cluster through a watch.
    let ask = || async { create_dry(&admin, &second).await.err().filter(|said| said.contains(&words)) };
    eventually(&words, ask).await;
    // Whose it is stays with its namespace.
    let elsewhere = world.namespace().await;
    let stranger = with(
        cluster(&elsewhere, "stranger", "10.22.2", &[]),
        "/spec/cluster/nodeList",
        json!([{"ip": "10.22.0.2"}]),
    );
    let refusal = create_dry(&admin, &stranger).await;
    let said = refusal.clone().unwrap_err();
    assert!(!said.contains(&namespace) && !said.contains("first"), "{said}");
    refused(
        refusal,
        "spec.cluster.nodeList[0].ip: 10.22.0.2 belongs to a cluster in another namespace; a host has one cluster",
    );
    let first = clusters(&admin, &namespace);
    first.delete("first", &Default::default()).await.unwrap();
    eventually("the host is free", || async { create(&admin, &second).await.ok() }).await;
}

/// Contract A, case 43.
#[tokio::test]
async fn an_operation_names_a_cluster() {
    let world = world().await;
    let operation = json!({
        "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation", "metadata": {"name": "nameless"},
        "spec": {"cluster": "", "actionType": "OtherAction", "action": "true", "image": ""},
    });
    let refusal = create(&world.admin().await, &operation).await;
    refused(refusal.clone(), "spec.cluster: is empty; name the Cluster that the operation changes");
    assert!(refusal.unwrap_err().starts_with("400 "));
    // An operation that will fail with a reason is allowed: A 9, 19.
    create(&world.admin().await, &with(operation, "/spec/cluster", json!("sample"))).await.unwrap();
}

/// The same webhook configuration at a port without a listener: for clusters in a namespace, and for
/// operations with a label.
async fn dark(world: &World, admin: &Client, namespace: &str) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = by_url(listener.local_addr().unwrap(), names::WEBHOOK_PATH);
    drop(listener);
    let dark = webhook::configuration_with(&InstallOptions::default(), client);
    let mut dark = serde_json::to_value(dark).unwrap();
    dark["metadata"]["name"] = json!("dark");
    let mut hooks = [dark["webhooks"][0].clone(), dark["webhooks"][0].clone()];
    hooks[0]["namespaceSelector"] = json!({"matchLabels": {"dark": "yes"}});
    hooks[0]["rules"].as_array_mut().unwrap().truncate(1);
    hooks[1]["name"] = json!("operations.ecs.yun.com");
    hooks[1]["objectSelector"] = json!({"matchLabels": {"dark": "yes"}});
    hooks[1]["rules"].as_array_mut().unwrap().remove(0);
    dark["webhooks"] = json!(hooks);
    world.label_namespace(namespace, "dark").await;
    apply(admin, &dark).await;
    for object in [cluster(namespace, "trial", "10.23.9", &[]), operation("trial")] {
        let ask = || async { create_dry(admin, &object).await.err().filter(|said| said.contains(AWAY)) };
        eventually(AWAY, ask).await;
    }
}

const AWAY: &str = "failed calling webhook";

fn finalizer(name: &str) -> String {
    format!("kubernetescluster.ecs.yun.com/{name}")
}

fn operation(name: &str) -> Value {
    json!({
        "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
        "metadata": {"name": name, "labels": {"dark": "yes"}},
        "spec": {"cluster": "kept", "actionType": "shell", "action": "true", "image": "x"},
    })
}

async fn is_there(client: &Client, object: &Value) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap();
    let api = clusters(client, object["metadata"]["namespace"].as_str().unwrap());
    api.get_opt(name).await.unwrap().is_some()
}

#[tokio::test]
async fn while_the_webhook_is_away_people_wait_and_the_operator_goes_on() {
    let world = world().await;
    let (admin, operator) = (world.admin().await, world.operator().await);
    let namespace = world.namespace().await;
    let held = |name: &str, net: &str| {
        with(cluster(&namespace, name, net, &[2]), "/metadata/finalizers", json!([finalizer(name)]))
    };
    let (kept, leaving) = (held("kept", "10.23.0"), held("leaving", "10.23.1"));
    let stuck = with(held("stuck", "10.23.2"), "/metadata/finalizers", json!(["somebody.example/else"]));
    for object in [&kept, &leaving, &stuck] {
        create(&admin, object).await.unwrap();
    }
    put(world, &kept, "Running", true).await;
    let api = clusters(&admin, &namespace);
    for object in [&leaving, &stuck] {
        api.delete(object["metadata"]["name"].as_str().unwrap(), &Default::default()).await.unwrap();
        assert!(is_there(&admin, object).await, "it waits for its finalizer");
    }
    dark(world, &admin, &namespace).await;

    // Users cannot create objects or request operations.
    refused(create(&admin, &cluster(&namespace, "new", "10.23.3", &[])).await, AWAY);
    refused(create(&admin, &operation("new")).await, AWAY);
    let grown = json!({"spec": {"cluster": {"nodeList": [{"ip": "10.23.0.2"}, {"ip": "10.23.0.4"}]}}});
    refused(change(&admin, &kept, grown).await, AWAY);
    refused(ask(&admin, &kept, "scaling-up").await, AWAY);

    // The operator can write: claim, operation, progress, result, finalizers.
    let claim = json!({"status": {"phase": "Prechecking", "operation": "kept-scaling-up"}});
    let own = clusters(&operator, &namespace);
    said(own.patch_status("kept", &PatchParams::default(), &Patch::Merge(claim)).await).unwrap();
    create(&operator, &operation("kept-scaling-up")).await.unwrap();
    let running = json!({"status": {"status": "Running", "jobRef": {"namespace": namespace, "name": "job"}}});
    let derived = operations(&operator);
    said(derived.patch_status("kept-scaling-up", &PatchParams::default(), &Patch::Merge(running)).await)
        .unwrap();
    let done = json!({"metadata": {"labels": {"hasCompleted": "done"}}});
    said(derived.patch("kept-scaling-up", &PatchParams::default(), &Patch::Merge(done)).await).unwrap();
    let applied = json!({"app.kubernetes.io/operation": "scale-up-finished", "app.kubernetes.io/spec": "{}"});
    change(&operator, &kept, json!({"metadata": {"annotations": applied}})).await.unwrap();
    let both = json!([finalizer("kept"), "somebody.example/else"]);
    change(&operator, &kept, json!({"metadata": {"finalizers": both}})).await.unwrap();
    change(&operator, &leaving, json!({"metadata": {"finalizers": []}})).await.unwrap();
    assert!(!is_there(&admin, &leaving).await, "nothing keeps it any more");
    said(derived.delete("kept-scaling-up", &Default::default()).await).unwrap();

    // A user can still remove a finalizer.
    change(&admin, &stuck, json!({"metadata": {"finalizers": null}})).await.unwrap();
    assert!(!is_there(&admin, &stuck).await, "nothing keeps it any more");
}

/// The name in an object is that of its user, on a real API server: no user can write another's.
#[tokio::test]
async fn who_asked_for_an_operation_is_recorded_and_cannot_be_claimed() {
    let world = world().await;
    let (admin, operator) = (world.admin().await, world.operator().await);
    let requester = |object: &DynamicObject| object.annotations().get("kubeon.io/requested-by").cloned();
    let claimed = json!({"kubeon.io/requested-by": "somebody"});
    let asked = with(operation("asked"), "/metadata/annotations", claimed.clone());
    let asked = with(asked, "/metadata/labels", json!({}));
    create(&admin, &asked).await.unwrap();
    let resource = ApiResource::erase::<ClusterOperation>(&());
    let api: Api<DynamicObject> = Api::all_with(admin.clone(), &resource);
    let first = requester(&api.get("asked").await.unwrap()).unwrap();
    assert_ne!(first, "somebody");
    for patch in [
        json!({"metadata": {"annotations": claimed}}),
        json!({"metadata": {"annotations": {"kubeon.io/requested-by": null}}}),
        json!({"spec": {"cancelled": true}}),
    ] {
        let changed =
            api.patch("asked", &PatchParams::default(), &Patch::Merge(patch.clone())).await.unwrap();
        assert_eq!(requester(&changed).as_ref(), Some(&first), "{patch}");
    }
    // The operator hands on the name of a declared cluster's user.
    let derived = with(operation("handed-on"), "/metadata/annotations", claimed);
    create(&operator, &with(derived, "/metadata/labels", json!({}))).await.unwrap();
    assert_eq!(requester(&api.get("handed-on").await.unwrap()).as_deref(), Some("somebody"));
}
