//! A change that failed and is taken back: what it began on hosts is undone by an operation, and only that says so.

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, ends, env, job, object, phase, running, scaled, wanted};
use crate::testing::World;
use crate::write::ObjectKind;

fn degraded(world: &World) -> Value {
    let conditions = object(world)["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|one| one["type"] == "Degraded").unwrap()["status"].clone()
}

/// What the Job's program is told to make true.
fn declared_spec(world: &World) -> Vec<String> {
    let volumes = job(world)["spec"]["template"]["spec"]["volumes"].clone();
    let conf = volumes.as_array().unwrap().iter().find(|volume| volume["name"] == "conf").unwrap().clone();
    let map = world.get(ObjectKind::ConfigMap, "default", conf["configMap"]["name"].as_str().unwrap());
    let desired: Value = serde_json::from_str(map["data"]["cluster.json"].as_str().unwrap()).unwrap();
    let nodes = desired["spec"]["cluster"]["nodeList"].as_array().unwrap().clone();
    nodes.iter().map(|node| node["ip"].as_str().unwrap().to_owned()).collect()
}

fn asked(world: &mut World, word: &str) {
    let asked = json!({"metadata": {"annotations": {"app.kubernetes.io/operation": word}}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &asked);
    world.settle();
}

#[test]
fn a_scale_up_that_failed_is_undone_by_an_operation_and_only_that_makes_it_run() {
    let mut world = running(&["10.0.0.2"]);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    ends(&mut world, "Failed");
    assert_eq!((phase(&world).as_str(), wanted(&world).as_str()), ("Failed", "scale-up-failed"));
    let jobs = world.jobs().len();
    scaled(&mut world, &["10.0.0.2"]);
    assert_eq!(world.jobs().len(), jobs + 1, "a half-joined host is nobody's business otherwise");
    assert_ne!(phase(&world), "Running");
    assert_eq!(
        (env(&job(&world), "OPERATION"), env(&job(&world), "NODE_HOSTS")),
        ("scaling-down".into(), "10.0.0.4".into())
    );
    assert_eq!(declared_spec(&world), ["10.0.0.2"], "the engine takes what it knows and is not declared out");
    ends(&mut world, "Failed");
    assert_eq!((phase(&world).as_str(), degraded(&world)), ("Failed", json!("True")));
    let jobs = world.jobs().len();
    assert_eq!((world.settle(), world.jobs().len()), (0, jobs), "nobody asked for another try");
    asked(&mut world, "scaling-down");
    assert_eq!(world.jobs().len(), jobs + 1);
    ends(&mut world, "Complete");
    assert_eq!((phase(&world).as_str(), wanted(&world).as_str()), ("Running", "scale-down-finished"));
    assert_eq!(degraded(&world), "False");
    assert_eq!(world.settle(), 0);
}

#[test]
fn a_scale_down_that_failed_is_undone_by_an_operation_too() {
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

/// It fails while the declaration is already what it was before.
#[test]
fn a_change_that_is_taken_back_while_it_works_is_undone_when_it_failed() {
    let mut world = running(&["10.0.0.2"]);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    scaled(&mut world, &["10.0.0.2"]);
    ends(&mut world, "Failed");
    assert_eq!(env(&job(&world), "OPERATION"), "scaling-down");
    ends(&mut world, "Complete");
    assert_eq!(phase(&world), "Running");
}

#[test]
fn hosts_of_every_change_that_failed_are_named() {
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

/// Its operation was deleted while it worked: nobody knows how far it came.
#[test]
fn an_operation_that_was_deleted_is_undone_when_its_change_is_taken_back() {
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

/// The operation that works, and its Job.
fn at_work(world: &World) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&object(world)["status"]["operation"]), text(&job(world)["metadata"]["name"]))
}

/// Its Job is the object's and does not go with it.
#[test]
fn a_job_whose_operation_was_deleted_is_ended_and_named_before_anything_else_begins() {
    let mut world = running(&["10.0.0.2"]);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    let (operation, name) = at_work(&world);
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": format!("uid-{name}")});
    let labels = json!({"kubeon.io/operation": format!("uid-{operation}")});
    let metadata = json!({"labels": labels, "ownerReferences": [owner]});
    world.put(ObjectKind::Log, "default", "p", json!({"metadata": metadata, "status": {"phase": "Running"}}));
    world.objects.retain(|target, _| target.name != operation);
    let said =
        format!("operation {operation} was deleted while its Job {name} worked; waits until that has ended");
    let told: Vec<_> = world.next().notices.into_iter().map(|notice| notice.text).collect();
    assert_eq!(told, [said.as_str()]);
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

/// Nobody owns the Job that takes a cluster down.
#[test]
fn a_deletion_names_the_job_whose_operation_was_deleted_and_goes_on_after_its_end() {
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
    let (operation, name) = at_work(&world);
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

/// Killed after every write in between, there is one operation for it.
#[test]
fn what_is_taken_back_is_undone_once_wherever_the_operator_is_killed() {
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
