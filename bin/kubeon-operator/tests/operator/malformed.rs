//! Objects that cannot be parsed: each gets an event and is not changed, and no other object waits for them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt as _};
use kubeon_api::{Cluster, ClusterOperation, KubernetesCluster};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::lab::{Lab, TIMEOUT};

const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";

fn dynamic<K: Resource<DynamicType = ()>>(lab: &Lab, namespace: Option<&str>) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<K>(&());
    match namespace {
        Some(namespace) => Api::namespaced_with(lab.client.clone(), namespace, &kind),
        None => Api::all_with(lab.client.clone(), &kind),
    }
}

async fn create<K: Resource<DynamicType = ()>>(
    lab: &Lab,
    namespace: Option<&str>,
    name: &str,
    spec: &Value,
    dry_run: bool,
) -> kube::Result<DynamicObject> {
    let object = json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": name}, "spec": spec});
    let object = serde_json::from_value(object).unwrap();
    dynamic::<K>(lab, namespace).create(&PostParams { dry_run, ..PostParams::default() }, &object).await
}

/// Replaces the schema of `spec`.
async fn set_schema<K: Resource<DynamicType = ()>>(lab: &Lab, spec: &Value) {
    let name = format!("{}.{}", K::plural(&()), K::group(&()));
    let patch = json!([{"op": "replace", "path": SPEC, "value": spec}]);
    let patch = Patch::<()>::Json(serde_json::from_value(patch).unwrap());
    let definitions = Api::<CustomResourceDefinition>::all(lab.client.clone());
    definitions.patch(&name, &PatchParams::default(), &patch).await.unwrap();
}

/// Creates an object that violates its schema, as after an upgrade from a definition with a less strict schema.
async fn create_against_schema<K: Resource<DynamicType = ()>>(lab: &Lab, name: &str, spec: &Value) {
    let definitions = Api::<CustomResourceDefinition>::all(lab.client.clone());
    let name_of_kind = format!("{}.{}", K::plural(&()), K::group(&()));
    let strict = json!(definitions.get(&name_of_kind).await.unwrap()).pointer(SPEC).unwrap().clone();
    set_schema::<K>(lab, &json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})).await;
    let created = async {
        while create::<K>(lab, None, name, spec, false).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    timeout(TIMEOUT, created).await.expect("the API server uses the less strict schema in time");
    set_schema::<K>(lab, &strict).await;
    let refused = async {
        while create::<K>(lab, None, "another", spec, true).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    timeout(TIMEOUT, refused).await.expect("the API server uses the strict schema in time");
}

#[tokio::test]
async fn a_malformed_object_is_reported_and_blocks_no_other_object() {
    let lab = Lab::open().await;
    // The schema accepts it; only the parser finds that one address is declared in two ways.
    let duplicate =
        json!({"cluster": {"masterList": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.1", "port": 2222}]}});
    create::<KubernetesCluster>(&lab, Some(&lab.namespace), "odd-shop", &duplicate, false).await.unwrap();
    create_against_schema::<Cluster>(&lab, "odd", &json!({"hostsConfRef": "somewhere"})).await;
    let image = json!({"cluster": "sample", "actionType": "shell", "action": "true", "image": ["busybox"]});
    create_against_schema::<ClusterOperation>(&lab, "odd-operation", &image).await;
    lab.start();

    for (name, cause) in [("odd-shop", "10.0.0.1"), ("odd", "somewhere"), ("odd-operation", "sequence")] {
        lab.wait_event(name, "Malformed", "the object cannot be parsed and is not reconciled").await;
        let messages = lab.event_messages(name, "Malformed").await;
        assert!(
            messages.len() == 1 && messages[0].contains(cause),
            "{messages:?} does not contain the cause: {cause}"
        );
    }
    // The cluster of the malformed operation, and clusters of both kinds.
    lab.cluster("sample").await;
    lab.create_shell_operation("sample", "myops").await;
    lab.finish("myops").await;
    lab.declare("shop", "10.0.0.2").await;
    let has_job =
        |object: &KubernetesCluster| object.status.as_ref().is_some_and(|one| one.job_name.is_some());
    lab.wait_kubernetes_cluster("shop", has_job).await;
    // An operation of the malformed Cluster waits with that reason, and continues when the Cluster is
    // repaired.
    lab.create_shell_operation("odd", "waits").await;
    lab.wait_reason("waits", "Cluster odd cannot be read").await;
    lab.named_references("odd").await;
    let reference = |what: &str| json!({"namespace": lab.namespace, "name": format!("odd-{what}")});
    let repaired = json!({"spec": {"hostsConfRef": reference("hosts"), "varsConfRef": reference("vars")}});
    let clusters = dynamic::<Cluster>(&lab, None);
    clusters.patch("odd", &PatchParams::default(), &Patch::Merge(repaired)).await.unwrap();
    lab.finish("waits").await;
    // The malformed objects are unchanged, and no event was repeated.
    let odd = dynamic::<ClusterOperation>(&lab, None).get("odd-operation").await.unwrap();
    assert_eq!(
        odd.data["status"],
        json!({"observedGeneration": -1}),
        "the value of an object without a status"
    );
    assert!(odd.labels().is_empty(), "{odd:?}");
    for name in ["odd-shop", "odd", "odd-operation"] {
        assert_eq!(lab.event_messages(name, "Malformed").await.len(), 1, "{name}");
    }
}
