//! Invalid input is reported in the status and in an event, and blocks no other operation. The case numbers are
//! those of contract A.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kubeon_api::kubeonkube::{Action, ActionSource, ClusterOperationSpec, ClusterSpec, OperationResult};
use kubeon_api::{Cluster, ClusterOperation, DataRef, KubernetesCluster};
use serde_json::json;

use crate::lab::{Lab, playbook, shell};

/// Operations that can never run, each with a part of its message. The named objects contain the inventories and
/// keys.
fn invalid_operations(lab: &Lab) -> Vec<(ClusterOperationSpec, &'static str)> {
    let at = |name: &str| Some(DataRef::new(&lab.namespace, name));
    let action = |kind: &str, text: &str| Action {
        action_type: kind.into(),
        action: text.into(),
        ..Action::default()
    };
    let cluster_playbook = || playbook("sample", "cluster.yml");
    let mut all: Vec<(ClusterOperationSpec, &str)> = ["", " ", "_", ".", "a;rm -rf /"]
        .map(|image| (ClusterOperationSpec { image: image.into(), ..shell("sample") }, "image"))
        .into();
    all.extend([
        (
            ClusterOperationSpec { image: "example.org/unlisted:v1".into(), ..shell("sample") },
            "image \"example.org/unlisted:v1\" is not allowed; allowed are ",
        ),
        (playbook("sample", "abc.yml"), "\"abc.yml\""),
        (ClusterOperationSpec { main: action("OtherAction", "x"), ..shell("sample") }, "[playbook shell"),
        (
            ClusterOperationSpec {
                ssh_auth_ref: Some(DataRef::new("default", "sample-key")),
                ..shell("sample")
            },
            "hostsConfRef varsConfRef or sshAuthRef not in the same namespace",
        ),
        (ClusterOperationSpec { ssh_auth_ref: at("public"), ..cluster_playbook() }, "this is a public key"),
        (
            ClusterOperationSpec { hosts_conf_ref: at("odd-host"), ..cluster_playbook() },
            "\"x;rm -rf /\": is neither a name",
        ),
        (
            ClusterOperationSpec { hosts_conf_ref: at("odd-group"), ..cluster_playbook() },
            "is not a field of a group",
        ),
        (ClusterOperationSpec { vars_conf_ref: at("no-yaml"), ..cluster_playbook() }, "group_vars.yml line"),
    ]);
    all
}

#[tokio::test]
async fn a9_a10_a19_a24_a35_an_invalid_operation_fails_with_its_reason_and_creates_no_job() {
    let lab = Lab::open().await;
    lab.start();
    lab.cluster("sample").await;
    let public: Secret = serde_json::from_value(json!({"metadata": {"name": "public"},
        "stringData": {"ssh-privatekey": "ssh-ed25519 AAAA me@here"}}))
    .unwrap();
    lab.put(public).await;
    lab.config_map("odd-host", json!({"hosts.yml": "all: {hosts: {'x;rm -rf /': {}}}\n"})).await;
    lab.config_map("odd-group", json!({"hosts.yml": "all: {nodes: {}}\n"})).await;
    lab.config_map("no-yaml", json!({"group_vars.yml": "a: [1,\n"})).await;
    for (index, (spec, text)) in invalid_operations(&lab).into_iter().enumerate() {
        let name = format!("invalid-{index}");
        lab.create_operation(&name, spec).await;
        let ended = lab.wait_result(&name, OperationResult::Failed).await;
        let status = ended.status.unwrap();
        let reason = status.reason.unwrap();
        assert!(reason.contains(text), "{reason}\n  does not contain\n{text}");
        assert!(status.end_time.is_some() && status.job_ref.is_none(), "{name}");
        lab.wait_event(&name, "Failed", &reason).await;
        let messages = lab.event_messages(&name, "Failed").await;
        assert!(messages.contains(&reason), "the message is more than the reason: {messages:?}");
    }
    let without_reference = Action {
        action_type: "playbook".into(),
        action: "myplaybook.yml".into(),
        action_source: Some(ActionSource::Configmap),
        ..Action::default()
    };
    let spec = ClusterOperationSpec { main: without_reference, ..shell("sample") };
    let operation = ClusterOperation::new("without-reference", spec);
    let error = lab.operations().create(&PostParams::default(), &operation).await.unwrap_err().to_string();
    assert!(error.contains("actionSourceRef must be specified if actionSource set as configmap"), "{error}");
    assert!(lab.jobs().list(&ListParams::default()).await.unwrap().items.is_empty());
    // The next operation does not wait for the refused one.
    lab.create_shell_operation("sample", "good").await;
    lab.finish("good").await;
}

#[tokio::test]
async fn a34_an_operation_starts_when_its_cluster_appears() {
    let lab = Lab::open().await;
    lab.start();
    lab.create_shell_operation("sample", "early").await;
    lab.wait_reason("early", "Cluster sample not found").await;
    assert!(lab.jobs().list(&ListParams::default()).await.unwrap().items.is_empty());
    lab.cluster("sample").await;
    lab.finish("early").await;
}

#[tokio::test]
async fn a_conflicting_secret_is_reported_and_its_deletion_starts_the_operation() {
    let lab = Lab::open().await;
    lab.start();
    let foreign = |name: &str| -> Secret {
        serde_json::from_value(json!({"metadata": {"name": name}, "stringData": {"mine": "x"}})).unwrap()
    };
    let secrets = Api::<Secret>::namespaced(lab.client.clone(), &lab.namespace);
    lab.cluster("sample").await;
    for (secret, operation) in [("kubeonkube-sample-state", "one"), ("kubeonkube-sample-kubeconfig", "two")] {
        // The Secret of the first operation belongs to the operator; the new one does not.
        let _ = secrets.delete(secret, &DeleteParams::default()).await;
        lab.put(foreign(secret)).await;
        lab.create_operation(operation, playbook("sample", "cluster.yml")).await;
        let reason = lab.wait_reason(operation, secret).await;
        assert!(reason.contains("does not belong to this cluster"), "{reason}");
        secrets.delete(secret, &DeleteParams::default()).await.unwrap();
        lab.finish(operation).await;
    }
    let secret = format!("{}-shop-state", lab.namespace);
    lab.put(foreign(&secret)).await;
    lab.declare("shop", "10.0.0.1").await;
    let operation = |object: &KubernetesCluster| object.status.as_ref()?.operation.clone();
    let object = lab.wait_kubernetes_cluster("shop", |object| operation(object).is_some()).await;
    let name = operation(&object).unwrap();
    lab.wait_reason(&name, &secret).await;
    secrets.delete(&secret, &DeleteParams::default()).await.unwrap();
    lab.wait_result(&name, OperationResult::Running).await;
}

/// The state of a deleted cluster has the keys of its hosts. The next one of the name may be a stranger's.
#[tokio::test]
async fn the_state_of_a_deleted_cluster_is_not_given_to_the_next_one_of_its_name() {
    const STATE: &str = "kubeonkube-sample-state";
    let lab = Lab::open().await;
    lab.start();
    let secrets = Api::<Secret>::namespaced(lab.client.clone(), &lab.namespace);
    let clusters = Api::<Cluster>::all(lab.client.clone());
    let uid = |secret: Secret| secret.metadata.annotations.unwrap()["kubeon.io/cluster-uid"].clone();
    lab.cluster("sample").await;
    let first = clusters.get("sample").await.unwrap();
    lab.create_operation("one", playbook("sample", "cluster.yml")).await;
    lab.finish("one").await;
    let keys = Patch::Merge(json!({"stringData": {"state.tar.zst": "keys"}}));
    secrets.patch(STATE, &PatchParams::default(), &keys).await.unwrap();
    assert_eq!(Some(uid(secrets.get(STATE).await.unwrap())), first.metadata.uid);

    clusters.delete("sample", &DeleteParams::default()).await.unwrap();
    // There is no garbage collector.
    secrets.delete("kubeonkube-sample-kubeconfig", &DeleteParams::default()).await.unwrap();
    let again = Cluster::new("sample", first.spec.clone());
    let second = clusters.create(&PostParams::default(), &again).await.unwrap();
    assert_ne!(first.metadata.uid, second.metadata.uid);
    lab.create_operation("two", playbook("sample", "reset.yml")).await;
    let reason = lab.wait_reason("two", STATE).await;
    assert!(reason.contains("belongs to an earlier Cluster of this name"), "{reason}");
    assert_eq!(Some(uid(secrets.get(STATE).await.unwrap())), first.metadata.uid);
    let continued = Patch::Merge(json!({"metadata": {"annotations": {"kubeon.io/cluster-uid": null}}}));
    secrets.patch(STATE, &PatchParams::default(), &continued).await.unwrap();
    lab.finish("two").await;
    assert_eq!(Some(uid(secrets.get(STATE).await.unwrap())), second.metadata.uid);
}

#[tokio::test]
async fn the_longest_names_that_kubernetes_accepts_have_separate_jobs() {
    let lab = Lab::open().await;
    lab.start();
    let long = |end: &str| {
        let label = "x".repeat(63);
        format!("{label}.{label}.{label}.{}{end}", "y".repeat(61 - end.len()))
    };
    let clusters = Api::<Cluster>::all(lab.client.clone());
    let refused =
        clusters.create(&PostParams::default(), &Cluster::new(&long(""), ClusterSpec::default())).await;
    assert!(refused.unwrap_err().to_string().contains("at most 63 characters"));
    let cluster = "x".repeat(63);
    lab.named_cluster(&cluster, "sample").await;
    let mut jobs = Vec::new();
    for (name, spec) in [
        (long("a"), shell(&cluster)),
        (long("b"), playbook(&cluster, "cluster.yml")),
        ("z".repeat(63), playbook(&cluster, "reset.yml")),
    ] {
        lab.create_operation(&name, spec).await;
        let ended: ClusterOperation = lab.finish(&name).await;
        assert_eq!(ended.status.as_ref().unwrap().status, Some(OperationResult::Succeeded));
        jobs.extend(lab.job_names(&ended).await);
    }
    jobs.sort();
    jobs.dedup();
    assert!(jobs.len() == 3 && jobs.iter().all(|job| job.len() <= 63), "{jobs:?}");
    let name = "c".repeat(63);
    lab.declare(&name, "10.0.0.1").await;
    let job = |object: &KubernetesCluster| object.status.as_ref()?.job_name.clone();
    let object = lab.wait_kubernetes_cluster(&name, |object| job(object).is_some()).await;
    lab.end_job(&job(&object).unwrap(), true).await;
    let running = |object: &KubernetesCluster| {
        object.status.as_ref().and_then(|status| status.phase) == Some(kubeon_api::Phase::Running)
    };
    lab.wait_kubernetes_cluster(&name, running).await;
}
