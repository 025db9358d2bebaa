//! Changes that are applied after a person approved their plan.

use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, ends, env, job, list, object, phase, running, wanted, world};
use crate::names::OPERATION_LABEL;
use crate::testing::World;
use crate::write::ObjectKind;

fn change(world: &mut World, patch: &Value) {
    world.change(ObjectKind::KubernetesCluster, "default", NAME, patch);
    world.settle();
}

/// Changes the spec.
fn declare(world: &mut World, spec: &Value) {
    let generation = object(world)["metadata"]["generation"].as_i64().unwrap_or(1) + 1;
    change(world, &json!({"spec": spec, "metadata": {"generation": generation}}));
}

fn annotate(world: &mut World, key: &str, text: &str) {
    change(world, &json!({"metadata": {"annotations": {key: text}}}));
}

/// Whether no Job runs.
fn is_idle(world: &World) -> bool {
    world.all::<k8s_openapi::api::batch::v1::Job>(ObjectKind::Job).iter().all(|job| job.status.is_some())
}

/// Whether the running Job only plans.
fn plans(world: &World) -> bool {
    job(world).to_string().contains(r#"{"name":"PLAN","value":"true"}"#)
}

/// The Job of a plan saves it and ends.
fn is_planned(world: &mut World) {
    assert!(plans(world), "{:#}", job(world));
    let metadata = job(world)["metadata"].clone();
    let name = format!("{}-plan", metadata["name"].as_str().unwrap());
    let owner = json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation", "name": "of-the-plan",
        "uid": metadata["labels"][OPERATION_LABEL]});
    world.put(ObjectKind::ConfigMap, "default", &name, json!({"metadata": {"ownerReferences": [owner]}}));
    ends(world, "Complete");
    assert!(is_idle(world), "nothing runs before the approval");
    assert_eq!(world.settle(), 0);
}

fn stored_plans(world: &World) -> usize {
    let is_plan = |kind, name: &str| kind == ObjectKind::ConfigMap && name.ends_with("-plan");
    world.objects.keys().filter(|target| is_plan(target.kind, &target.name)).count()
}

fn progressing(world: &World) -> &Value {
    let all = object(world)["status"]["conditions"].as_array().unwrap();
    all.iter().find(|one| one["type"] == "Progressing").unwrap()
}

/// The operation that the status names in its command.
fn waiting(world: &World) -> String {
    let progressing = progressing(world);
    assert_eq!(
        (&progressing["status"], &progressing["reason"]),
        (&json!("False"), &json!("WaitsForApproval"))
    );
    assert_eq!(object(world)["status"]["reason"], progressing["message"], "also in phase Failed");
    let text = progressing["message"].as_str().unwrap();
    text.split_once("kubeon.io/approve=").unwrap().1.to_owned()
}

fn approve(world: &mut World) {
    let operation = waiting(world);
    annotate(world, "kubeon.io/approve", &operation);
    assert!(!plans(world));
    let applies = object(world)["status"]["operation"].as_str().unwrap().to_owned();
    assert_eq!(world.get(ObjectKind::Operation, "", &applies)["spec"]["approves"], operation);
    let mounted = job(world)["spec"]["template"]["spec"]["volumes"].to_string();
    assert!(mounted.contains("approved-plan") && mounted.contains("-plan\""), "{mounted}");
}

#[test]
fn a_cluster_is_created_after_its_plan_was_approved() {
    let mut world = world(&["10.0.0.2"]);
    declare(&mut world, &json!({"plan": true}));
    assert_eq!((phase(&world), env(&job(&world), "OPERATION")), ("Prechecking".into(), "creating".into()));
    is_planned(&mut world);
    assert_eq!((phase(&world), wanted(&world)), ("Prechecking".into(), String::new()));
    approve(&mut world);
    ends(&mut world, "Complete");
    assert_eq!((phase(&world), wanted(&world)), ("Running".into(), "create-finished".into()));
    assert_eq!(world.settle(), 0);
}

#[test]
fn another_change_makes_another_plan() {
    let mut world = running(&["10.0.0.2"]);
    declare(&mut world, &json!({"plan": true, "cluster": {"nodeList": list(&["10.0.0.2", "10.0.0.4"])}}));
    is_planned(&mut world);
    assert_eq!(phase(&world), "Running");
    let first = waiting(&world);
    declare(&mut world, &json!({"cluster": {"nodeList": list(&["10.0.0.2", "10.0.0.5"])}}));
    is_planned(&mut world);
    annotate(&mut world, "kubeon.io/approve", &first);
    assert!(is_idle(&world), "the plan of another change");
    approve(&mut world);
    assert_eq!(env(&job(&world), "NODE_HOSTS"), "10.0.0.5");
    ends(&mut world, "Complete");
    assert_eq!((phase(&world), world.settle()), ("Running".into(), 0));
}

#[test]
fn a_plan_is_stored_until_it_was_applied_or_another_one_is_made() {
    let mut world = running(&["10.0.0.2"]);
    declare(&mut world, &json!({"plan": true, "cluster": {"nodeList": list(&["10.0.0.2", "10.0.0.4"])}}));
    is_planned(&mut world);
    assert_eq!(stored_plans(&world), 1, "it may be approved");
    declare(&mut world, &json!({"cluster": {"nodeList": list(&["10.0.0.2", "10.0.0.5"])}}));
    assert_eq!(stored_plans(&world), 1, "the other plan is not made");
    is_planned(&mut world);
    assert_eq!(stored_plans(&world), 1, "the newer one");
    approve(&mut world);
    assert_eq!(stored_plans(&world), 1, "the Job reads it");
    ends(&mut world, "Failed");
    assert_eq!((stored_plans(&world), world.settle()), (0, 0), "a plan is applied once");
}

#[test]
fn what_failed_is_planned_again() {
    let mut world = running(&["10.0.0.2"]);
    declare(&mut world, &json!({"plan": true, "cluster": {"nodeList": list(&["10.0.0.2", "10.0.0.4"])}}));
    ends(&mut world, "Failed");
    assert_eq!((phase(&world), wanted(&world)), ("Failed".into(), "scale-up-failed".into()));
    assert!(is_idle(&world), "a person decides");
    annotate(&mut world, "app.kubernetes.io/operation", "scaling-up");
    is_planned(&mut world);
    assert_eq!(phase(&world), "Running", "only a plan failed");
    approve(&mut world);
    ends(&mut world, "Failed");
    assert!(is_idle(&world), "a plan is applied once");
    annotate(&mut world, "app.kubernetes.io/operation", "scaling-up");
    is_planned(&mut world);
    assert_eq!(phase(&world), "Failed");
    // Nothing else but the failure says that a host may have joined in part.
    declare(&mut world, &json!({"cluster": {"nodeList": list(&["10.0.0.2"])}}));
    is_planned(&mut world);
    approve(&mut world);
    ends(&mut world, "Complete");
    assert_eq!((phase(&world), world.settle()), ("Running".into(), 0));
}

#[test]
fn a_plan_that_was_deleted_is_not_applied() {
    let mut world = running(&["10.0.0.2"]);
    declare(&mut world, &json!({"plan": true, "cluster": {"nodeList": list(&["10.0.0.2", "10.0.0.4"])}}));
    is_planned(&mut world);
    let operation = waiting(&world);
    world.objects.retain(|target, _| target.kind != ObjectKind::ConfigMap || !target.name.ends_with("-plan"));
    annotate(&mut world, "kubeon.io/approve", &operation);
    assert!(is_idle(&world));
    assert_eq!(phase(&world), "Failed");
    let reason = object(&world)["status"]["reason"].as_str().unwrap();
    assert!(reason.contains(&format!("the plan of {operation} was deleted")), "{reason}");
}

#[test]
fn deletions_and_snapshots_need_no_approval() {
    let mut world = running(&["10.0.0.2"]);
    world.put(ObjectKind::Secret, "default", "store", json!({}));
    let snapshots = json!({"folder": "s3://backups/shop/", "credentialsRef": {"name": "store"}});
    declare(&mut world, &json!({"plan": true, "snapshots": snapshots}));
    annotate(&mut world, "app.kubernetes.io/operation", "snapshotting");
    assert_eq!((plans(&world), env(&job(&world), "OPERATION")), (false, "snapshotting".into()));
    ends(&mut world, "Complete");
    change(&mut world, &json!({"metadata": {"deletionTimestamp": "2026-01-02T00:00:00Z"}}));
    assert_eq!((plans(&world), env(&job(&world), "OPERATION")), (false, "terminating".into()));
}

#[test]
fn changes_wait_for_a_maintenance_window_and_their_plans_do_not() {
    let mut world = running(&["10.0.0.2"]);
    // The world begins on a Thursday.
    let windows = json!([{"days": ["Thursday"], "start": "22:00", "hours": 2}]);
    let nodes = json!({"nodeList": list(&["10.0.0.2", "10.0.0.4"])});
    declare(&mut world, &json!({"maintenanceWindows": windows, "plan": true, "cluster": nodes}));
    is_planned(&mut world);
    let operation = waiting(&world);
    annotate(&mut world, "kubeon.io/approve", &operation);
    assert!(is_idle(&world));
    assert_eq!(progressing(&world)["reason"], "OutsideWindow");
    let text = progressing(&world)["message"].as_str().unwrap();
    assert!(text.ends_with("begins at 2026-01-01T22:00:00Z"), "{text}");
    let opens = world.next().wake.unwrap();
    assert_eq!(opens, "2026-01-01T22:00:00Z".parse().unwrap());
    world.now = opens;
    world.settle();
    assert_eq!((plans(&world), env(&job(&world), "NODE_HOSTS")), (false, "10.0.0.4".into()));
    ends(&mut world, "Complete");
    assert_eq!((phase(&world), world.settle()), ("Running".into(), 0));
}
