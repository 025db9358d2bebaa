//! The hosts that clusters of a namespace may have.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kubeon_install::{InstallOptions, policies};
use serde_json::{Value, json};

use crate::world::*;

async fn set_pool(world: &World, namespace: &str, pool: Value) {
    let namespaces: Api<Namespace> = Api::all(world.admin().await);
    let patch = json!({"metadata": {"annotations": {"kubeon.io/host-pool": pool}}});
    namespaces.patch(namespace, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test]
async fn hosts_outside_of_the_pool_of_a_namespace_are_refused() {
    let world = world().await;
    let (admin, namespace) = (world.admin().await, "pooled");
    apply(&admin, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
    let inside = cluster(namespace, "inside", "10.41.7", &[2, 3]);
    create(&admin, &inside).await.unwrap();
    set_pool(world, namespace, json!("10.40.0.0/16, 10.42.0.9")).await;
    let outside = |host: &str| {
        format!(
            "spec.cluster: host {host} is outside of the addresses of namespace pooled \
             (annotation kubeon.io/host-pool: 10.40.0.0/16, 10.42.0.9)"
        )
    };
    eventually("the pool", || async {
        create_dry(&admin, &cluster(namespace, "x", "10.41.8", &[])).await.err()
    })
    .await;
    let with_host =
        |host: Value| with(cluster(namespace, "y", "10.40.8", &[]), "/spec/cluster/nodeList", json!([host]));
    for (object, host) in [
        (cluster(namespace, "y", "10.41.8", &[]), "10.41.8.1"),
        (with_host(json!({"ip": "10.42.0.8"})), "10.42.0.8"),
        (with_host(json!({"ip": "10.40.8.2", "internalAddress": "10.9.0.2"})), "10.9.0.2"),
    ] {
        refused(create_dry(&admin, &object).await, &outside(host));
    }
    create_dry(&admin, &with_host(json!({"ip": "10.42.0.9"}))).await.unwrap();
    // Hosts that a cluster had before the pool stay; others are not added.
    let api = clusters(&admin, namespace);
    let workers = |hosts: &[&str]| {
        let hosts: Vec<Value> = hosts.iter().map(|host| json!({"ip": host})).collect();
        Patch::Merge(json!({"spec": {"cluster": {"nodeList": hosts}}}))
    };
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    said(api.patch("inside", &dry, &workers(&["10.41.7.2"])).await).unwrap();
    refused(
        said(api.patch("inside", &dry, &workers(&["10.41.7.2", "10.41.7.4"])).await),
        &outside("10.41.7.4"),
    );

    set_pool(world, namespace, json!("10.40.0.0/33")).await;
    let words = "metadata.annotations[kubeon.io/host-pool] of namespace pooled: 10.40.0.0/33: neither an address nor a network";
    let object = cluster(namespace, "y", "10.40.8", &[]);
    let said = eventually("the wrong pool", || async {
        create_dry(&admin, &object).await.err().filter(|said| said.contains("neither"))
    });
    refused(Err::<(), _>(said.await), words);
}

/// Has its own API server, because the stricter policy holds for all namespaces.
#[tokio::test]
async fn a_namespace_without_a_pool_has_no_clusters_when_pools_are_required() {
    let world = raise().await;
    let admin = world.admin().await;
    create_dry(&admin, &cluster("default", "free", "10.43.1", &[])).await.unwrap();
    let options = InstallOptions { require_host_pools: true, ..InstallOptions::default() };
    for object in policies::objects(&options).unwrap() {
        if object["metadata"]["name"] == "kubeon-host-pool" {
            apply(&admin, &object).await;
        }
    }
    let object = cluster("default", "free", "10.43.1", &[]);
    let refusal = eventually("the policy", || async { create_dry(&admin, &object).await.err() }).await;
    let words = "spec.cluster: host 10.43.1.1 is outside of the addresses of namespace default (annotation kubeon.io/host-pool: none)";
    refused(Err::<(), _>(refusal), words);
    set_pool(&world, "default", json!("10.43.0.0/16")).await;
    eventually("the pool", || async { create_dry(&admin, &object).await.ok() }).await;
    an_address_that_is_used_is_refused_like_a_free_one(&world, &object).await;
}

/// The policy comes before the webhook, which knows the hosts of all clusters.
async fn an_address_that_is_used_is_refused_like_a_free_one(world: &World, used: &Value) {
    let admin = world.admin().await;
    create(&admin, used).await.unwrap();
    eventually("the webhook knows the host", || async {
        let rival = cluster("default", "rival", "10.43.1", &[]);
        create_dry(&admin, &rival).await.err().filter(|said| said.contains("belongs to"))
    })
    .await;
    let namespace = world.namespace().await;
    set_pool(world, &namespace, json!("10.44.0.0/16")).await;
    eventually("the other pool", || async {
        create_dry(&admin, &cluster(&namespace, "a", "10.44.1", &[])).await.ok()
    })
    .await;
    for net in ["10.43.1", "10.43.2"] {
        let said = create_dry(&admin, &cluster(&namespace, "a", net, &[])).await.unwrap_err();
        let words = format!(
            "spec.cluster: host {net}.1 is outside of the addresses of namespace {namespace} \
             (annotation kubeon.io/host-pool: 10.44.0.0/16)"
        );
        assert!(said.contains(&words) && !said.contains("belongs to"), "{said}");
    }
}
