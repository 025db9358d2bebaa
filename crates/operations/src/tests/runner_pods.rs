//! The pod whose runner may write the status of its operation.

use serde_json::{Value, json};

use super::kubernetes_cluster::{object, world};
use super::pauses::{creating, is_suspended, start_pod, succeeds};
use crate::testing::{World, body};
use crate::write::{ObjectKind, ObjectRef};

/// The parts of statuses that were written with the pod, since the list was cleared.
fn records(world: &World) -> Vec<Value> {
    let statuses = world.written.iter().map(|write| body(&write.change)["status"].clone());
    statuses.filter(|status| status.get("runnerPod").is_some()).collect()
}

fn pod(name: &str) -> ObjectRef {
    ObjectRef::new(ObjectKind::Log, "default", name)
}

#[test]
fn an_operation_needs_one_write_for_its_pod() {
    let (mut world, operation, job) = creating();
    assert_eq!(records(&world), [json!({"runnerPod": "uid-first"})]);
    assert_eq!(world.settle(), 0);
    start_pod(&mut world, &job, "first");
    assert_eq!(world.settle(), 0, "an event of the pod changes nothing");
    succeeds(&mut world);
    assert_eq!(records(&world).len(), 1);
    assert_eq!(world.status(&operation)["runnerPod"], "uid-first");
}

/// The operator was killed when it had made the Job.
#[test]
fn a_pod_that_is_there_when_its_job_is_recorded_needs_no_write() {
    let killed_after = |most| {
        let mut world = world(&["10.0.0.2"]);
        world.settle_within(most);
        world
    };
    let mut world = (0..20).map(killed_after).find(|world| !world.jobs().is_empty()).unwrap();
    let job = world.jobs().remove(0);
    start_pod(&mut world, &job, "first");
    world.settle();
    let records = records(&world);
    assert_eq!((records.len(), &records[0]["runnerPod"]), (1, &json!("uid-first")));
    assert_eq!(records[0]["jobRef"]["name"], json!(job));
}

#[test]
fn the_record_ends_with_a_lost_pod_and_the_next_pod_is_recorded() {
    let (mut world, operation, job) = creating();
    world.written.clear();
    let lost = json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}});
    world.change(ObjectKind::Log, "default", "first", &lost);
    world.settle();
    assert_eq!(records(&world), [json!({"lostPods": ["first"], "runnerPod": null})], "one write for both");
    world.objects.remove(&pod("first"));
    start_pod(&mut world, &job, "second");
    world.settle();
    assert_eq!((records(&world).len(), &world.status(&operation)["runnerPod"]), (2, &json!("uid-second")));
}

/// Nobody saw why the first pod ended.
#[test]
fn a_pod_that_replaced_another_one_while_no_operator_ran_is_recorded() {
    let (mut world, operation, job) = creating();
    world.objects.remove(&pod("first"));
    start_pod(&mut world, &job, "second");
    world.settle();
    assert_eq!(world.status(&operation)["runnerPod"], "uid-second");
    assert_eq!(world.status(&operation)["status"], "Running");
}

#[test]
fn a_second_pod_does_not_take_the_place_of_the_first() {
    let (mut world, operation, job) = creating();
    start_pod(&mut world, &job, "second");
    world.settle();
    assert!(is_suspended(&world, &job));
    assert_eq!(world.status(&operation)["runnerPod"], "uid-first");
}

#[test]
fn a_pause_needs_no_further_write_for_the_next_pod() {
    let (mut world, operation, job) = creating();
    world.written.clear();
    let set_paused = |world: &mut World, paused: bool| {
        world.change(ObjectKind::Operation, "", &operation, &json!({"spec": {"paused": paused}}));
        world.settle();
    };
    set_paused(&mut world, true);
    world.job_says(&job, "Suspended");
    world.objects.remove(&pod("first"));
    set_paused(&mut world, false);
    world.change(ObjectKind::Job, "default", &job, &json!({"status": null}));
    start_pod(&mut world, &job, "second");
    world.settle();
    let records = records(&world);
    assert_eq!(records.len(), 2, "{records:#?}");
    assert!(records[0]["runnerPod"].is_null() && records[0]["reason"].is_string(), "{records:#?}");
    assert_eq!(records[1]["runnerPod"], "uid-second");
    assert!(records[1]["reason"].is_null() && records[1]["conditions"].is_array(), "{records:#?}");
    succeeds(&mut world);
    assert_eq!(object(&world)["status"]["phase"], "Running");
}

/// Its pod has no token.
#[test]
fn the_pod_of_a_foreign_image_is_not_recorded() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world.settle();
    super::waiting::pod(&mut world, "p", "kubeonkube-o-job", &json!({"phase": "Running"}));
    assert_eq!(world.settle(), 0);
    assert!(world.status("o")["runnerPod"].is_null());
}
