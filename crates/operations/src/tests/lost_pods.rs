//! Pods that are lost with their node, or evicted.

use serde_json::json;

use super::kubernetes_cluster::{ends, object, phase};
use super::pauses::{creating, is_suspended, start_pod, succeeds};
use crate::testing::World;
use crate::write::{ObjectKind, ObjectRef};

/// What the eviction API and the Job controller do: the pod vanishes after it ended.
fn lose(world: &mut World, pod: &str) {
    let condition = json!([{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting"}]);
    world.change(ObjectKind::Log, "default", pod, &json!({"status": {"conditions": condition}}));
    world.settle();
    world.objects.remove(&ObjectRef::new(ObjectKind::Log, "default", pod));
    world.settle();
}

#[test]
fn another_pod_continues_and_its_log_replaces_that_of_the_lost_one() {
    let (mut world, operation, job) = creating();
    let policy = &world.get(ObjectKind::Job, "default", &job)["spec"]["podFailurePolicy"]["rules"][0];
    assert_eq!(policy["onPodConditions"][0]["type"], "DisruptionTarget");
    let log = ObjectRef::new(ObjectKind::ConfigMap, "default", format!("{job}-log"));
    let saved =
        json!({"metadata": {"annotations": {"kubeon.io/pod": "first"}}, "data": {"log": "first part\n"}});
    world.put(ObjectKind::ConfigMap, "default", &log.name, saved);
    lose(&mut world, "first");
    assert!(world.objects.contains_key(&log), "the next pod reads it");
    start_pod(&mut world, &job, "second");
    world.settle();
    let status = world.status(&operation);
    assert_eq!((&status["status"], &status["lostPods"]), (&json!("Running"), &json!(["first"])));
    assert!(!is_suspended(&world, &job) && !world.objects.contains_key(&log));
    let own =
        json!({"metadata": {"annotations": {"kubeon.io/pod": "second"}}, "data": {"log": "all of it\n"}});
    world.put(ObjectKind::ConfigMap, "default", &log.name, own);
    world.settle();
    assert!(world.objects.contains_key(&log), "the pod that runs is being stopped, and has saved its log");
    succeeds(&mut world);
    assert_eq!(phase(&world), "Running");
}

#[test]
fn the_operation_fails_when_pods_are_lost_again_and_again() {
    let (mut world, operation, job) = creating();
    lose(&mut world, "first");
    for pod in ["second", "third", "fourth"] {
        assert!(!is_suspended(&world, &job), "before {pod}");
        start_pod(&mut world, &job, pod);
        lose(&mut world, pod);
    }
    assert!(is_suspended(&world, &job));
    ends(&mut world, "Suspended");
    let reason = &world.status(&operation)["reason"];
    assert_eq!(reason, "4 of its pods were lost: first, second, third, fourth");
    assert_eq!(object(&world)["status"]["phase"], "Failed");
}

/// A pod that somebody deletes is not replaced without a question.
#[test]
fn a_second_pod_without_a_loss_ends_the_operation() {
    let (mut world, operation, job) = creating();
    start_pod(&mut world, &job, "second");
    world.settle();
    assert_eq!(world.status(&operation)["reason"], "its Job started a second pod (first, second)");
    assert!(is_suspended(&world, &job));
}
