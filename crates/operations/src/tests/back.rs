//! A failed change that is reverted in the spec: an operation undoes it on the hosts.

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, ends, env, job, object, phase, running, scaled, wanted};
use crate::testing::World;
use crate::write::ObjectKind;

fn degraded(world: &World) -> Value {
    let conditions = object(world)["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|one| one["type"] == "Degraded").unwrap()["status"].clone()
}

/// The workers in the spec of the Job.
fn declared_spec(world: &World) -> Vec<String> {
    let volumes = job(world)["spec"]["template"]["spec"]["volumes"].clone();
    let conf = volumes.as_array().unwrap().iter().find(|volume| volume["name"] == "conf").unwrap().clone();
    let map = world.get(ObjectKind::ConfigMap, "default", conf["configMap"]["name"].as_str().unwrap());
    let desired: Value = serde_json::from_str(map["data"]["cluster.json"].as_str().unwrap()).unwrap();
    let nodes = desired["spec"]["cluster"]["nodeList"].as_array().unwrap().clone();
    nodes.iter().map(|node| node["ip"].as_str().unwrap().to_owned()).collect()
}

fn request(world: &mut World, word: &str) {
    let request = json!({"metadata": {"annotations": {"app.kubernetes.io/operation": word}}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &request);
    world.settle();
}

#[test]
fn a_failed_scale_up_is_undone_by_an_operation_and_only_its_success_counts() {
    let mut world = running(&["10.0.0.2"]);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    ends(&mut world, "Failed");
    assert_eq!((phase(&world).as_str(), wanted(&world).as_str()), ("Failed", "scale-up-failed"));
    let jobs = world.jobs().len();
    scaled(&mut world, &["10.0.0.2"]);
    assert_eq!(world.jobs().len(), jobs + 1, "an operation must undo the partial join");
    assert_ne!(phase(&world), "Running");
    assert_eq!(
        (env(&job(&world), "OPERATION"), env(&job(&world), "NODE_HOSTS")),
        ("scaling-down".into(), "10.0.0.4".into())
    );
    assert_eq!(declared_spec(&world), ["10.0.0.2"], "the engine removes known hosts that are not declared");
    ends(&mut world, "Failed");
    assert_eq!((phase(&world).as_str(), degraded(&world)), ("Failed", json!("True")));
    let jobs = world.jobs().len();
    assert_eq!((world.settle(), world.jobs().len()), (0, jobs), "no retry was requested");
    request(&mut world, "scaling-down");
    assert_eq!(world.jobs().len(), jobs + 1);
    ends(&mut world, "Complete");
    assert_eq!((phase(&world).as_str(), wanted(&world).as_str()), ("Running", "scale-down-finished"));
    assert_eq!(degraded(&world), "False");
    assert_eq!(world.settle(), 0);
}

#[test]
fn a_failed_scale_down_is_undone_by_an_operation() {
    let mut world = running(&["10.0.0.2", "10.0.0.4"]);
    scaled(&mut world, &["10.0.0.2"]);
    ends(&mut world, "Failed");
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    assert_eq!(
        (env(&job(&world), "OPERATION"), env(&job(&world), "NODE_HOSTS")),
        ("scaling-up".into(), "10.0.0.4".into())
    );
    assert_eq!(declared_spec(&world), ["10.0.0.2", "10.0.0.4"], "a node that was drained takes pods again");
    ends(&mut world, "Complete");
    assert_eq!((phase(&world).as_str(), wanted(&world).as_str()), ("Running", "scale-up-finished"));
}

/// The operation fails after the spec was already reverted.
#[test]
fn a_change_that_is_reverted_while_it_runs_is_undone_after_it_failed() {
    let mut world = running(&["10.0.0.2"]);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    scaled(&mut world, &["10.0.0.2"]);
    ends(&mut world, "Failed");
    assert_eq!(env(&job(&world), "OPERATION"), "scaling-down");
    ends(&mut world, "Complete");
    assert_eq!(phase(&world), "Running");
}

#[test]
fn the_hosts_of_all_failed_changes_are_named() {
    let mut world = running(&["10.0.0.2"]);
    for more in ["10.0.0.4", "10.0.0.5"] {
        scaled(&mut world, &["10.0.0.2", more]);
        ends(&mut world, "Failed");
    }
    scaled(&mut world, &["10.0.0.2"]);
    assert_eq!(env(&job(&world), "NODE_HOSTS"), "10.0.0.4,10.0.0.5");
    let operation = object(&world)["status"]["operation"].as_str().unwrap();
    let why =
        world.get(ObjectKind::Operation, "", operation)["metadata"]["annotations"]["kubeon.io/why"].clone();
    assert!(why.as_str().unwrap().contains("10.0.0.4,10.0.0.5"), "{why}");
}

/// The operation was deleted while it ran, so its progress is unknown.
#[test]
fn a_deleted_operation_is_undone_when_its_change_is_reverted() {
    let mut world = running(&["10.0.0.2"]);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    let operation = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
    let name = job(&world)["metadata"]["name"].as_str().unwrap().to_owned();
    world.objects.retain(|target, _| target.name != operation && target.name != name);
    world.settle();
    assert_eq!(phase(&world), "Failed");
    scaled(&mut world, &["10.0.0.2"]);
    assert_eq!(declared_spec(&world), ["10.0.0.2"]);
    ends(&mut world, "Complete");
    assert_eq!(phase(&world), "Running");
}

/// The running operation and its Job.
fn running_operation(world: &World) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&object(world)["status"]["operation"]), text(&job(world)["metadata"]["name"]))
}

/// The object owns the Job, so the Job is not deleted with the operation.
#[test]
fn the_job_of_a_deleted_operation_is_stopped_and_reported_before_the_next_operation() {
    let mut world = running(&["10.0.0.2"]);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    let (operation, name) = running_operation(&world);
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": format!("uid-{name}")});
    let labels = json!({"kubeon.io/operation": format!("uid-{operation}")});
    let metadata = json!({"labels": labels, "ownerReferences": [owner]});
    world.put(ObjectKind::Log, "default", "p", json!({"metadata": metadata, "status": {"phase": "Running"}}));
    world.objects.retain(|target, _| target.name != operation);
    let said =
        format!("operation {operation} was deleted while its Job {name} worked; waits until that has ended");
    let messages: Vec<_> = world.next().notices.into_iter().map(|notice| notice.text).collect();
    assert_eq!(messages, [said.as_str()]);
    world.settle();
    assert_eq!(object(&world)["status"]["reason"], said);
    assert_eq!(world.get(ObjectKind::Job, "default", &name)["spec"]["suspend"], true);
    assert_eq!(world.settle(), 0, "once");
    world.job_says(&name, "Suspended");
    assert_eq!(world.settle(), 0, "its pod may still work");
    world.objects.retain(|target, _| target.name != "p");
    world.settle();
    assert_eq!(phase(&world), "Failed");
    let said = format!("its operation {operation} was deleted before it ended");
    assert_eq!(object(&world)["status"]["reason"], said);
    assert_eq!(world.settle(), 0);
}

/// The Job that takes a cluster down has no owner.
#[test]
fn a_deletion_reports_the_job_of_a_deleted_operation_and_continues_after_its_end() {
    let mut world = running(&["10.0.0.2"]);
    world.now += SignedDuration::from_secs(60);
    let now = world.now.to_string();
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"metadata": {"deletionTimestamp": now}}),
    );
    world.settle();
    let (operation, name) = running_operation(&world);
    world.objects.retain(|target, _| target.name != operation);
    world.settle();
    let conditions = object(&world)["status"]["conditions"].as_array().unwrap().clone();
    let waits = conditions.iter().find(|one| one["type"] == "Deleting").unwrap();
    assert_eq!((&waits["status"], &waits["reason"]), (&json!("True"), &json!("EndingOperation")));
    assert!(waits["message"].as_str().unwrap().contains(&name), "{waits}");
    assert_eq!(world.get(ObjectKind::Job, "default", &name)["spec"]["suspend"], true);
    assert_eq!(world.settle(), 0, "once");
    world.now += SignedDuration::from_secs(60);
    world.job_says(&name, "Suspended");
    world.settle();
    assert_eq!(env(&job(&world), "OPERATION"), "terminating");
    assert_ne!(job(&world)["metadata"]["name"], name);
    ends(&mut world, "Complete");
    assert_eq!(object(&world)["metadata"]["finalizers"], json!(["other/one"]));
}

/// The operator is killed after each write; there is one operation.
#[test]
fn a_reverted_change_is_undone_once_wherever_the_operator_is_killed() {
    for killed_after in 0..10 {
        let mut world = running(&["10.0.0.2"]);
        scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
        ends(&mut world, "Failed");
        let jobs = world.jobs().len();
        let generation = object(&world)["metadata"]["generation"].as_i64().unwrap() + 1;
        let back = json!({"spec": super::kubernetes_cluster::spec(&["10.0.0.2"]), "metadata": {"generation": generation}});
        world.change(ObjectKind::KubernetesCluster, "default", NAME, &back);
        world.settle_within(killed_after);
        world.settle();
        assert_eq!(world.jobs().len(), jobs + 1, "killed after {killed_after}");
        ends(&mut world, "Complete");
        assert_eq!(phase(&world), "Running", "killed after {killed_after}");
    }
}
