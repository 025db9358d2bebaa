//! Objects that the operator of an earlier commit left, in every phase. This operator reads them, writes nothing again, and
//! completes what was begun. `UPDATE_FIXTURES=1`, run on the commit that becomes the earlier one, writes them.

use std::path::PathBuf;

use k8s_openapi::jiff::Timestamp;
use kubeon_api::DataRef;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, ends, object, phase, running, saved, scaled, world};
use crate::QueueKey;
use crate::testing::World;
use crate::write::{ObjectKind, ObjectRef};

const KINDS: [ObjectKind; 7] = [
    ObjectKind::Cluster,
    ObjectKind::Operation,
    ObjectKind::KubernetesCluster,
    ObjectKind::Job,
    ObjectKind::ConfigMap,
    ObjectKind::Secret,
    ObjectKind::Log,
];

/// The name of a phase, and how to get there.
pub(super) type Phase = (&'static str, fn() -> World);

pub(super) const PHASES: [Phase; 10] = [
    ("prechecking", prechecking),
    ("failed", || ended(prechecking(), "Failed")),
    ("running", || running(&["10.0.0.2"])),
    ("scaling", scaling),
    ("scaling-failed", || ended(scaling(), "Failed")),
    ("terminating", terminating),
    ("operation-running", || asked("hosts")),
    ("operation-succeeded", || operation_ended("Complete")),
    ("operation-failed", || operation_ended("Failed")),
    ("operation-waiting", || asked("later")),
];

fn prechecking() -> World {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    saved(&mut world);
    world
}

fn ended(mut world: World, condition: &str) -> World {
    ends(&mut world, condition);
    world
}

fn scaling() -> World {
    let mut world = running(&["10.0.0.2"]);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    world
}

fn terminating() -> World {
    let mut world = running(&["10.0.0.2"]);
    let deleted = json!({"metadata": {"deletionTimestamp": world.now.to_string()}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &deleted);
    world.settle();
    world
}

/// An operation with the inventory of this name.
pub(super) fn asked(inventory: &str) -> World {
    let mut world = World::with_cluster();
    world.ask("one", |spec| spec.hosts_conf_ref = Some(DataRef::new("ns", inventory)));
    world.settle();
    world
}

fn operation_ended(condition: &str) -> World {
    let mut world = asked("hosts");
    world.job_says("kubeonkube-one-job", condition);
    world.settle();
    world
}

#[derive(Serialize, Deserialize)]
struct Fixture {
    now: Timestamp,
    objects: Vec<FixtureObject>,
}

#[derive(Serialize, Deserialize)]
struct FixtureObject {
    kind: String,
    namespace: String,
    name: String,
    object: Value,
}

fn path(phase: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/tests/previous").join(format!("{phase}.json"))
}

fn save(phase: &str, world: &World) {
    let object = |(target, object): (&ObjectRef, &Value)| FixtureObject {
        kind: target.kind.as_str().to_owned(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        object: object.clone(),
    };
    let fixture = Fixture { now: world.now, objects: world.objects.iter().map(object).collect() };
    std::fs::write(path(phase), serde_json::to_string(&fixture).unwrap() + "\n").unwrap();
}

fn load(phase: &str) -> World {
    let text = std::fs::read_to_string(path(phase)).unwrap();
    let fixture: Fixture = serde_json::from_str(&text).unwrap();
    let key = if phase.starts_with("operation") {
        QueueKey::Cluster("sample".into())
    } else {
        QueueKey::KubernetesCluster { namespace: "default".into(), name: NAME.into() }
    };
    let mut world = World::new(key);
    world.now = fixture.now;
    for FixtureObject { kind, namespace, name, object } in fixture.objects {
        let kind = KINDS.into_iter().find(|known| known.as_str() == kind).unwrap();
        world.objects.insert(ObjectRef::new(kind, &namespace, &name), object);
    }
    world
}

#[test]
fn what_an_earlier_operator_wrote_is_not_written_again() {
    for (phase, world) in PHASES {
        if std::env::var_os("UPDATE_FIXTURES").is_some_and(|value| value == "1") {
            save(phase, &world());
        }
        let mut world = load(phase);
        assert_eq!(world.settle(), 0, "{phase}: {:#?}", world.written);
    }
}

#[test]
fn the_digests_of_an_earlier_operator_are_recognized() {
    for (phase, _) in PHASES {
        let operations = load(phase).all::<kubeon_api::ClusterOperation>(ObjectKind::Operation);
        assert!(!operations.is_empty(), "{phase}");
        for operation in operations {
            let stored = operation.status.as_ref().and_then(|status| status.spec_digest.as_deref());
            assert!(operation.spec.has_whole_digest(stored.unwrap()), "{phase}: {stored:?}");
        }
    }
}

#[test]
fn what_an_earlier_operator_began_is_completed() {
    for begun in ["prechecking", "scaling"] {
        let mut world = load(begun);
        ends(&mut world, "Complete");
        assert_eq!(phase(&world), "Running", "{begun}");
    }
    let mut world = load("terminating");
    ends(&mut world, "Complete");
    assert_eq!(object(&world)["metadata"]["finalizers"], json!(["other/one"]));
    let mut world = load("operation-running");
    world.job_says("kubeonkube-one-job", "Complete");
    world.settle();
    assert_eq!(world.status("one")["status"], "Succeeded");
    let mut world = load("operation-waiting");
    let hosts = world.objects[&ObjectRef::new(ObjectKind::ConfigMap, "ns", "hosts")].clone();
    world.put(ObjectKind::ConfigMap, "ns", "later", hosts);
    world.settle();
    assert_eq!(world.status("one")["status"], "Running");
}

#[test]
fn what_failed_under_an_earlier_operator_is_repeated_on_request() {
    for (failed, word) in [("failed", "creating"), ("scaling-failed", "scaling-up")] {
        let mut world = load(failed);
        let asks = json!({"metadata": {"annotations": {"app.kubernetes.io/operation": word}}});
        world.change(ObjectKind::KubernetesCluster, "default", NAME, &asks);
        world.settle();
        ends(&mut world, "Complete");
        assert_eq!(phase(&world), "Running", "{failed}");
    }
}
