//! The hosts that clusters of a namespace may have, and their object stores.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
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

/// Has its own API server, because the stricter policies hold for all namespaces.
#[tokio::test]
async fn pools_are_required_and_object_stores_are_those_of_a_list_if_the_installer_says_so() {
    let world = raise().await;
    let admin = world.admin().await;
    create_dry(&admin, &cluster("default", "free", "10.43.1", &[])).await.unwrap();
    let old = stored("old", "10.43.2", Some("http://10.0.0.1:9000"));
    create(&admin, &old).await.unwrap();
    let options = InstallOptions {
        require_host_pools: true,
        snapshot_endpoints: vec![
            "https://s3.example.org".to_owned(),
            "https://s3.example.net:9000".to_owned(),
        ],
        ..InstallOptions::default()
    };
    for object in policies::objects(&options).unwrap() {
        if object["metadata"]["name"] == "kubeon-host-pool"
            || object["metadata"]["name"] == "kubeon-snapshot-endpoint"
        {
            apply(&admin, &object).await;
        }
    }
    let object = cluster("default", "free", "10.43.1", &[]);
    let refusal = eventually("the policy", || async { create_dry(&admin, &object).await.err() }).await;
    let words = "spec.cluster: host 10.43.1.1 is outside of the addresses of namespace default (annotation kubeon.io/host-pool: none)";
    refused(Err::<(), _>(refusal), words);
    set_pool(&world, "default", json!("10.43.0.0/16")).await;
    eventually("the pool", || async { create_dry(&admin, &object).await.ok() }).await;
    object_stores_are_listed(&admin, &old).await;
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

/// A cluster with snapshots in this object store.
fn stored(name: &str, net: &str, endpoint: Option<&str>) -> Value {
    let mut place = json!({"folder": "s3://snapshots/a/", "credentialsRef": {"name": "store"}});
    if let Some(endpoint) = endpoint {
        place["endpoint"] = endpoint.into();
    }
    with(cluster("default", name, net, &[]), "/spec/snapshots", place)
}

/// Another address than a listed one would let a tenant find out what answers there.
async fn object_stores_are_listed(admin: &Client, old: &Value) {
    let words = |endpoint: &str| {
        format!(
            "spec.snapshots.endpoint: {endpoint} is none of the object stores that the owner of the meta cluster allows: \
             https://s3.example.org, https://s3.example.net:9000"
        )
    };
    let probe = stored("new", "10.43.3", Some("http://169.254.169.254"));
    let said = eventually("the list", || async { create_dry(admin, &probe).await.err() }).await;
    refused(Err(said), &words("http://169.254.169.254"));
    for other in ["http://s3.example.org", "https://s3.example.org:6443", "https://s3.example.net"] {
        refused(create_dry(admin, &stored("new", "10.43.3", Some(other))).await, &words(other));
    }
    for listed in [None, Some("https://s3.example.org"), Some("https://s3.example.net:9000")] {
        create_dry(admin, &stored("new", "10.43.3", listed)).await.unwrap();
    }
    // The object store that a cluster had before the list stays; another one is not taken.
    change(admin, old, json!({"spec": {"snapshots": {"keep": 3}}})).await.unwrap();
    let other = json!({"spec": {"snapshots": {"endpoint": "http://10.0.0.2:9000"}}});
    refused(change(admin, old, other).await, &words("http://10.0.0.2:9000"));
    let listed = json!({"spec": {"snapshots": {"endpoint": "https://s3.example.org"}}});
    change(admin, old, listed).await.unwrap();
}
