//! The JSON of every write of three scenarios. `UPDATE_GOLDEN=1` updates the golden files.

use std::fmt::Write as _;
use std::path::Path;

use k8s_openapi::jiff::SignedDuration;
use serde_json::json;

use super::kubernetes_cluster as declared;
use crate::settings::Callback;
use crate::testing::{World, body};
use crate::write::{Change, ObjectKind, Write};

fn verb(change: &Change) -> &'static str {
    match change {
        Change::Create(_) => "create",
        Change::Merge(_) => "merge",
        Change::Disown { .. } => "disown",
        Change::Status(_) => "status",
        Change::Delete { .. } => "delete",
    }
}

fn text(writes: &[Write]) -> String {
    let mut text = String::new();
    for write in writes {
        let (verb, body) = (verb(&write.change), body(&write.change));
        let target = &write.target;
        writeln!(text, "# {verb} {} {}/{}", target.kind.as_str(), target.namespace, target.name).unwrap();
        writeln!(text, "{}", serde_json::to_string_pretty(&body).unwrap()).unwrap();
    }
    text
}

fn assert_golden(name: &str, world: &World) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden").join(name);
    let found = text(&world.written);
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        std::fs::write(&path, found).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    for (at, (old, new)) in golden.lines().zip(found.lines()).enumerate() {
        assert_eq!(old, new, "{name}, line {}", at + 1);
    }
    assert_eq!(golden.lines().count(), found.lines().count(), "{name}");
}

#[test]
fn an_operation_of_a_cluster_writes_the_same_json() {
    let mut world = World::with_cluster();
    world.settings.history_limit = 1;
    world.ask("one", |spec| {
        spec.active_deadline_seconds = Some(60);
        spec.resources = Some(serde_json::from_value(json!({"limits": {"cpu": "1m"}})).unwrap());
    });
    world.settle();
    let deadline = json!({"spec": {"activeDeadlineSeconds": 90}});
    world.change(ObjectKind::Operation, "", "one", &deadline);
    world.settle();
    world.change(ObjectKind::Operation, "", "one", &json!({"spec": {"cancelled": true}}));
    world.settle();
    world.job_says("kubeonkube-one-job", "Failed");
    world.settle();
    let ours = |spec: &mut kubeon_api::kubeonkube::ClusterOperationSpec| {
        spec.main.action_type = "playbook".into();
        spec.main.action = "cluster.yml".into();
        spec.image = "wangzhichidocker/kubeonkube:v0.1".into();
    };
    for name in ["two", "three"] {
        world.ask(name, ours);
        world.settle();
        world.job_says(&format!("kubeonkube-{name}-job"), "Complete");
        world.settle();
    }
    assert_golden("cluster.txt", &world);
}

#[test]
fn a_declared_cluster_writes_the_same_json() {
    let mut world = declared::world(&["10.0.0.2"]);
    world.settings.callback = Some(Callback {
        url: "https://listener.example/api".parse().unwrap(),
        authorities: Some("PEM".into()),
    });
    world.settle();
    declared::saved(&mut world);
    declared::ends(&mut world, "Complete");
    declared::scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    declared::ends(&mut world, "Failed");
    let leaves = json!({"metadata": {"deletionTimestamp": world.now.to_string()}});
    world.change(ObjectKind::KubernetesCluster, "default", declared::NAME, &leaves);
    world.now += SignedDuration::from_secs(1);
    world.settle();
    declared::ends(&mut world, "Complete");
    assert_golden("kubernetes_cluster.txt", &world);
}

#[test]
fn an_operation_without_a_cluster_writes_the_same_json() {
    let mut world = World::new(crate::QueueKey::Cluster("sample".into()));
    world.ask("one", |_| {});
    world.settle();
    assert_golden("waiting.txt", &world);
}
