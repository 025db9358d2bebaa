//! The status of a business cluster with 1,000 hosts, whose size is bounded.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, ends, object, phase, saved, world};
use crate::testing::World;
use crate::write::ObjectKind;
use crate::{ObservedCertificates, ObservedDrift, ObservedHealth, ObservedVersions};

const HOSTS: usize = 1000;
const MOST_BYTES: usize = 32 * 1024;

fn address(n: usize) -> String {
    format!("10.1.{}.{}", n / 250, n % 250 + 1)
}

fn name(n: usize) -> String {
    format!("{}-{n:04}", "w".repeat(58))
}

/// Declares this many workers with the longest names.
fn declare(world: &mut World, hosts: usize) {
    let workers: Value = (0..hosts).map(|n| json!({"ip": address(n), "name": name(n)})).collect();
    let generation = object(world)["metadata"]["generation"].as_i64().unwrap() + 1;
    let patch = json!({"spec": {"cluster": {"nodeList": workers}}, "metadata": {"generation": generation}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &patch);
    world.settle();
}

/// What the runner may write at most about the keys and steps of an operation.
fn report(world: &mut World, skipped: usize) {
    let operation = object(world)["status"]["operation"].as_str().unwrap().to_owned();
    let now = world.now.to_string();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": kind, "message": "x".repeat(2048), "lastTransitionTime": now});
    let finding = |n: usize| json!({"host": address(n), "check": "reach", "severity": "error", "ignored": true, "message": "no route to host"});
    let findings: Value = (0..skipped).map(finding).collect();
    let status = json!({"conditions": [condition("HostKeysPinned"), condition("StepFailed")], "findings": findings,
        "reason": "x".repeat(2048)});
    world.change(ObjectKind::Operation, "", &operation, &json!({"status": status}));
    world.settle();
}

/// Nothing works.
fn health() -> ObservedHealth {
    let names: Vec<String> = (0..HOSTS).map(name).collect();
    let end: Timestamp = "2026-02-01T00:00:00Z".parse().unwrap();
    ObservedHealth::Serving {
        nodes: HOSTS,
        not_ready: names.clone(),
        members_down: names.clone(),
        versions: ObservedVersions { most: "v1.35.0".into(), others: names.clone() },
        certificates: Some(ObservedCertificates { first_end: end, ends_soon: true, overdue: names.clone() }),
        drift: Some(ObservedDrift { count: HOSTS as u64, named: names }),
        renewal_due: false,
    }
}

fn is_bounded(world: &World) {
    let status = &object(world)["status"];
    let bytes = status.to_string().len();
    assert!(bytes <= MOST_BYTES, "{bytes} bytes in phase {}", phase(world));
    assert!(bytes > 8 * 1024, "{bytes} bytes: nodes are missing in phase {}", phase(world));
}

#[test]
fn the_status_of_a_thousand_hosts_is_below_32_kib() {
    let mut world = world(&[]);
    declare(&mut world, HOSTS);
    saved(&mut world);
    ends(&mut world, "Complete");
    assert_eq!((phase(&world), &object(&world)["status"]["ready"]), ("Running".into(), &json!("1002/1002")));
    is_bounded(&world);

    declare(&mut world, HOSTS + 1);
    report(&mut world, 300);
    is_bounded(&world);
    ends(&mut world, "Failed");
    assert_eq!(phase(&world), "Failed");
    is_bounded(&world);

    world.health = Some(health());
    world.settle();
    is_bounded(&world);
}

#[test]
fn hosts_that_are_not_ready_are_shown_before_others() {
    let mut world = world(&[]);
    declare(&mut world, HOSTS);
    saved(&mut world);
    report(&mut world, 20);
    ends(&mut world, "Complete");
    let status = &object(&world)["status"];
    assert_eq!(status["ready"], "982/1002");
    let nodes = status["nodes"].as_array().unwrap();
    assert!(nodes.len() < HOSTS && nodes.len() > 60, "{}", nodes.len());
    assert!(nodes.iter().take(20).all(|node| node["ready"] == false), "{nodes:?}");
    assert!(nodes.iter().skip(20).all(|node| node["ready"] == true), "{nodes:?}");
    let conditions = status["conditions"].as_array().unwrap();
    let ready = conditions.iter().find(|one| one["type"] == "Ready").unwrap();
    let text = ready["message"].as_str().unwrap();
    assert!(text.contains(" and 4 more did not answer") && text.ends_with("=scaling-up"), "{text}");
}
