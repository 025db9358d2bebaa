//! A worker that is dead: named with what to type, and done without when a person agreed.

use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, ends, env, job, object, phase, running, saved, scaled, world};
use crate::testing::World;
use crate::write::ObjectKind;

const REFUSED: &str = "shop cannot be planned, 1 reason\n  10.0.0.4  does not answer (no route to host); bring it back, or only take it out of the cluster";
const COMMAND: &str = "kubectl -n default annotate ecs test-cluster kubeon.io/without=10.0.0.4";

/// The same as the runner writes it into the status of the operation.
fn refusals() -> Value {
    json!([{"field": "host", "value": "10.0.0.4", "reason": "no route to host", "remedy": {"skipHost": "10.0.0.4"}}])
}

/// The runner leaves these words, then its Job failed.
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
    let mut told = Vec::new();
    for _ in 0..20 {
        let changes = world.next();
        if changes.is_done() {
            break;
        }
        told.extend(changes.notices.iter().map(|it| (it.about.kind, it.reason, it.text.clone())));
        for write in changes.stages.concat() {
            world.write(&write);
        }
    }
    told
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
fn a_dead_worker_that_leaves_is_named_and_taken_out_when_a_person_agrees() {
    let mut world = running(&["10.0.0.2", "10.0.0.4"]);
    scaled(&mut world, &["10.0.0.2"]);
    let told = ends_with(&mut world, REFUSED);
    assert_eq!(phase(&world), "Failed");
    let reason = object(&world)["status"]["reason"].as_str().unwrap().to_owned();
    assert!(reason.ends_with(&format!("to go on without: {COMMAND}")), "{reason}");
    let named: Vec<_> = told.iter().filter(|(_, word, _)| *word == "HostUnreachable").collect();
    let [(ObjectKind::KubernetesCluster, _, text)] = named[..] else { panic!("{told:?}") };
    assert_eq!(text, &format!("10.0.0.4 cannot be reached; bring it back, or go on without: {COMMAND}"));
    let jobs = world.jobs().len();
    assert_eq!((world.settle(), world.jobs().len()), (0, jobs), "nobody asked for another try");
    annotated(&mut world, "10.0.0.4");
    assert_eq!(world.jobs().len(), jobs + 1, "what was said makes another try");
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
fn a_cluster_with_a_dead_worker_names_it_and_goes_when_a_person_agrees() {
    let mut world = running(&["10.0.0.2", "10.0.0.4"]);
    deleted(&mut world);
    ends_with(&mut world, REFUSED);
    let blocker = condition(&world, "Deleting");
    assert_eq!((&blocker["reason"], &blocker["status"]), (&json!("TeardownFailed"), &json!("True")));
    assert!(blocker["message"].as_str().unwrap().contains(COMMAND), "{blocker}");
    assert!(object(&world)["metadata"]["finalizers"].as_array().unwrap().len() == 2, "nothing went");
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

/// It fails once more with another host: the command that is offered keeps what was agreed.
#[test]
fn every_word_that_is_new_makes_one_try_and_what_was_agreed_stays_agreed() {
    let mut world = running(&["10.0.0.2", "10.0.0.4"]);
    deleted(&mut world);
    annotated(&mut world, "h9");
    ends_with(&mut world, REFUSED);
    assert_eq!(env(&job(&world), "WITHOUT"), "h9", "it was said after the operation was made");
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
    assert_eq!((world.settle(), world.jobs().len()), (0, jobs), "taking a word back asks for nothing");
    annotated(&mut world, "h9,10.0.0.4");
    assert_eq!(world.jobs().len(), jobs + 1);
}

#[test]
fn a_check_that_may_fail_makes_another_try_too() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    ends(&mut world, "Failed");
    let jobs = world.jobs().len();
    let ignored = json!({"metadata": {"annotations": {"kubeon.io/ignore-checks": "swap"}}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &ignored);
    world.settle();
    assert_eq!((world.jobs().len(), env(&job(&world), "IGNORE_CHECKS")), (jobs + 1, "swap".into()));
}

/// A precheck's words are long when there are many hosts: what can be typed is not cut off.
#[test]
fn what_can_be_typed_stands_at_the_end_of_however_many_words() {
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

/// What was left out is not shown as there, and comes in when that is asked for.
#[test]
fn a_worker_that_was_left_out_is_shown_so_and_taken_in_when_that_is_asked_for() {
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
