//! Jobs are removed: those that ended by their time to live, suspended ones by the operator.

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, job, object, phase, running, scaled};
use super::lifecycle::succeeded_pod;
use super::pauses::creating;
use crate::testing::World;
use crate::write::{Change, ObjectKind, ObjectRef, Write};

const JOB: &str = "kubeonkube-o-job";
const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// An operation that was cancelled while it ran. Its Job is not suspended yet.
fn cancelled() -> World {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world.settle();
    world.change(ObjectKind::Operation, "", "o", &json!({"spec": {"cancelled": true}}));
    world.settle();
    world
}

fn is_deletion_of_a_job(write: &Write) -> bool {
    write.target.kind == ObjectKind::Job && matches!(write.change, Change::Delete { .. })
}

fn name(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[test]
fn a_job_that_ended_has_a_time_to_live() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world.settle();
    let job = world.get(ObjectKind::Job, "ns", JOB);
    assert_eq!(job["spec"]["ttlSecondsAfterFinished"], 604_800);
    world.job_says(JOB, "Complete");
    world.settle();
    let ended = world.status("o").clone();
    world.objects.retain(|target, _| target.kind != ObjectKind::Job);
    world.now += SignedDuration::from_hours(7 * 24);
    assert_eq!(world.settle(), 0, "an operation that ended gets no second Job");
    assert_eq!(*world.status("o"), ended);
}

#[test]
fn the_suspended_job_of_a_cancelled_operation_is_deleted_after_an_hour() {
    let mut world = cancelled();
    world.job_says(JOB, "Suspended");
    world.settle();
    assert_eq!(world.status("o")["reason"], "cancelled");
    assert_eq!(world.jobs(), [JOB], "people may look for the cause");
    let due = world.now + HOUR;
    assert_eq!(world.next().wake, Some(due));
    world.now = due;
    world.written.clear();
    world.settle();
    let [deletion] = &world.written[..] else { panic!("{:?}", world.written) };
    assert_eq!(deletion.target, ObjectRef::new(ObjectKind::Job, "ns", JOB));
    assert_eq!(deletion.change, Change::Delete { uid: format!("uid-{JOB}") }, "no other of this name");
    assert!(world.jobs().is_empty());
    assert_eq!(world.status("o")["status"], "Failed");
    assert_eq!(world.settle(), 0);
}

#[test]
fn the_log_is_stored_before_the_job_is_deleted() {
    let mut world = cancelled();
    succeeded_pod(&mut world, "o");
    world.job_says(JOB, "Suspended");
    world.now += HOUR + HOUR;
    world.written.clear();
    world.settle();
    let at = |found: Option<usize>| found.unwrap_or_else(|| panic!("{:?}", world.written));
    let log = at(world.written.iter().position(|write| write.target.name == format!("{JOB}-log")));
    let deletion = at(world.written.iter().position(is_deletion_of_a_job));
    assert!(log < deletion);
}

#[test]
fn a_suspended_job_whose_pod_still_runs_is_not_deleted() {
    let mut world = cancelled();
    super::waiting::pod(&mut world, "p", JOB, &json!({"phase": "Running"}));
    world.job_says(JOB, "Suspended");
    world.now += HOUR;
    world.settle();
    assert_eq!(world.jobs(), [JOB]);
}

#[test]
fn the_job_of_a_paused_operation_is_not_deleted() {
    let (mut world, operation, job) = creating();
    world.change(ObjectKind::Operation, "", &operation, &json!({"spec": {"paused": true}}));
    world.settle();
    world.job_says(&job, "Suspended");
    world.objects.remove(&ObjectRef::new(ObjectKind::Log, "default", "first"));
    world.now += SignedDuration::from_hours(48);
    world.settle();
    assert_eq!((world.jobs(), &world.status(&operation)["status"]), (vec![job], &json!("Running")));
}

/// The object owns the Job, so the Job is not deleted with the operation.
#[test]
fn the_job_of_a_deleted_operation_is_deleted() {
    let mut world = running(&["10.0.0.2"]);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    let (operation, job) =
        (name(&object(&world)["status"]["operation"]), name(&job(&world)["metadata"]["name"]));
    world.objects.retain(|target, _| target.name != operation);
    world.settle();
    world.job_says(&job, "Suspended");
    world.settle();
    assert_eq!(phase(&world), "Failed");
    assert!(world.jobs().contains(&job));
    world.now += HOUR;
    assert_eq!(world.settle(), 1);
    assert!(!world.jobs().contains(&job));
    assert_eq!(world.settle(), 0);
}

/// It has no owner.
#[test]
fn the_suspended_teardown_of_an_object_that_is_gone_is_deleted() {
    let mut world = running(&["10.0.0.2"]);
    let deleted = json!({"metadata": {"deletionTimestamp": world.now.to_string()}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &deleted);
    world.settle();
    let teardown = name(&job(&world)["metadata"]["name"]);
    world.objects.retain(|target, _| target.kind != ObjectKind::KubernetesCluster);
    world.settle();
    world.job_says(&teardown, "Suspended");
    world.settle();
    assert!(world.jobs().contains(&teardown));
    assert!(world.all::<kubeon_api::ClusterOperation>(ObjectKind::Operation).is_empty());
    let due = world.now + HOUR;
    assert_eq!(world.next().wake, Some(due));
    world.now = due;
    world.settle();
    assert!(!world.jobs().contains(&teardown));
}
