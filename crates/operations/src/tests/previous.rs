//! Objects that the operator of an earlier commit left, in every phase. This operator reads them, writes nothing again, and
//! completes what was begun. `UPDATE_FIXTURES=1`, run on the commit that becomes the earlier one, writes them; with them
//! `bin/kubeon-operator/tests/operator/previous/kubeon.yaml` becomes that commit's `deploy/kubeon.yaml`. Both at every release.

use std::path::PathBuf;

use k8s_openapi::jiff::Timestamp;
use kubeon_api::DataRef;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, ends, job, list, object, phase, running, saved, scaled, world};
use super::pauses::{creating, start_pod, succeeds};
use super::snapshots;
use crate::QueueKey;
use crate::names::OPERATION_LABEL;
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

pub(super) const PHASES: [Phase; 15] = [
    ("prechecking", prechecking),
    ("failed", || ended(prechecking(), "Failed")),
    ("running", || running(&["10.0.0.2"])),
    ("scaling", scaling),
    ("scaling-failed", || ended(scaling(), "Failed")),
    ("updating", || declared(&json!({"cluster": {"kubeVersion": "v1.36.4"}}))),
    ("rolling-back", rolling_back),
    ("snapshotting", || requested(snapshots::declared(&json!({})), "snapshotting")),
    ("paused", paused),
    ("planned", planned),
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

pub(super) fn change(world: &mut World, patch: &Value) {
    world.change(ObjectKind::KubernetesCluster, "default", NAME, patch);
    world.settle();
}

pub(super) fn workers() -> Value {
    json!({"nodeList": list(&["10.0.0.2", "10.0.0.4"])})
}

/// A running cluster whose spec was changed.
pub(super) fn declared(spec: &Value) -> World {
    let mut world = running(&["10.0.0.2"]);
    change(&mut world, &json!({"spec": spec, "metadata": {"generation": 2}}));
    world
}

pub(super) fn requested(mut world: World, word: &str) -> World {
    change(&mut world, &json!({"metadata": {"annotations": {"app.kubernetes.io/operation": word}}}));
    world
}

/// An upgraded cluster that returns to its snapshot.
fn rolling_back() -> World {
    let mut world = snapshots::declared(&json!({}));
    let upgrade = json!({"cluster": {"kubeVersion": "v1.37.2"}});
    change(&mut world, &json!({"spec": upgrade, "metadata": {"generation": 2}}));
    ends(&mut world, "Complete");
    let snapshot = "s3://backups/shop/20260131T120000Z-v1.36.3.db";
    let back = json!({"cluster": {"kubeVersion": "v1.36.3"}, "snapshots": {"restoreFrom": snapshot}});
    change(
        &mut world,
        &json!({"spec": back, "metadata": {"generation": 3,
        "annotations": {"app.kubernetes.io/operation": "rollbacking"}}}),
    );
    saved(&mut world);
    world
}

pub(super) fn paused() -> World {
    let (mut world, operation, job) = creating();
    world.change(ObjectKind::Operation, "", &operation, &json!({"spec": {"paused": true}}));
    world.settle();
    world.job_says(&job, "Suspended");
    world.objects.remove(&ObjectRef::new(ObjectKind::Log, "default", "first"));
    world.settle();
    world
}

/// A cluster whose change waits for its approval.
fn planned() -> World {
    let mut world = declared(&json!({"plan": true, "cluster": workers()}));
    let metadata = job(&world)["metadata"].clone();
    let owner = json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation", "name": "of-the-plan",
        "uid": metadata["labels"][OPERATION_LABEL]});
    let plan = format!("{}-plan", metadata["name"].as_str().unwrap());
    world.put(ObjectKind::ConfigMap, "default", &plan, json!({"metadata": {"ownerReferences": [owner]}}));
    ends(&mut world, "Complete");
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
    for begun in ["prechecking", "scaling", "updating", "rolling-back", "snapshotting"] {
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
fn what_waited_under_an_earlier_operator_continues() {
    let mut world = load("paused");
    let operation = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
    let name = object(&world)["status"]["jobName"].as_str().unwrap().to_owned();
    world.change(ObjectKind::Operation, "", &operation, &json!({"spec": {"paused": false}}));
    world.settle();
    // The Job controller removes the condition `Suspended`.
    world.change(ObjectKind::Job, "default", &name, &json!({"status": null}));
    start_pod(&mut world, &name, "second");
    world.settle();
    succeeds(&mut world);
    assert_eq!(phase(&world), "Running");

    let mut world = load("planned");
    let message = object(&world)["status"]["reason"].as_str().unwrap();
    let planned = message.split_once("kubeon.io/approve=").unwrap().1.to_owned();
    change(&mut world, &json!({"metadata": {"annotations": {"kubeon.io/approve": planned}}}));
    let applies = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
    assert_eq!(world.get(ObjectKind::Operation, "", &applies)["spec"]["approves"], planned);
    ends(&mut world, "Complete");
    assert_eq!((phase(&world).as_str(), world.settle()), ("Running", 0));
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
