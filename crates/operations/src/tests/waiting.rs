//! Waiting operations, operations that never start, and stopped operations.

use k8s_openapi::jiff::SignedDuration;
use kubeon_api::DataRef;
use kubeon_api::kubeonkube::{Action, ActionSource};
use serde_json::json;

use crate::settings::DEFAULT_DEADLINE_SECONDS;
use crate::testing::World;
use crate::view::{StartPermission, WriteRefusal};
use crate::write::ObjectKind;

const MISSING: &str = "hostsConfRef ns,later not found";

fn reason(world: &World, name: &str) -> String {
    world.status(name)["reason"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a23_what_is_missing_is_named_and_waited_for() {
    for (kind, missing, said) in [
        (ObjectKind::ConfigMap, "hosts", "hostsConfRef ns,hosts not found"),
        (ObjectKind::ConfigMap, "vars", "varsConfRef ns,vars not found"),
        (ObjectKind::Secret, "key", "sshAuthRef ns,key not found"),
    ] {
        let mut world = World::with_cluster();
        let removed = world.objects.remove(&crate::ObjectRef::new(kind, "ns", missing)).unwrap();
        world.ask("o", |_| {});
        world.settle();
        assert_eq!(reason(&world, "o"), said);
        assert!(world.status("o")["status"].is_null() && world.jobs().is_empty());
        assert!(world.next().wake.is_some(), "the next reconcile is at its deadline");
        world.put(kind, "ns", missing, removed);
        world.settle();
        assert_eq!(world.status("o")["status"], "Running");
        assert!(world.status("o")["reason"].is_null());
    }
    let mut world = World::with_cluster();
    world.change(
        ObjectKind::Cluster,
        "",
        "sample",
        &json!({"spec": {"hostsConfRef": {"name": "", "namespace": ""}}}),
    );
    world.ask("o", |_| {});
    world.settle();
    assert_eq!(reason(&world, "o"), "hostsConfRef is empty");
}

#[test]
fn a34_a_missing_cluster_is_waited_for_until_the_deadline() {
    let mut world = World::with_cluster();
    let cluster = world.objects.remove(&crate::ObjectRef::new(ObjectKind::Cluster, "", "sample")).unwrap();
    world.ask("o", |spec| spec.active_deadline_seconds = Some(60));
    world.settle();
    assert_eq!(reason(&world, "o"), "Cluster sample not found");
    let mut late = world.clone();
    world.put(ObjectKind::Cluster, "", "sample", cluster);
    world.settle();
    assert_eq!(world.jobs().len(), 1);
    late.now += SignedDuration::from_secs(61);
    late.settle();
    assert_eq!(late.status("o")["status"], "Failed");
    assert_eq!(reason(&late, "o"), "Cluster sample not found (waited 60 s)");
}

#[test]
fn an_unwatched_namespace_is_reported() {
    let mut world = World::with_cluster();
    for key in ["hostsConfRef", "varsConfRef", "sshAuthRef"] {
        world.change(ObjectKind::Cluster, "", "sample", &json!({"spec": {key: {"namespace": "far"}}}));
    }
    world.ask("o", |_| {});
    world.settle();
    assert!(reason(&world, "o").contains("--watch-namespace far"), "{}", reason(&world, "o"));
}

#[test]
fn a9_a10_a19_a24_a35_an_invalid_operation_fails_with_its_reason_and_creates_no_job() {
    let refused = |change: &dyn Fn(&mut kubeon_api::kubeonkube::ClusterOperationSpec), said: &str| {
        let mut world = World::with_cluster();
        world.ask("o", change);
        world.settle();
        assert_eq!(world.status("o")["status"], "Failed");
        assert!(reason(&world, "o").contains(said), "{}", reason(&world, "o"));
        assert!(!world.status("o")["endTime"].is_null() && world.jobs().is_empty());
        let meta = &world.get(ObjectKind::Operation, "", "o")["metadata"];
        assert_eq!(
            (&meta["labels"]["hasCompleted"], meta["ownerReferences"].as_array().unwrap().len()),
            (&json!("done"), 1)
        );
    };
    for image in ["", " ", "_", ".", "a;rm -rf /"] {
        refused(&|spec| spec.image = image.into(), "image");
    }
    refused(
        &|spec| spec.image = "example.org/unlisted:v1".into(),
        "is not allowed; allowed are wangzhichidocker/",
    );
    let action = |kind: &str, text: &str| Action {
        action_type: kind.into(),
        action: text.into(),
        ..Action::default()
    };
    refused(&|spec| spec.main = action("playbook", "abc.yml"), "abc.yml");
    refused(&|spec| spec.main = action("OtherAction", "x"), "[playbook shell");
    refused(&|spec| spec.main = action("kubeon", "creating"), "KubernetesCluster");
    refused(&|spec| spec.ssh_auth_ref = Some(DataRef::new("other", "key")), "not in the same namespace");
    refused(
        &|spec| spec.main.action_source = Some(ActionSource::Configmap),
        "actionSourceRef must be specified if actionSource set as configmap",
    );
}

#[test]
fn an_invalid_ssh_key_and_a_missing_key_of_a_configmap_are_reported() {
    let mut world = World::with_cluster();
    world.change(
        ObjectKind::Secret,
        "ns",
        "key",
        &json!({"stringData": {"ssh-privatekey": "ssh-ed25519 AAAA"}}),
    );
    world.ask("o", |_| {});
    world.settle();
    assert!(reason(&world, "o").contains("public key"), "{}", reason(&world, "o"));
    let mut world = World::with_cluster();
    world.change(ObjectKind::ConfigMap, "ns", "vars", &json!({"data": {"group_vars.yml": null, "x": "y"}}));
    world.ask("o", |_| {});
    world.settle();
    assert_eq!(reason(&world, "o"), "varsConfRef ns,vars has no key group_vars.yml");
}

#[test]
fn a42_the_second_waits_for_the_first_and_then_runs() {
    let mut world = World::with_cluster();
    for name in ["one", "two", "three"] {
        world.ask(name, |_| {});
    }
    world.settle();
    assert_eq!(world.jobs(), ["kubeonkube-one-job"]);
    assert_eq!(world.status("two")["waitsFor"], "one");
    assert_eq!(reason(&world, "two"), "waits for one, which runs first");
    world.job_says("kubeonkube-one-job", "Failed");
    world.settle();
    assert_eq!(world.status("two")["status"], "Running");
    assert!(world.status("two")["waitsFor"].is_null());
    assert_eq!(world.status("three")["waitsFor"], "two");
}

#[test]
fn an_operation_whose_inputs_stay_missing_does_not_block_the_next() {
    let mut world = World::with_cluster();
    world.ask("one", |spec| spec.hosts_conf_ref = Some(DataRef::new("ns", "later")));
    world.ask("two", |_| {});
    world.settle();
    assert!(world.jobs().is_empty(), "what is applied together may still arrive");
    assert_eq!((reason(&world, "one").as_str(), &world.status("two")["waitsFor"]), (MISSING, &json!("one")));
    let minute = SignedDuration::from_secs(60);
    assert!(world.next().wake.is_some_and(|wake| wake <= world.now + minute));
    world.now += minute;
    world.settle();
    assert_eq!(world.jobs(), ["kubeonkube-two-job"]);
    assert_eq!(reason(&world, "one"), "waits for two, which runs first");
    let hosts = world.objects[&crate::ObjectRef::new(ObjectKind::ConfigMap, "ns", "hosts")].clone();
    world.put(ObjectKind::ConfigMap, "ns", "later", hosts);
    world.settle();
    assert_eq!(world.jobs(), ["kubeonkube-two-job"], "one after the other");
    world.job_says("kubeonkube-two-job", "Complete");
    world.settle();
    assert_eq!(world.status("one")["status"], "Running");
}

#[test]
fn a_paused_operation_waits_and_continues() {
    let mut world = World::with_cluster();
    world.ask("o", |spec| spec.paused = true);
    world.settle();
    assert!(world.jobs().is_empty() && reason(&world, "o").starts_with("paused"));
    world.change(ObjectKind::Operation, "", "o", &json!({"spec": {"paused": null}}));
    world.settle();
    assert_eq!(world.jobs().len(), 1);
}

#[test]
fn an_operation_above_the_limit_shows_its_place_and_starts_later() {
    let mut world = World::with_cluster();
    world.start = StartPermission::Later { limit: 20, before: 3, region: None };
    world.ask("o", |_| {});
    world.settle();
    assert_eq!(
        reason(&world, "o"),
        "waits: 20 operations run, which is the limit, and 3 start before this one"
    );
    assert!(world.jobs().is_empty());
    assert_eq!(world.next().wake, world.now.checked_add(SignedDuration::from_secs(60)).ok());
    world.start = StartPermission::Now;
    world.settle();
    assert_eq!((world.jobs().len(), reason(&world, "o").as_str()), (1, ""));
}

#[test]
fn a_cancelled_operation_suspends_its_job_and_reports_it() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world.settle();
    world.change(ObjectKind::Operation, "", "o", &json!({"spec": {"cancelled": true}}));
    world.settle();
    assert_eq!(world.get(ObjectKind::Job, "ns", "kubeonkube-o-job")["spec"]["suspend"], true);
    assert_eq!(world.status("o")["status"], "Running", "until its pod has ended");
    world.job_says("kubeonkube-o-job", "Suspended");
    world.settle();
    assert_eq!((&world.status("o")["status"], reason(&world, "o").as_str()), (&json!("Failed"), "cancelled"));
    let mut world = World::with_cluster();
    world.ask("o", |spec| spec.cancelled = true);
    world.settle();
    assert_eq!((reason(&world, "o").as_str(), world.jobs().len()), ("cancelled", 0));
}

#[test]
fn the_log_of_a_pod_that_is_being_removed_is_kept_before_the_end_is_reported() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world.settle();
    world.change(ObjectKind::Operation, "", "o", &json!({"spec": {"cancelled": true}}));
    world.settle();
    world.job_says("kubeonkube-o-job", "Suspended");
    let state = |state: &str| {
        json!({"phase": "Running", "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false,
            "restartCount": 0, "state": {state: {"exitCode": 143, "startedAt": "2026-01-01T00:00:00Z"}}}]})
    };
    let terminating = json!({"metadata": {"deletionTimestamp": world.now.to_string()}});
    pod(&mut world, "p", "kubeonkube-o-job", &state("running"));
    world.change(ObjectKind::Log, "ns", "p", &terminating);
    world.settle();
    assert!(
        !world.written.iter().any(|write| write.target.name.ends_with("-log")),
        "the pod still writes its log"
    );
    let mut ended = state("terminated");
    ended["phase"] = json!("Failed");
    world.change(ObjectKind::Log, "ns", "p", &json!({"status": ended}));
    world.written.clear();
    world.settle_within(1);
    assert_eq!(world.written[0].target.name, "kubeonkube-o-job-log");
    world.objects.retain(|target, _| target.name != "p");
    world.settle();
    assert_eq!((&world.status("o")["status"], reason(&world, "o").as_str()), (&json!("Failed"), "cancelled"));
    assert_eq!(
        world.get(ObjectKind::ConfigMap, "ns", "kubeonkube-o-job-log")["data"]["log"],
        "words of the pod\n"
    );
}

pub(super) fn pod(world: &mut World, name: &str, job: &str, status: &serde_json::Value) {
    world.put(ObjectKind::Log, "ns", name, json!({"metadata": {
        "labels": {"kubeon.io/operation": "uid-o"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": format!("uid-{job}")}]},
        "status": status}));
}

#[test]
fn b32_an_image_that_cannot_be_pulled_ends_the_operation_with_the_pods_words() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world.settle();
    let waiting = json!({"phase": "Pending", "containerStatuses": [{"name": "c", "image": "busybox", "imageID": "",
        "ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such host"}}}]});
    pod(&mut world, "p", "kubeonkube-o-job", &waiting);
    world.settle();
    assert_eq!(world.status("o")["status"], "Running");
    let wake = world.next().wake.unwrap();
    assert!(wake <= world.now + SignedDuration::from_secs(30));
    world.now = wake;
    world.settle();
    assert_eq!(world.get(ObjectKind::Job, "ns", "kubeonkube-o-job")["spec"]["suspend"], true);
    world.objects.retain(|target, _| target.name != "p");
    world.job_says("kubeonkube-o-job", "Suspended");
    world.settle();
    assert_eq!(world.status("o")["status"], "Failed");
    assert!(
        reason(&world, "o").contains("no such host"),
        "the message outlives the pod: {}",
        reason(&world, "o")
    );
}

#[test]
fn an_unschedulable_pod_is_reported_and_does_not_end_the_operation() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world.settle();
    let waits = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/1 nodes: too many pods", "lastTransitionTime": world.now.to_string()}]});
    pod(&mut world, "p", "kubeonkube-o-job", &waits);
    world.settle();
    world.now = world.next().wake.unwrap();
    let notices = world.next().notices;
    assert!(notices.iter().any(|notice| notice.warning && notice.reason == "Held"), "{notices:?}");
    world.settle();
    assert_eq!(world.status("o")["status"], "Running");
    assert!(reason(&world, "o").contains("pod p waits for a node: 0/1 nodes: too many pods"));
    assert_ne!(world.get(ObjectKind::Job, "ns", "kubeonkube-o-job")["spec"]["suspend"], true);
    pod(&mut world, "p", "kubeonkube-o-job", &json!({"phase": "Running"}));
    world.settle();
    assert_eq!(world.status("o").get("reason"), None, "it was scheduled");
}

#[test]
fn b32_a_pod_that_does_not_start_is_reported_until_it_starts() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world.settle();
    let status = |phase: &str, state: serde_json::Value| {
        json!({"phase": phase, "containerStatuses": [{"name": "c", "image": "busybox", "imageID": "",
            "ready": false, "restartCount": 0, "state": state}]})
    };
    let waits = status("Pending", json!({"waiting": {"reason": "ContainerCreating"}}));
    pod(&mut world, "p", "kubeonkube-o-job", &waits);
    world.settle();
    assert_eq!(reason(&world, "o"), "");
    let wake = world.next().wake.unwrap();
    assert!(wake <= world.now + SignedDuration::from_secs(30));
    world.now = wake;
    world.settle();
    assert_eq!(world.status("o")["status"], "Running");
    let said = reason(&world, "o");
    assert!(said.starts_with("pod p has not started: its image busybox is"), "{said}");
    assert!(said.ends_with("kubectl -n ns describe pod p"), "{said}");
    assert_ne!(world.get(ObjectKind::Job, "ns", "kubeonkube-o-job")["spec"]["suspend"], true);
    assert_eq!(world.settle(), 0);
    pod(&mut world, "p", "kubeonkube-o-job", &status("Running", json!({"running": {}})));
    world.settle();
    assert_eq!(world.status("o").get("reason"), None, "it runs");
}

#[test]
fn an_end_that_waits_for_a_silent_node_is_reported() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world.settle();
    pod(&mut world, "p", "kubeonkube-o-job", &json!({"phase": "Running", "hostIP": "10.0.0.9"}));
    world.change(ObjectKind::Operation, "", "o", &json!({"spec": {"cancelled": true}}));
    world.settle();
    let due = world.now + SignedDuration::from_secs(30);
    world.change(ObjectKind::Log, "ns", "p", &json!({"metadata": {"deletionTimestamp": due.to_string()}}));
    world.job_says("kubeonkube-o-job", "Suspended");
    world.settle();
    assert_eq!(reason(&world, "o"), "cancelled");
    world.now = world.next().wake.unwrap();
    world.settle();
    assert_eq!(world.status("o")["status"], "Running", "its pod may still run");
    let said = "cancelled; pod p was asked to terminate, and 10.0.0.9 has not confirmed its end";
    assert_eq!(reason(&world, "o"), said);
}

#[test]
fn the_deadline_can_be_changed_while_the_operation_runs() {
    let mut world = World::with_cluster();
    world.ask("o", |spec| spec.active_deadline_seconds = Some(60));
    world.settle();
    let deadline = |world: &World| {
        world.get(ObjectKind::Job, "ns", "kubeonkube-o-job")["spec"]["activeDeadlineSeconds"].clone()
    };
    assert_eq!(deadline(&world), 60);
    world.change(ObjectKind::Operation, "", "o", &json!({"spec": {"activeDeadlineSeconds": 7200}}));
    world.settle();
    assert_eq!(deadline(&world), 7200);
    assert!(world.status("o")["hasModified"].is_null(), "a new deadline is not a modification");
}

#[test]
fn an_operation_without_a_deadline_has_the_default_one() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world.settle();
    let job = world.get(ObjectKind::Job, "ns", "kubeonkube-o-job");
    assert_eq!(job["spec"]["activeDeadlineSeconds"], DEFAULT_DEADLINE_SECONDS);
}

#[test]
fn a31_a_second_pod_ends_the_operation() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world.settle();
    pod(&mut world, "p1", "kubeonkube-o-job", &json!({"phase": "Failed"}));
    pod(&mut world, "p2", "kubeonkube-o-job", &json!({"phase": "Running"}));
    world.settle();
    assert_eq!(world.get(ObjectKind::Job, "ns", "kubeonkube-o-job")["spec"]["suspend"], true);
}

#[test]
fn no_operation_starts_while_a_pod_of_a_deleted_operation_runs() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world.settle();
    pod(&mut world, "p", "kubeonkube-o-job", &json!({"phase": "Running"}));
    world.objects.retain(|target, _| !matches!(target.kind, ObjectKind::Operation | ObjectKind::Job));
    world.ask("next", |_| {});
    world.settle();
    assert!(world.jobs().is_empty());
    assert!(reason(&world, "next").contains("pod p of an earlier operation"), "{}", reason(&world, "next"));
    world.objects.retain(|target, _| target.name != "p");
    world.settle();
    assert_eq!(world.jobs().len(), 1);
}

#[test]
fn a_permanent_refusal_of_the_api_server_ends_the_operation() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world
        .refusals
        .insert("o".into(), WriteRefusal { text: "Job is invalid: limits".into(), permanent: true });
    world.settle();
    assert_eq!(
        (&world.status("o")["status"], reason(&world, "o").as_str()),
        (&json!("Failed"), "Job is invalid: limits")
    );
}

#[test]
fn a_temporary_refusal_of_the_api_server_is_waited_for() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world.refusals.insert("o".into(), WriteRefusal { text: "no room".into(), permanent: false });
    world.settle();
    assert_eq!(reason(&world, "o"), "no room");
    assert!(world.status("o")["status"].is_null() && world.jobs().is_empty());
    world.refusals.clear();
    world.settle();
    assert_eq!(world.status("o")["status"], "Running");
}

/// As after `kubectl replace --force`: the objects of the first operation are garbage-collected later.
#[test]
fn what_a_deleted_operation_of_the_same_name_left_is_waited_for_and_not_used() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world.settle();
    world.job_says("kubeonkube-o-job", "Complete");
    world.settle();
    world.objects.remove(&crate::ObjectRef::new(ObjectKind::Operation, "", "o"));
    world.ask("o", |_| {});
    let second = json!("uid-of-the-second");
    world.change(ObjectKind::Operation, "", "o", &json!({"metadata": {"uid": second}}));
    world.settle();
    let said = "Job ns/kubeonkube-o-job of a deleted operation with the same name still exists";
    assert_eq!(reason(&world, "o"), said);
    assert!(world.status("o")["status"].is_null());
    assert_eq!(world.settle(), 0);
    world.objects.retain(|target, _| target.kind != ObjectKind::Job);
    world.settle();
    let job = world.get(ObjectKind::Job, "ns", "kubeonkube-o-job");
    assert_eq!(job["metadata"]["labels"]["kubeon.io/operation"], second);
    let map = world.status("o")["inputs"][0]["name"].as_str().unwrap();
    let map = world.get(ObjectKind::ConfigMap, "ns", map);
    assert_eq!(map["metadata"]["ownerReferences"][0]["uid"], second, "the other copy is garbage-collected");
}

/// Pods are garbage-collected after their Job.
#[test]
fn a_pod_of_an_earlier_job_of_the_same_name_is_no_second_pod() {
    let mut world = World::with_cluster();
    world.ask("o", |_| {});
    world.settle();
    pod(&mut world, "earlier", "kubeonkube-o-job", &json!({"phase": "Failed"}));
    world.change(ObjectKind::Job, "ns", "kubeonkube-o-job", &json!({"metadata": {"uid": "uid-later"}}));
    pod(&mut world, "later", "later", &json!({"phase": "Running"}));
    world.settle();
    assert_ne!(world.get(ObjectKind::Job, "ns", "kubeonkube-o-job")["spec"]["suspend"], true);
}

#[test]
fn a_spec_that_changed_while_the_operation_waited_is_not_run() {
    let mut world = World::with_cluster();
    world.ask("o", |spec| spec.paused = true);
    world.settle();
    world.change(ObjectKind::Operation, "", "o", &json!({"spec": {"action": "rm -rf /", "paused": null}}));
    world.settle();
    assert_eq!(world.status("o")["status"], "Failed");
    assert!(world.jobs().is_empty());
}

/// Contract A's digest does not include these fields. Without this check, another operation than the
/// requested one would run.
#[test]
fn changed_arguments_references_sources_and_resources_are_not_run() {
    for (field, value) in [
        ("extraArgs", json!("--limit=all")),
        ("hostsConfRef", json!({"namespace": "ns", "name": "vars"})),
        ("sshAuthRef", json!({"namespace": "ns", "name": "key"})),
        ("resources", json!({"limits": {"cpu": "1m"}})),
        ("actionSource", json!("configmap")),
    ] {
        let mut world = World::with_cluster();
        world.ask("o", |spec| spec.paused = true);
        world.settle();
        world.change(ObjectKind::Operation, "", "o", &json!({"spec": {field: value, "paused": null}}));
        world.settle();
        assert_eq!(world.status("o")["status"], "Failed", "{field}");
        assert!(reason(&world, "o").starts_with("its spec was changed while it waited"), "{field}");
        assert!(world.jobs().is_empty(), "{field}");
    }
}

#[test]
fn the_deadline_can_be_changed_while_the_operation_waits() {
    let mut world = World::with_cluster();
    world.ask("o", |spec| spec.paused = true);
    world.settle();
    let patch = json!({"spec": {"activeDeadlineSeconds": 60, "paused": null}});
    world.change(ObjectKind::Operation, "", "o", &patch);
    world.settle();
    assert_eq!(world.status("o")["status"], "Running");
}
