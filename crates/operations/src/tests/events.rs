//! Events: every failed step once, the results of a Cluster's operations, and missing references.

use serde_json::json;

use super::kubernetes_cluster::{job, object, running, scaled, world};
use crate::ObjectRef;
use crate::testing::World;
use crate::write::ObjectKind;

/// Reconciles until nothing is left to do; returns the events.
fn events(world: &mut World) -> Vec<(ObjectKind, &'static str, bool, String)> {
    let mut events = Vec::new();
    for _ in 0..40 {
        let changes = world.next();
        if changes.is_done() {
            return events;
        }
        events.extend(changes.notices.into_iter().map(|it| (it.about.kind, it.reason, it.warning, it.text)));
        for write in changes.stages.concat() {
            // A refused write is planned again.
            let _ = world.write(&write);
        }
    }
    panic!("the reconciles do not converge");
}

fn of<'t>(
    events: &'t [(ObjectKind, &'static str, bool, String)],
    reason: &str,
) -> Vec<(ObjectKind, &'t str)> {
    let about = events.iter().filter(|(_, word, ..)| *word == reason);
    about.map(|(kind, _, _, text)| (*kind, text.as_str())).collect()
}

fn failed(world: &mut World, lines: &[&str]) {
    let operation = object(world)["status"]["operation"].as_str().unwrap().to_owned();
    let condition = json!({"type": "StepFailed", "status": "True", "reason": "TriedAgain", "message": lines.join("\n"),
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    world.change(ObjectKind::Operation, "", &operation, &json!({"status": {"conditions": [condition]}}));
}

const FIRST: &str = "h6: start kubelet: no room; it is tried again";
const LAST: &str = "h6: start kubelet: no room";

#[test]
fn a_failed_step_is_an_event_of_both_objects_once_for_each_outcome() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    failed(&mut world, &[FIRST]);
    assert_eq!(
        of(&events(&mut world), "StepFailed"),
        [(ObjectKind::KubernetesCluster, FIRST), (ObjectKind::Operation, FIRST)]
    );
    assert_eq!(events(&mut world), []);
    failed(&mut world, &[FIRST, LAST]);
    assert_eq!(
        of(&events(&mut world), "StepFailed"),
        [(ObjectKind::KubernetesCluster, LAST), (ObjectKind::Operation, LAST)]
    );
    let name = job(&world)["metadata"]["name"].as_str().unwrap().to_owned();
    world.job_says(&name, "Failed");
    assert_eq!(of(&events(&mut world), "StepFailed"), []);
    let again = json!({"metadata": {"annotations": {"app.kubernetes.io/operation": "creating"}}});
    world.change(ObjectKind::KubernetesCluster, "default", super::kubernetes_cluster::NAME, &again);
    events(&mut world);
    failed(&mut world, &[FIRST]);
    assert_eq!(of(&events(&mut world), "StepFailed").len(), 2, "another operation, another failure");
}

#[test]
fn a_failed_step_just_before_the_end_is_an_event_and_is_removed_after_a_success() {
    let mut world = running(&["10.0.0.2"]);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    failed(&mut world, &[FIRST]);
    let name = job(&world)["metadata"]["name"].as_str().unwrap().to_owned();
    world.job_says(&name, "Complete");
    assert_eq!(of(&events(&mut world), "StepFailed").len(), 2);
    let conditions = object(&world)["status"]["conditions"].as_array().unwrap();
    assert!(!conditions.iter().any(|one| one["type"] == "StepFailed"), "the operation succeeded");
}

#[test]
fn a_host_that_is_not_fit_stands_in_the_events_of_both_once() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    let operation = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
    let words = "10.0.0.2 : another program listens on port 10250";
    let unfit = json!({"type": "Prechecked", "status": "False", "reason": "Unfit", "message": words,
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    world.change(ObjectKind::Operation, "", &operation, &json!({"status": {"conditions": [unfit]}}));
    assert_eq!(of(&events(&mut world), "PrecheckFailed"), [], "it ends soon");
    let name = job(&world)["metadata"]["name"].as_str().unwrap().to_owned();
    world.job_says(&name, "Failed");
    let ended = events(&mut world);
    assert_eq!(
        of(&ended, "PrecheckFailed"),
        [(ObjectKind::KubernetesCluster, words), (ObjectKind::Operation, words)]
    );
}

#[test]
fn a_cluster_is_told_what_becomes_of_its_operations() {
    let mut world = World::with_cluster();
    events(&mut world);
    world.ask("o", |_| {});
    let began = events(&mut world);
    assert_eq!(
        of(&began, "OperationStarted"),
        [(ObjectKind::Cluster, "o: shell runs as Job ns,kubeonkube-o-job")]
    );
    let step = json!({"type": "StepFailed", "status": "True", "reason": "Failed", "message": LAST,
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    world.change(ObjectKind::Operation, "", "o", &json!({"status": {"conditions": [step]}}));
    world.job_says("kubeonkube-o-job", "Failed");
    let ended = events(&mut world);
    let [(ObjectKind::Cluster, text)] = of(&ended, "OperationFailed")[..] else { panic!("{ended:?}") };
    assert!(text.starts_with("o: its pod is gone and left no message"), "{text}");
    assert_eq!(of(&ended, "StepFailed"), [(ObjectKind::Operation, LAST)]);
    world.ask("p", |_| {});
    events(&mut world);
    world.job_says("kubeonkube-p-job", "Complete");
    assert_eq!(of(&events(&mut world), "OperationSucceeded"), [(ObjectKind::Cluster, "p: completed")]);
}

#[test]
fn a_success_without_changes_has_its_own_message() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    events(&mut world);
    let words = "all 186 steps are up to date";
    let idle = json!({"type": "Progressing", "status": "False", "reason": "NothingToDo", "message": words,
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    world.change(ObjectKind::Operation, "", "o", &json!({"status": {"conditions": [idle]}}));
    world.job_says("kubeonkube-o-job", "Complete");
    assert_eq!(of(&events(&mut world), "Succeeded"), [(ObjectKind::Operation, words)]);
    let complete = world.status("o")["conditions"].as_array().unwrap().clone();
    let complete = complete.iter().find(|one| one["type"] == "Complete").unwrap();
    assert_eq!((&complete["status"], &complete["message"]), (&json!("True"), &json!(words)));
}

#[test]
fn a_cluster_gets_events_about_missing_and_found_references() {
    let mut world = World::with_cluster();
    assert_eq!(events(&mut world), [], "all references exist");
    let vars = world.objects.remove(&ObjectRef::new(ObjectKind::ConfigMap, "ns", "vars")).unwrap();
    let missing = events(&mut world);
    assert_eq!(of(&missing, "ReferenceMissing"), [(ObjectKind::Cluster, "varsConfRef ns,vars not found")]);
    assert!(missing.iter().all(|(_, _, warning, _)| *warning));
    world.put(ObjectKind::ConfigMap, "ns", "vars", vars);
    assert_eq!(of(&events(&mut world), "ReferencesFound").len(), 1);
    // At the end of an operation, the history is written after it, and the event has a write of its own.
    world.ask("o", |_| {});
    events(&mut world);
    world.objects.remove(&ObjectRef::new(ObjectKind::ConfigMap, "ns", "vars")).unwrap();
    world.job_says("kubeonkube-o-job", "Complete");
    assert_eq!(of(&events(&mut world), "ReferenceMissing").len(), 1);
}

#[test]
fn a_cancelled_operation_is_not_a_warning() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    events(&mut world);
    world.change(ObjectKind::Operation, "", "o", &json!({"spec": {"cancelled": true}}));
    events(&mut world);
    world.job_says("kubeonkube-o-job", "Suspended");
    let ended = events(&mut world);
    assert_eq!(world.status("o")["status"], "Failed");
    let [(ObjectKind::Operation, said)] = of(&ended, "Cancelled")[..] else { panic!("{ended:?}") };
    assert_eq!((said, of(&ended, "OperationCancelled").len()), ("cancelled", 1));
    assert!(ended.iter().all(|(_, reason, warning, _)| !warning && !reason.ends_with("Failed")), "{ended:?}");
}
