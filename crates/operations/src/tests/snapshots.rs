//! Snapshots of etcd in an object store.

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, ends, env, job, object, phase, running, saved, wanted, world};
use crate::testing::World;
use crate::write::{ObjectKind, ObjectRef};

const HOUR: i64 = 3600;

/// A running cluster that declares an object store.
pub(super) fn declared(more: &Value) -> World {
    let mut world = running(&["10.0.0.2"]);
    world.put(ObjectKind::Secret, "default", "store", json!({"stringData": {"credentials": "s3cr3t"}}));
    let mut snapshots = json!({"folder": "s3://backups/shop/", "endpoint": "https://s3.example.org",
        "credentialsRef": {"name": "store"}});
    snapshots.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let patch = json!({"spec": {"snapshots": snapshots}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &patch);
    world.settle();
    world
}

fn request(world: &mut World) {
    let patch = json!({"metadata": {"annotations": {"app.kubernetes.io/operation": "snapshotting"}}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &patch);
    world.settle();
}

fn operations(world: &World) -> usize {
    world.all::<kubeon_api::ClusterOperation>(ObjectKind::Operation).len()
}

fn after(world: &mut World, seconds: i64) {
    world.now += SignedDuration::from_secs(seconds);
    world.settle();
}

fn condition<'w>(world: &'w World, type_: &str) -> &'w Value {
    let all = object(world)["status"]["conditions"].as_array().unwrap();
    all.iter().find(|one| one["type"] == type_).unwrap_or_else(|| panic!("no condition {type_}"))
}

#[test]
fn a_snapshot_is_one_job_that_mounts_the_secret_of_the_store() {
    let mut world = declared(&json!({"keep": 3}));
    assert_eq!(operations(&world), 1, "only on request");
    request(&mut world);
    assert_eq!(phase(&world), "Snapshotting");
    let job = job(&world);
    assert!(job["metadata"]["name"].as_str().unwrap().starts_with("snapshot-"), "{job:#}");
    assert_eq!(env(&job, "OPERATION"), "snapshotting");
    assert_eq!(env(&job, "SNAPSHOT_FOLDER"), "s3://backups/shop/");
    assert_eq!(env(&job, "SNAPSHOT_KEEP"), "3");
    assert_eq!(env(&job, "SNAPSHOT_ENDPOINT"), "https://s3.example.org");
    assert!(!job.to_string().contains("s3cr3t"), "{job:#}");
    let volumes = job["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|one| one["name"] == "snapshots").unwrap();
    assert_eq!(volume["secret"]["secretName"], "store");
    ends(&mut world, "Complete");
    assert_eq!((phase(&world).as_str(), wanted(&world).as_str()), ("Running", "snapshot-finished"));
    let taken = &object(&world)["status"]["snapshots"];
    assert!(taken["lastSuccessTime"].is_string(), "{taken}");
    assert_eq!(taken["lastSuccessTime"], taken["lastAttemptTime"]);
    assert_eq!(condition(&world, "SnapshotTaken")["status"], "True");
    assert_eq!(condition(&world, "Progressing")["status"], "False");
    request(&mut world);
    assert_eq!(operations(&world), 3, "again on request");
}

#[test]
fn a_snapshot_that_failed_leaves_the_cluster_running() {
    let mut world = declared(&json!({}));
    request(&mut world);
    ends(&mut world, "Complete");
    let before = object(&world)["status"]["snapshots"]["lastSuccessTime"].clone();
    request(&mut world);
    ends(&mut world, "Failed");
    assert_eq!((phase(&world).as_str(), wanted(&world).as_str()), ("Running", "snapshot-failed"));
    let status = &object(&world)["status"];
    assert_eq!(status["snapshots"]["lastSuccessTime"], before);
    assert_ne!(status["snapshots"]["lastAttemptTime"], before);
    assert!(status["reason"].is_null(), "{status:#}");
    assert_eq!(condition(&world, "SnapshotTaken")["status"], "False");
    assert_eq!(condition(&world, "Degraded")["status"], "False");
    let count = operations(&world);
    after(&mut world, 100 * HOUR);
    assert_eq!(operations(&world), count, "without a schedule, not by itself");
}

#[test]
fn snapshots_are_taken_by_a_schedule() {
    let mut world = declared(&json!({"everyHours": 24}));
    assert_eq!((operations(&world), phase(&world).as_str()), (2, "Snapshotting"), "the first one at once");
    ends(&mut world, "Complete");
    after(&mut world, 23 * HOUR);
    assert_eq!(operations(&world), 2);
    let next = world.next().wake.unwrap();
    after(&mut world, HOUR);
    assert!(next <= world.now, "the operator wakes up by itself");
    assert_eq!(operations(&world), 3);
    ends(&mut world, "Failed");
    after(&mut world, HOUR - 60);
    assert_eq!(operations(&world), 3);
    after(&mut world, 60);
    assert_eq!(operations(&world), 4, "an hour after a failure");
    ends(&mut world, "Complete");
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &json!({"spec": {"paused": true}}));
    after(&mut world, 48 * HOUR);
    assert_eq!(operations(&world), 4, "not while the cluster is paused");
}

#[test]
fn a_cluster_is_created_out_of_a_snapshot() {
    let mut world = world(&["10.0.0.2"]);
    let from = "s3://backups/shop/20260131T120000Z-v1.36.3.db";
    let snapshots =
        json!({"folder": "s3://backups/shop/", "restoreFrom": from, "credentialsRef": {"name": "store"}});
    let patch = json!({"spec": {"snapshots": snapshots}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &patch);
    world.settle();
    let status = object(&world)["status"].to_string();
    assert!(status.contains("spec.snapshots.credentialsRef default/store not found"), "{status}");
    world.put(ObjectKind::Secret, "default", "store", json!({"stringData": {"credentials": "s3cr3t"}}));
    world.settle();
    let creation = job(&world);
    assert_eq!(env(&creation, "OPERATION"), "creating");
    assert_eq!(env(&creation, "SNAPSHOT_RESTORE"), from);
    saved(&mut world);
    ends(&mut world, "Complete");
    request(&mut world);
    let variables = job(&world)["spec"]["template"]["spec"]["containers"][0]["env"].to_string();
    assert!(variables.contains("SNAPSHOT_FOLDER") && !variables.contains("SNAPSHOT_RESTORE"), "{variables}");
}

#[test]
fn a_missing_secret_fails_the_snapshot_at_once_and_the_cluster_stays_as_it_was() {
    let mut world = declared(&json!({}));
    let secret = ObjectRef::new(ObjectKind::Secret, "default", "store");
    let kept = world.objects.remove(&secret).unwrap();
    after(&mut world, 1);
    request(&mut world);
    assert_eq!((phase(&world), operations(&world)), ("Running".to_owned(), 2));
    let taken = condition(&world, "SnapshotTaken");
    assert_eq!((&taken["status"], &taken["reason"]), (&json!("False"), &json!("Failed")));
    assert_eq!(taken["message"], "spec.snapshots.credentialsRef default/store not found");
    after(&mut world, HOUR);
    assert_eq!(operations(&world), 2, "only a request or a schedule tries again");
    world.put(ObjectKind::Secret, "default", "store", kept);
    request(&mut world);
    assert_eq!(env(&job(&world), "OPERATION"), "snapshotting");
}
