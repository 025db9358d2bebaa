//! The conditions of kstatus in every state of an operation and of a business cluster. The operator's tests evaluate real
//! objects with kstatus itself.

use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, ends, object, running, scaled, spec, world};
use crate::testing::World;
use crate::write::ObjectKind;

/// The entries of kstatus: type, reason.
fn shown(status: &Value) -> Vec<(&str, &str)> {
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let entry = |condition: &'_ Value| condition["type"] == "Reconciling" || condition["type"] == "Stalled";
    let found = conditions.iter().filter(|condition| entry(condition));
    found
        .map(|condition| {
            assert_eq!(condition["status"], "True", "an entry exists only while it is true");
            assert_eq!(condition["observedGeneration"], status["observedGeneration"]);
            (condition["type"].as_str().unwrap(), condition["reason"].as_str().unwrap())
        })
        .collect()
}

fn shown_of_cluster(world: &World) -> Vec<(&str, &str)> {
    shown(&object(world)["status"])
}

fn change(world: &mut World, patch: &Value) {
    world.change(ObjectKind::KubernetesCluster, "default", NAME, patch);
    world.settle();
}

#[test]
fn an_operation_reconciles_until_it_has_ended_and_stalls_when_it_failed() {
    let mut world = World::with_cluster();
    world.ask("first", |_| {});
    world.ask("second", |_| {});
    world.settle();
    assert_eq!(shown(world.status("first")), [("Reconciling", "Running")]);
    assert_eq!(shown(world.status("second")), [("Reconciling", "Waiting")]);
    world.job_says(&world.jobs()[0].clone(), "Complete");
    world.settle();
    assert_eq!(shown(world.status("first")), []);
    assert_eq!(shown(world.status("second")), [("Reconciling", "Running")]);
    world.job_says(&world.jobs()[1].clone(), "Failed");
    world.settle();
    let status = world.status("second");
    let failed = status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Failed").unwrap();
    assert_eq!(shown(status), [("Stalled", failed["reason"].as_str().unwrap())]);
}

#[test]
fn a_cluster_reconciles_while_it_is_created_and_changed() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    assert_eq!(shown_of_cluster(&world), [("Reconciling", "Prechecking")]);
    let mut world = running(&["10.0.0.2"]);
    assert_eq!(shown_of_cluster(&world), []);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    assert_eq!(shown_of_cluster(&world), [("Reconciling", "Prechecking")]);
    ends(&mut world, "Failed");
    assert_eq!(shown_of_cluster(&world), [("Stalled", "Failed")]);
    change(&mut world, &json!({"metadata": {"annotations": {"app.kubernetes.io/operation": "scaling-up"}}}));
    assert_eq!(shown_of_cluster(&world), [("Reconciling", "Prechecking")], "a retry is in work again");
    ends(&mut world, "Complete");
    assert_eq!(shown_of_cluster(&world), []);
}

#[test]
fn a_change_that_waits_for_a_person_is_not_taken_for_done() {
    let mut world = running(&["10.0.0.2"]);
    let generation = object(&world)["metadata"]["generation"].as_i64().unwrap() + 1;
    let mut paused = spec(&["10.0.0.2", "10.0.0.4"]);
    paused["paused"] = true.into();
    change(&mut world, &json!({"spec": paused, "metadata": {"generation": generation}}));
    let status = &object(&world)["status"];
    assert!(
        status["observedGeneration"].as_i64() < Some(generation),
        "kstatus sees a change in work: {status}"
    );
    assert_eq!(shown_of_cluster(&world), [("Reconciling", "Paused")]);

    let mut world = running(&["10.0.0.2"]);
    let mut refused = spec(&["10.0.0.2"]);
    refused["cluster"]["podCIDR"] = "10.99.0.0/16".into();
    change(&mut world, &json!({"spec": refused, "metadata": {"generation": generation}}));
    assert_eq!(shown_of_cluster(&world), [("Stalled", "NotYet")]);
    assert_eq!(object(&world)["status"]["observedGeneration"], generation, "kstatus sees the failure");
}

#[test]
fn a_cluster_that_is_deleted_has_no_entry() {
    let mut world = running(&["10.0.0.2"]);
    change(&mut world, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert_eq!(shown_of_cluster(&world), []);
}
