//! An unreachable worker: reported with the command to skip it, and skipped after a user agreed.

use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, ends, env, job, object, phase, running, saved, scaled, world};
use crate::testing::World;
use crate::write::ObjectKind;

const REFUSED: &str = "shop cannot be planned, 1 reason\n  10.0.0.4  does not answer (no route to host); bring it back, or remove it from the cluster without a reset";
const COMMAND: &str = "kubectl -n default annotate ecs test-cluster kubeon.io/without=10.0.0.4";

/// The refusals as the runner writes them into the status of the operation.
fn refusals() -> Value {
    json!([{"field": "host", "value": "10.0.0.4", "reason": "no route to host", "remedy": {"skipHost": "10.0.0.4"}}])
}

/// The runner writes this message, then its Job fails.
fn ends_with(world: &mut World, words: &str) -> Vec<(ObjectKind, &'static str, String)> {
    let name = job(world)["metadata"]["name"].as_str().unwrap().to_owned();
    let operation = job(world)["metadata"]["labels"]["kubeon.io/operation"].clone();
    let named = operation.as_str().unwrap().trim_start_matches("uid-").to_owned();
    world.change(ObjectKind::Operation, "", &named, &json!({"status": {"refusals": refusals()}}));
    let state = json!({"terminated": {"exitCode": 2, "message": words}});
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": format!("uid-{name}")});
    world.put(ObjectKind::Log, "default", &format!("{name}-x"), json!({
        "metadata": {"labels": {"kubeon.io/operation": operation}, "ownerReferences": [owner]},
        "status": {"phase": "Failed", "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false,
            "restartCount": 0, "state": state}]}}));
    world.job_says(&name, "Failed");
    let mut events = Vec::new();
    for _ in 0..20 {
        let changes = world.next();
        if changes.is_done() {
            break;
        }
        events.extend(changes.notices.iter().map(|it| (it.about.kind, it.reason, it.text.clone())));
        for write in changes.stages.concat() {
            world.write(&write);
        }
    }
    events
}

fn annotated(world: &mut World, without: &str) {
    let annotation = json!({"metadata": {"annotations": {"kubeon.io/without": without}}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &annotation);
    world.settle();
}

fn deleted(world: &mut World) {
    let now = world.now.to_string();
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"metadata": {"deletionTimestamp": now}}),
    );
    world.settle();
}

fn condition(world: &World, type_: &str) -> Value {
    let conditions = object(world)["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|one| one["type"] == type_).cloned().unwrap_or_default()
}

#[test]
fn an_unreachable_worker_is_reported_and_removed_after_a_user_agreed() {
    let mut world = running(&["10.0.0.2", "10.0.0.4"]);
    scaled(&mut world, &["10.0.0.2"]);
    let events = ends_with(&mut world, REFUSED);
    assert_eq!(phase(&world), "Failed");
    let reason = object(&world)["status"]["reason"].as_str().unwrap().to_owned();
    assert!(reason.ends_with(&format!("to go on without: {COMMAND}")), "{reason}");
    let named: Vec<_> = events.iter().filter(|(_, word, _)| *word == "HostUnreachable").collect();
    let [(ObjectKind::KubernetesCluster, _, text)] = named[..] else { panic!("{events:?}") };
    assert_eq!(text, &format!("10.0.0.4 cannot be reached; bring it back, or go on without: {COMMAND}"));
    let jobs = world.jobs().len();
    assert_eq!((world.settle(), world.jobs().len()), (0, jobs), "no retry was requested");
    annotated(&mut world, "10.0.0.4");
    assert_eq!(world.jobs().len(), jobs + 1, "the annotation requests a retry");
    assert_eq!(
        (env(&job(&world), "OPERATION"), env(&job(&world), "WITHOUT")),
        ("scaling-down".into(), "10.0.0.4".into())
    );
    ends(&mut world, "Complete");
    assert_eq!(phase(&world), "Running");
    scaled(&mut world, &["10.0.0.2", "10.0.0.5"]);
    assert_eq!(
        env(&job(&world), "WITHOUT"),
        "10.0.0.4",
        "until it is taken away; the runner knows that it left"
    );
}

#[test]
fn a_cluster_with_an_unreachable_worker_is_deleted_after_a_user_agreed() {
    let mut world = running(&["10.0.0.2", "10.0.0.4"]);
    deleted(&mut world);
    ends_with(&mut world, REFUSED);
    let blocker = condition(&world, "Deleting");
    assert_eq!((&blocker["reason"], &blocker["status"]), (&json!("TeardownFailed"), &json!("True")));
    assert!(blocker["message"].as_str().unwrap().contains(COMMAND), "{blocker}");
    assert!(object(&world)["metadata"]["finalizers"].as_array().unwrap().len() == 2, "nothing was removed");
    annotated(&mut world, "10.0.0.4");
    assert_eq!(
        (env(&job(&world), "OPERATION"), env(&job(&world), "WITHOUT")),
        ("terminating".into(), "10.0.0.4".into())
    );
    let name = job(&world)["metadata"]["name"].as_str().unwrap().to_owned();
    world.job_says(&name, "Complete");
    let mut said = Vec::new();
    for _ in 0..20 {
        if object(&world)["metadata"]["finalizers"] == json!(["other/one"]) {
            break;
        }
        let changes = world.next();
        said.extend(changes.notices.into_iter().map(|notice| notice.text));
        for write in changes.stages.concat() {
            world.write(&write);
        }
    }
    assert!(
        said.iter().any(|text| text.contains("10.0.0.4") && text.contains("kubeon-node reset")),
        "{said:?}"
    );
}

/// It fails again with another host: the proposed command keeps the hosts that are already skipped.
#[test]
fn each_new_host_makes_one_retry_and_skipped_hosts_stay_skipped() {
    let mut world = running(&["10.0.0.2", "10.0.0.4"]);
    deleted(&mut world);
    annotated(&mut world, "h9");
    ends_with(&mut world, REFUSED);
    assert_eq!(env(&job(&world), "WITHOUT"), "h9", "the annotation was set after the operation was created");
    ends_with(&mut world, REFUSED);
    let jobs = world.jobs().len();
    assert_eq!((world.settle(), world.jobs().len()), (0, jobs));
    let more = "kubectl -n default annotate --overwrite ecs test-cluster kubeon.io/without=h9,10.0.0.4";
    let reason = object(&world)["status"]["reason"].as_str().unwrap();
    assert!(reason.ends_with(more), "{reason}");
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"metadata": {"annotations": {"kubeon.io/without": null}}}),
    );
    assert_eq!((world.settle(), world.jobs().len()), (0, jobs), "removing a host requests no retry");
    annotated(&mut world, "h9,10.0.0.4");
    assert_eq!(world.jobs().len(), jobs + 1);
}

#[test]
fn an_ignored_check_makes_a_retry() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    ends(&mut world, "Failed");
    let jobs = world.jobs().len();
    let ignored = json!({"metadata": {"annotations": {"kubeon.io/ignore-checks": "swap"}}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &ignored);
    world.settle();
    assert_eq!((world.jobs().len(), env(&job(&world), "IGNORE_CHECKS")), (jobs + 1, "swap".into()));
}

/// The message of a precheck is long when there are many hosts: the command is not cut off.
#[test]
fn the_command_is_at_the_end_of_a_long_message() {
    let mut world = world(&["10.0.0.2", "10.0.0.4"]);
    world.settle();
    let operation = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
    let more = "x".repeat(4000);
    let message = format!("10.0.0.4 : no route to host; bring it back, or go on without it\n{more}");
    world.change(
        ObjectKind::Operation,
        "",
        &operation,
        &json!({"status": {"refusals": refusals(), "conditions": [{"type": "Prechecked", "status": "False",
        "reason": "Unfit", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
    );
    ends(&mut world, "Failed");
    let reason = object(&world)["status"]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("[precheck] failed with:\n 10.0.0.4 : ") && reason.ends_with(COMMAND),
        "{reason}"
    );
    assert!(reason.len() <= 2048, "{}", reason.len());
}

/// A skipped worker is shown as not ready, and is added when a user requests it.
#[test]
fn a_skipped_worker_is_shown_and_added_on_request() {
    let mut world = world(&["10.0.0.2", "10.0.0.4"]);
    annotated(&mut world, "10.0.0.4");
    let operation = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
    let finding = json!({"host": "10.0.0.4", "check": "reach", "severity": "error", "ignored": true, "message": "silent"});
    world.change(ObjectKind::Operation, "", &operation, &json!({"status": {"findings": [finding]}}));
    saved(&mut world);
    ends(&mut world, "Complete");
    let status = object(&world)["status"].clone();
    assert_eq!((phase(&world).as_str(), &status["ready"]), ("Running", &json!("3/4")));
    let node =
        status["nodes"].as_array().unwrap().iter().find(|node| node["ip"] == "10.0.0.4").unwrap().clone();
    assert_eq!((&node["ready"], &node["version"]), (&json!(false), &Value::Null));
    let said = condition(&world, "Ready")["message"].as_str().unwrap().to_owned();
    let way = "kubectl -n default annotate --overwrite ecs test-cluster kubeon.io/without- app.kubernetes.io/operation=scaling-up";
    assert!(said.contains("10.0.0.4 did not answer") && said.ends_with(way), "{said}");
    assert_eq!(world.settle(), 0);
    let asked = json!({"metadata": {"annotations": {"kubeon.io/without": null, "app.kubernetes.io/operation": "scaling-up"}}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &asked);
    world.settle();
    assert_eq!(
        (env(&job(&world), "OPERATION"), env(&job(&world), "NODE_HOSTS")),
        ("scaling-up".into(), "10.0.0.4".into())
    );
    ends(&mut world, "Complete");
    assert_eq!(object(&world)["status"]["ready"], "4/4");
}
