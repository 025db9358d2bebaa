//! Where and with which limits the pods of Jobs run.

use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, job, object, phase, running, scaled, world};
use crate::testing::World;
use crate::write::ObjectKind;

const JOB: &str = "kubeonkube-o-job";

/// What the owner of the meta cluster decides.
fn installed() -> kubeon_api::JobPlacement {
    let placement = json!({
        "nodeSelector": {"pool": "operations"},
        "tolerations": [{"key": "operations", "operator": "Exists"}],
        "priorityClassName": "low",
        "imagePullSecrets": [{"name": "registry"}],
        "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "512Mi"}},
    });
    serde_json::from_value(placement).unwrap()
}

/// What a cluster declares.
fn own() -> Value {
    json!({
        "nodeSelector": {"zone": "north", "pool": "operations"},
        "tolerations": [{"key": "dedicated", "value": "shop", "effect": "NoSchedule"},
            {"key": "operations", "operator": "Exists"}],
        "resources": {"limits": {"memory": "1Gi"}},
    })
}

fn assert_merged(job: &Value) {
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({"pool": "operations", "zone": "north"}));
    let tolerations = json!([{"key": "operations", "operator": "Exists"},
        {"key": "dedicated", "value": "shop", "effect": "NoSchedule"}]);
    assert_eq!(pod["tolerations"], tolerations);
    assert_eq!(pod["priorityClassName"], "low");
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]));
    let resources = json!({"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}});
    assert_eq!(pod["containers"][0]["resources"], resources);
}

/// A Cluster with this placement and an operation.
fn asked(placement: &Value, resources: &Value) -> World {
    let mut world = World::with_cluster();
    world.settings.placement = installed();
    world.change(ObjectKind::Cluster, "", "sample", &json!({"spec": {"jobPlacement": placement}}));
    world.ask("o", |spec| spec.resources = serde_json::from_value(resources.clone()).unwrap());
    world.settle();
    world
}

#[test]
fn a_cluster_adds_to_the_placement_of_the_installation() {
    let world = asked(&own(), &Value::Null);
    assert_merged(world.get(ObjectKind::Job, "ns", JOB));
    let resources = json!({"limits": {"cpu": "2"}});
    let world = asked(&own(), &resources);
    let container = &world.get(ObjectKind::Job, "ns", JOB)["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"], resources, "an operation has its own");
}

#[test]
fn a_kubernetes_cluster_adds_to_the_placement_of_the_installation() {
    let mut world = world(&["10.0.0.2"]);
    world.settings.placement = installed();
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &json!({"spec": {"jobPlacement": own()}}));
    world.settle();
    assert_merged(&job(&world));
}

#[test]
fn a_cluster_cannot_leave_the_nodes_of_the_installation() {
    for (placement, words) in [
        (json!({"nodeSelector": {"pool": "others"}}), "nodeSelector: pool is \"operations\" for all Jobs"),
        (
            json!({"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]}),
            "only the installation may tolerate node-role.kubernetes.io/control-plane",
        ),
    ] {
        let world = asked(&placement, &Value::Null);
        let status = world.status("o");
        assert_eq!(status["status"], "Failed", "{placement}");
        assert!(status["reason"].as_str().unwrap().contains(words), "{status}");
        assert!(world.jobs().is_empty(), "{placement}");
    }
}

/// It concerns the next Jobs, and no host.
#[test]
fn another_placement_is_no_change_of_a_cluster() {
    let mut world = running(&["10.0.0.2"]);
    let jobs = world.jobs().len();
    let patch = json!({"spec": {"jobPlacement": own()}, "metadata": {"generation": 2}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &patch);
    world.settle();
    assert_eq!((phase(&world).as_str(), world.jobs().len()), ("Running", jobs));
    assert_eq!(object(&world)["status"]["observedGeneration"], 2);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    let pod = &job(&world)["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"]["zone"], "north");
}
