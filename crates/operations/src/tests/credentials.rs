//! Copies of credentials exist only as long as a pod may mount them.

use serde_json::{Value, json};

use super::kubernetes_cluster::{ends, job, world};
use super::waiting::pod;
use crate::testing::World;
use crate::write::{ObjectKind, ObjectRef};

const JOB: &str = "kubeonkube-o-job";

/// The Secrets that the operation's Job mounts.
fn copies(world: &World, operation: &str) -> Vec<ObjectRef> {
    let inputs = world.status(operation)["inputs"].as_array().cloned().unwrap_or_default();
    let secret = |input: &Value| {
        let text = |field: &str| input[field].as_str().unwrap().to_owned();
        ObjectRef::new(ObjectKind::Secret, text("namespace"), text("name"))
    };
    inputs.iter().map(secret).filter(|secret| world.objects.contains_key(secret)).collect()
}

fn started() -> World {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world.settle();
    world
}

#[test]
fn the_copy_of_a_key_is_deleted_when_the_job_has_ended() {
    for condition in ["Complete", "Failed"] {
        let mut world = started();
        let found = copies(&world, "o");
        assert_eq!(found.len(), 1);
        world.job_says(JOB, condition);
        world.settle();
        assert!(!world.objects.contains_key(&found[0]), "{condition}");
        let original = ObjectRef::new(ObjectKind::Secret, "ns", "key");
        assert!(world.objects.contains_key(&original), "the user's Secret stays");
        assert_eq!(world.status("o")["inputs"][1]["name"], found[0].name, "the status still names the copy");
    }
}

#[test]
fn a_pod_that_still_runs_keeps_the_copy() {
    let mut world = started();
    pod(&mut world, "p", JOB, &json!({"phase": "Running"}));
    world.job_says(JOB, "Failed");
    world.settle();
    assert_eq!((world.status("o")["status"].clone(), copies(&world, "o").len()), (json!("Running"), 1));
    world.change(ObjectKind::Log, "ns", "p", &json!({"status": {"phase": "Failed"}}));
    world.settle();
    assert_eq!((world.status("o")["status"].clone(), copies(&world, "o").len()), (json!("Failed"), 0));
}

/// A process that was killed between the end and the deletion deletes it later.
#[test]
fn the_next_operation_has_its_own_copy_and_an_older_operators_shared_copy_is_deleted() {
    let mut world = started();
    let shared = copies(&world, "o").remove(0);
    world.change(
        ObjectKind::Secret,
        "ns",
        &shared.name,
        &json!({"metadata": {"ownerReferences": [of_cluster()]}}),
    );
    world.ask("next", |_| {});
    world.job_says(JOB, "Complete");
    world.settle();
    assert_eq!(world.status("next")["status"], "Running");
    let own = copies(&world, "next");
    assert_eq!(own.len(), 1);
    assert!(own[0] != shared && !world.objects.contains_key(&shared));
}

/// As older operators wrote it, without `controller`.
fn of_cluster() -> Value {
    json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "Cluster", "name": "sample", "uid": "uid-sample"})
}

#[test]
fn a_persisted_object_of_the_cluster_stays() {
    let mut world = started();
    let state = copies(&world, "o").remove(0);
    let labels = json!({"kubeon.io/cluster": "sample"});
    let metadata = json!({"metadata": {"labels": labels, "ownerReferences": [of_cluster()]}});
    world.change(ObjectKind::Secret, "ns", &state.name, &metadata);
    world.job_says(JOB, "Complete");
    world.settle();
    assert!(world.objects.contains_key(&state));
}

#[test]
fn a_users_secret_with_the_name_of_a_copy_stays() {
    let mut world = started();
    let copy = copies(&world, "o").remove(0);
    world.put(ObjectKind::Secret, "ns", &copy.name, json!({"stringData": {"mine": "x"}}));
    world.job_says(JOB, "Complete");
    world.settle();
    assert!(world.objects.contains_key(&copy));
}

#[test]
fn passwords_of_a_declared_cluster_are_deleted_when_its_job_has_ended() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    let mounted = job(&world)["spec"]["template"]["spec"]["volumes"].as_array().unwrap().clone();
    let auth = mounted.iter().find(|volume| volume["name"] == "auth").unwrap();
    let name = auth["secret"]["secretName"].as_str().unwrap();
    let copy = ObjectRef::new(ObjectKind::Secret, "default", name);
    assert!(world.objects.contains_key(&copy));
    ends(&mut world, "Complete");
    assert!(!world.objects.contains_key(&copy));
}
