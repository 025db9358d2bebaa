//! A running operation is paused, and continues with another pod.

use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, ends, job, object, phase, saved, world};
use crate::testing::World;
use crate::write::{ObjectKind, ObjectRef};

/// A cluster that is being created, and the names of its operation and its Job.
pub(super) fn creating() -> (World, String, String) {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    saved(&mut world);
    let job = job(&world)["metadata"]["name"].as_str().unwrap().to_owned();
    let operation = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
    start_pod(&mut world, &job, "first");
    world.settle();
    (world, operation, job)
}

pub(super) fn start_pod(world: &mut World, job: &str, name: &str) {
    let uid = &world.get(ObjectKind::Job, "default", job)["metadata"]["uid"];
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid});
    let state = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    let container =
        json!({"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": state});
    let pod = json!({"metadata": {"ownerReferences": [owner]}, "status": {"phase": "Running", "containerStatuses": [container]}});
    world.put(ObjectKind::Log, "default", name, pod);
}

fn set_paused(world: &mut World, operation: &str, paused: bool) {
    world.change(ObjectKind::Operation, "", operation, &json!({"spec": {"paused": paused}}));
    world.settle();
}

/// What the Job controller and the stopped runner do.
fn pod_ends(world: &mut World, job: &str) {
    world.job_says(job, "Suspended");
    world.change(ObjectKind::Job, "default", job, &json!({"status": {"completionTime": null}}));
    world.objects.remove(&ObjectRef::new(ObjectKind::Log, "default", "first"));
    let log = format!("{job}-log");
    world.put(ObjectKind::ConfigMap, "default", &log, json!({"data": {"log": "first part\n"}}));
    world.settle();
}

fn continues(world: &mut World, job: &str) {
    world.change(ObjectKind::Job, "default", job, &json!({"status": null}));
    start_pod(world, job, "second");
    world.settle();
}

/// The pods end, and then their Job.
pub(super) fn succeeds(world: &mut World) {
    let pods: Vec<_> =
        world.objects.keys().filter(|target| target.kind == ObjectKind::Log).cloned().collect();
    for pod in pods {
        world.change(ObjectKind::Log, "default", &pod.name, &json!({"status": {"phase": "Succeeded"}}));
    }
    ends(world, "Complete");
}

pub(super) fn is_suspended(world: &World, job: &str) -> bool {
    world.get(ObjectKind::Job, "default", job)["spec"]["suspend"] == true
}

fn condition(status: &Value, type_: &str) -> Option<Value> {
    status["conditions"].as_array()?.iter().find(|found| found["type"] == type_).cloned()
}

/// The status and the reason of the business cluster's condition `Progressing`.
fn progress(world: &World) -> (String, String) {
    let found = condition(&object(world)["status"], "Progressing").unwrap();
    let text = |key: &str| found[key].as_str().unwrap().to_owned();
    (text("status"), text("reason"))
}

fn texts(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn a_paused_operation_ends_its_pod_and_continues_with_another_one() {
    let (mut world, operation, job) = creating();
    set_paused(&mut world, &operation, true);
    assert!(is_suspended(&world, &job));
    let status = world.status(&operation);
    let paused = "paused: spec.paused of the operation is true";
    assert_eq!((&status["status"], &status["reason"]), (&json!("Running"), &json!(paused)));
    assert_eq!(condition(status, "Paused").unwrap()["message"], paused);
    assert_eq!(progress(&world), texts("False", "Paused"));
    pod_ends(&mut world, &job);
    assert_eq!(world.status(&operation)["status"], "Running", "a suspended Job is not the end");
    set_paused(&mut world, &operation, false);
    assert!(!is_suspended(&world, &job));
    assert!(condition(world.status(&operation), "Paused").is_some(), "until the new pod has started");
    continues(&mut world, &job);
    let status = world.status(&operation);
    assert!(condition(status, "Paused").is_none() && status["reason"].is_null(), "{status:#}");
    assert_eq!(progress(&world), texts("True", "Prechecking"));
    let log = ObjectRef::new(ObjectKind::ConfigMap, "default", format!("{job}-log"));
    assert!(!world.objects.contains_key(&log), "the new pod has repeated the log");
    succeeds(&mut world);
    assert_eq!(
        (phase(&world), &world.status(&operation)["status"]),
        ("Running".to_owned(), &json!("Succeeded"))
    );
}

#[test]
fn the_job_is_not_resumed_while_a_pod_of_it_is_left() {
    let (mut world, operation, job) = creating();
    set_paused(&mut world, &operation, true);
    world.job_says(&job, "Suspended");
    set_paused(&mut world, &operation, false);
    assert!(is_suspended(&world, &job), "the first pod still runs");
    world.objects.remove(&ObjectRef::new(ObjectKind::Log, "default", "first"));
    world.settle();
    assert!(!is_suspended(&world, &job));
}

#[test]
fn a_paused_operation_can_be_cancelled() {
    let (mut world, operation, job) = creating();
    set_paused(&mut world, &operation, true);
    pod_ends(&mut world, &job);
    world.change(ObjectKind::Operation, "", &operation, &json!({"spec": {"cancelled": true}}));
    world.settle();
    let status = world.status(&operation);
    assert_eq!((&status["status"], &status["reason"]), (&json!("Failed"), &json!("cancelled")));
    assert!(condition(status, "Paused").is_none(), "{status:#}");
    assert_eq!(phase(&world), "Failed");
}

#[test]
fn a_paused_cluster_pauses_its_running_operation() {
    let (mut world, operation, job) = creating();
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &json!({"spec": {"paused": true}}));
    world.settle();
    let paused = "paused: spec.paused of the KubernetesCluster is true";
    assert_eq!(world.status(&operation)["reason"], paused);
    assert!(is_suspended(&world, &job));
    pod_ends(&mut world, &job);
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &json!({"spec": {"paused": false}}));
    world.settle();
    continues(&mut world, &job);
    succeeds(&mut world);
    assert_eq!(phase(&world), "Running");
}

/// The operator is killed after every write, and another one continues.
#[test]
fn a_pause_survives_a_killed_operator() {
    for most in 0..6 {
        let (mut world, operation, job) = creating();
        world.change(ObjectKind::Operation, "", &operation, &json!({"spec": {"paused": true}}));
        world.settle_within(most);
        world.settle();
        assert!(is_suspended(&world, &job), "killed after {most} writes");
        pod_ends(&mut world, &job);
        world.change(ObjectKind::Operation, "", &operation, &json!({"spec": {"paused": false}}));
        world.settle_within(most);
        world.settle();
        world.change(ObjectKind::Job, "default", &job, &json!({"status": null}));
        start_pod(&mut world, &job, "second");
        world.settle_within(most);
        world.settle();
        assert!(condition(world.status(&operation), "Paused").is_none(), "killed after {most} writes");
        succeeds(&mut world);
        assert_eq!(world.status(&operation)["status"], "Succeeded", "killed after {most} writes");
    }
}

/// It would begin again: its Job is not suspended.
#[test]
fn a_running_command_is_not_paused() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world.settle();
    set_paused(&mut world, "o", true);
    assert_ne!(world.get(ObjectKind::Job, "ns", "kubeonkube-o-job")["spec"]["suspend"], true);
    world.job_says("kubeonkube-o-job", "Complete");
    world.settle();
    assert_eq!(world.status("o")["status"], "Succeeded");
}
