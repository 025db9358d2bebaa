//! Operations on a cluster whose declaration has not changed: renewing and repairing.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::kubernetes_cluster::{NAME, STATE, ends, env, job, object, phase, running, wanted};
use crate::testing::World;
use crate::write::{ObjectKind, ObjectRef};
use crate::{ObservedCertificates, ObservedHealth, ObservedVersions};

fn request(world: &mut World, word: &str) {
    let patch = json!({"metadata": {"annotations": {"app.kubernetes.io/operation": word}}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &patch);
    world.settle();
}

fn serving(renewal_due: bool) -> Option<ObservedHealth> {
    let (not_ready, members_down) = (Vec::new(), Vec::new());
    let versions = ObservedVersions::default();
    Some(ObservedHealth::Serving {
        nodes: 2,
        not_ready,
        members_down,
        versions,
        certificates: None,
        drift: None,
        renewal_due,
    })
}

const KUBECONFIG: &str = "default-test-cluster-kubeconfig";
const OBSERVER: &str = "default-test-cluster-observer";

fn delete_secret(world: &mut World, name: &str) {
    world.objects.remove(&ObjectRef::new(ObjectKind::Secret, "default", name)).unwrap();
}

/// The last writer of the kubeconfig, `seconds` after its Secret was created.
fn written_by(world: &mut World, manager: &str, seconds: i64) {
    let created = &world.get(ObjectKind::Secret, "default", KUBECONFIG)["metadata"]["creationTimestamp"];
    let created: Timestamp = created.as_str().unwrap().parse().unwrap();
    let entry = json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "time": (created + SignedDuration::from_secs(seconds)).to_string(),
        "fieldsV1": {"f:data": {".": {}, "f:kubeconfig": {}}}});
    let patch = json!({"metadata": {"managedFields": [entry]}});
    world.change(ObjectKind::Secret, "default", KUBECONFIG, &patch);
}

fn operations(world: &World) -> usize {
    world.all::<kubeon_api::ClusterOperation>(ObjectKind::Operation).len()
}

fn after(world: &mut World, seconds: i64) {
    world.now += SignedDuration::from_secs(seconds);
    world.settle();
}

#[test]
fn renewing_and_repairing_run_on_request_and_can_be_repeated() {
    for (word, finished, prefix) in
        [("renewing", "renew-finished", "renew-"), ("repairing", "repair-finished", "repair-")]
    {
        let mut world = running(&["10.0.0.2"]);
        for _ in 0..2 {
            request(&mut world, word);
            assert_eq!(phase(&world), "Prechecking");
            let job = job(&world);
            assert_eq!(env(&job, "OPERATION"), word);
            assert!(job["metadata"]["name"].as_str().unwrap().starts_with(prefix), "{job:#}");
            ends(&mut world, "Complete");
            assert_eq!((phase(&world).as_str(), wanted(&world).as_str()), ("Running", finished));
        }
        assert_eq!(operations(&world), 3, "the creation, and one for each request");
    }
}

#[test]
fn a_failed_repair_is_repeated_on_request() {
    let mut world = running(&["10.0.0.2"]);
    request(&mut world, "repairing");
    ends(&mut world, "Failed");
    assert_eq!((phase(&world).as_str(), wanted(&world).as_str()), ("Failed", "repair-failed"));
    let before = operations(&world);
    after(&mut world, 7200);
    assert_eq!(operations(&world), before, "not without a request");
    request(&mut world, "repairing");
    assert_eq!(env(&job(&world), "OPERATION"), "repairing");
    ends(&mut world, "Complete");
    assert_eq!((phase(&world).as_str(), wanted(&world).as_str()), ("Running", "repair-finished"));
}

#[test]
fn old_kubeconfigs_are_renewed_without_a_request() {
    let mut world = running(&["10.0.0.2"]);
    for health in [None, serving(false), Some(ObservedHealth::Unreachable("down".into()))] {
        world.health = health;
        after(&mut world, 7200);
        assert_eq!(operations(&world), 1);
    }
    world.health = serving(true);
    after(&mut world, 1);
    assert_eq!((operations(&world), env(&job(&world), "OPERATION").as_str()), (2, "renewing"));
    ends(&mut world, "Complete");
    assert_eq!((phase(&world).as_str(), wanted(&world).as_str()), ("Running", "renew-finished"));
    after(&mut world, 1800);
    assert_eq!(operations(&world), 2, "the new kubeconfig may not have been observed yet");
    after(&mut world, 3600);
    assert_eq!(operations(&world), 3);
}

#[test]
fn certificates_that_hosts_did_not_renew_are_renewed_without_a_request() {
    let mut world = running(&["10.0.0.2"]);
    world.health = serving(false);
    if let Some(ObservedHealth::Serving { certificates, .. }) = &mut world.health {
        let overdue = vec!["h1: /etc/kubernetes/pki/apiserver.crt".to_owned()];
        *certificates = Some(ObservedCertificates { first_end: world.now, ends_soon: true, overdue });
    }
    after(&mut world, 1);
    assert_eq!((operations(&world), env(&job(&world), "OPERATION").as_str()), (2, "renewing"));
    ends(&mut world, "Complete");
    after(&mut world, 1800);
    assert_eq!(operations(&world), 2, "once in an hour");
}

#[test]
fn a_deleted_kubeconfig_is_written_again() {
    let mut world = running(&["10.0.0.2"]);
    delete_secret(&mut world, KUBECONFIG);
    for health in [None, Some(ObservedHealth::Unreachable("down".into()))] {
        world.health = health;
        after(&mut world, 1);
        assert_eq!(operations(&world), 1, "Secrets of a backup may still be missing");
    }
    world.health = serving(false);
    after(&mut world, 1);
    assert_eq!((operations(&world), env(&job(&world), "OPERATION").as_str()), (2, "renewing"));
    ends(&mut world, "Complete");
    assert_eq!((phase(&world).as_str(), wanted(&world).as_str()), ("Running", "renew-finished"));
    after(&mut world, 7200);
    assert_eq!(operations(&world), 2, "the Secret exists");
}

#[test]
fn a_kubeconfig_that_somebody_changed_is_written_again() {
    let mut world = running(&["10.0.0.2"]);
    world.health = serving(false);
    for (manager, seconds) in [("velero-server", 0), ("kubeon-runner", 60)] {
        written_by(&mut world, manager, seconds);
        after(&mut world, 1);
        assert_eq!(operations(&world), 1, "{manager}");
    }
    written_by(&mut world, "kubectl-edit", 90);
    after(&mut world, 1);
    assert_eq!((operations(&world), env(&job(&world), "OPERATION").as_str()), (2, "renewing"));
    written_by(&mut world, "kubeon-runner", 120);
    ends(&mut world, "Complete");
    after(&mut world, 7200);
    assert_eq!(operations(&world), 2);
    written_by(&mut world, "kubectl-edit", 9000);
    after(&mut world, 1);
    assert_eq!(operations(&world), 3);
}

#[test]
fn a_deleted_kubeconfig_of_the_observer_is_written_again() {
    let mut world = running(&["10.0.0.2"]);
    world.health = serving(false);
    if let Some(ObservedHealth::Serving { certificates, .. }) = &mut world.health {
        let first_end = world.now + SignedDuration::from_hours(9000);
        *certificates = Some(ObservedCertificates { first_end, ends_soon: false, overdue: Vec::new() });
    }
    after(&mut world, 1);
    // Without the Secret nothing is observed.
    world.health = None;
    delete_secret(&mut world, OBSERVER);
    after(&mut world, 1);
    assert_eq!((operations(&world), env(&job(&world), "OPERATION").as_str()), (2, "renewing"));
}

#[test]
fn a_kubeconfig_that_the_cluster_refuses_is_renewed_once() {
    let mut world = running(&["10.0.0.2"]);
    let refused = || Some(ObservedHealth::Refused("https://10.0.0.1:6443: 401 Unauthorized".into()));
    world.health = refused();
    after(&mut world, 1);
    assert_eq!((operations(&world), env(&job(&world), "OPERATION").as_str()), (2, "renewing"));
    world.now += SignedDuration::from_secs(60);
    ends(&mut world, "Complete");
    assert_eq!((phase(&world).as_str(), wanted(&world).as_str()), ("Running", "renew-finished"));
    after(&mut world, 7200);
    assert_eq!(operations(&world), 2, "it did not help");
    // The cluster accepted the new one, and refuses it later.
    world.health = serving(false);
    after(&mut world, 7200);
    world.health = refused();
    after(&mut world, 1);
    assert_eq!(operations(&world), 3);
}

#[test]
fn a_refused_kubeconfig_waits_for_the_pause_after_the_last_renewal() {
    let mut world = running(&["10.0.0.2"]);
    world.health = serving(true);
    after(&mut world, 1);
    ends(&mut world, "Complete");
    world.health = Some(ObservedHealth::Refused("https://10.0.0.1:6443: 401 Unauthorized".into()));
    after(&mut world, 60);
    assert_eq!(operations(&world), 2);
    after(&mut world, 3600);
    assert_eq!((operations(&world), env(&job(&world), "OPERATION").as_str()), (3, "renewing"));
}

#[test]
fn a_renewal_that_failed_is_not_repeated_by_itself() {
    let mut world = running(&["10.0.0.2"]);
    world.health = serving(true);
    after(&mut world, 1);
    ends(&mut world, "Failed");
    assert_eq!((phase(&world).as_str(), wanted(&world).as_str()), ("Failed", "renew-failed"));
    let before = operations(&world);
    after(&mut world, 7200);
    assert_eq!(operations(&world), before);
}

#[test]
fn a_degraded_cluster_is_repaired_if_its_policy_says_so() {
    let unreachable = || Some(ObservedHealth::Unreachable("down".into()));
    let down = || {
        let mut health = serving(false);
        if let Some(ObservedHealth::Serving { not_ready, .. }) = &mut health {
            not_ready.push("h2".to_owned());
        }
        health
    };
    for (policy, health, operations_later) in [
        (json!(null), down(), 1),
        (json!("OnRequest"), down(), 1),
        (json!("Automatic"), serving(false), 1),
        (json!("Automatic"), down(), 2),
        (json!("Automatic"), unreachable(), 2),
    ] {
        let mut world = running(&["10.0.0.2"]);
        world.change(ObjectKind::KubernetesCluster, "default", NAME, &json!({"spec": {"repair": policy}}));
        world.health = health;
        after(&mut world, 1);
        after(&mut world, 200);
        assert_eq!(operations(&world), 1, "{policy}: hosts restart");
        if operations_later == 2 {
            let wake = world.next().wake.unwrap();
            assert!(wake <= world.now + SignedDuration::from_secs(100), "{wake}");
        }
        after(&mut world, 100);
        assert_eq!(operations(&world), operations_later, "{policy}");
    }
}

#[test]
fn a_repair_that_did_not_help_is_repeated_after_an_hour() {
    let mut world = running(&["10.0.0.2"]);
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &json!({"spec": {"repair": "Automatic"}}));
    world.health = Some(ObservedHealth::Unreachable("down".into()));
    after(&mut world, 1);
    after(&mut world, 300);
    assert_eq!(env(&job(&world), "OPERATION"), "repairing");
    ends(&mut world, "Complete");
    after(&mut world, 1800);
    assert_eq!(operations(&world), 2);
    after(&mut world, 1800);
    assert_eq!(operations(&world), 3);
}

/// A change of masters completed an upgrade that could not go back, and the declaration still has the version of before.
#[test]
fn a_cluster_with_newer_nodes_than_declared_is_not_repaired() {
    let of_version = |most: &str| {
        let mut health = serving(false);
        if let Some(ObservedHealth::Serving { versions, .. }) = &mut health {
            most.clone_into(&mut versions.most);
        }
        health
    };
    let mut world = running(&["10.0.0.2"]);
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &json!({"spec": {"repair": "Automatic"}}));
    world.health = of_version("v1.99.0");
    after(&mut world, 1);
    after(&mut world, 7200);
    assert_eq!((operations(&world), phase(&world).as_str()), (1, "Running"));
    let status = object(&world)["status"].to_string();
    assert!(status.contains("the nodes run v1.99.0 instead of"), "{status}");
    // Older nodes get the version of their cluster.
    world.health = of_version("v1.30.0");
    after(&mut world, 1);
    after(&mut world, 300);
    assert_eq!((operations(&world), env(&job(&world), "OPERATION").as_str()), (2, "repairing"));
}

#[test]
fn a_paused_cluster_is_not_renewed() {
    let mut world = running(&["10.0.0.2"]);
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &json!({"spec": {"paused": true}}));
    world.health = serving(true);
    after(&mut world, 1);
    assert_eq!(operations(&world), 1);
}

#[test]
fn a_cluster_whose_state_was_deleted_is_not_repaired() {
    let mut world = running(&["10.0.0.2"]);
    world.objects.remove(&ObjectRef::new(ObjectKind::Secret, "default", STATE)).unwrap();
    request(&mut world, "repairing");
    let text = object(&world)["status"].to_string();
    assert!(text.contains("with the cluster's state is missing"), "{text}");
}

#[test]
fn a_cluster_whose_secrets_were_all_deleted_is_not_renewed_by_itself() {
    let mut world = running(&["10.0.0.2"]);
    world.health = serving(false);
    for name in [STATE, KUBECONFIG, OBSERVER] {
        delete_secret(&mut world, name);
    }
    after(&mut world, 7200);
    assert_eq!(operations(&world), 1, "no runner could write them");
}
