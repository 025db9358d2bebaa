//! Contract B: the operations of a `KubernetesCluster`.

use serde_json::{Value, json};

use crate::QueueKey;
use crate::names::{DERIVED_UID_LABEL, OPERATION_LABEL};
use crate::testing::World;
use crate::write::{Change, ObjectKind, Write};

pub(super) const NAME: &str = "test-cluster";
pub(super) const STATE: &str = "default-test-cluster-state";
pub(super) const KNOWN_HOSTS: &str = "default-test-cluster-known-hosts";

pub(super) fn list(all: &[&str]) -> Value {
    all.iter().map(|ip| json!({"ip": ip})).collect()
}

pub(super) fn spec(nodes: &[&str]) -> Value {
    json!({"cluster": {
        "masterList": list(&["10.0.0.1", "10.0.0.3"]), "nodeList": list(nodes), "etcdList": list(&["10.0.0.1"]),
        "authConfig": {"username": "root", "password": "hunter2"}}})
}

pub(super) fn world(nodes: &[&str]) -> World {
    let queue_key = QueueKey::KubernetesCluster { namespace: "default".into(), name: NAME.into() };
    let mut world = World::new(queue_key);
    world.put(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        json!({"spec": spec(nodes), "metadata": {"finalizers": ["other/one"]}}),
    );
    world
}

pub(super) fn object(world: &World) -> &Value {
    world.get(ObjectKind::KubernetesCluster, "default", NAME)
}

pub(super) fn phase(world: &World) -> String {
    object(world)["status"]["phase"].as_str().unwrap_or_default().to_owned()
}

pub(super) fn wanted(world: &World) -> String {
    object(world)["metadata"]["annotations"]["app.kubernetes.io/operation"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// The only running Job.
pub(super) fn job(world: &World) -> Value {
    let all = world.all::<k8s_openapi::api::batch::v1::Job>(ObjectKind::Job);
    let live: Vec<_> = all.iter().filter(|job| job.status.is_none()).collect();
    assert_eq!(live.len(), 1, "one Job");
    json!(live[0].as_ref())
}

pub(super) fn env(job: &Value, name: &str) -> String {
    let all = job["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    let found = all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name} is missing"));
    found["value"].as_str().unwrap().to_owned()
}

pub(super) fn ends(world: &mut World, condition: &str) {
    let name = job(world)["metadata"]["name"].as_str().unwrap().to_owned();
    world.now += k8s_openapi::jiff::SignedDuration::from_secs(60);
    world.job_says(&name, condition);
    world.settle();
}

pub(super) fn running(nodes: &[&str]) -> World {
    let mut world = world(nodes);
    world.settle();
    saved(&mut world);
    ends(&mut world, "Complete");
    assert_eq!(phase(&world), "Running");
    world
}

/// Saves the state, as the runner does before its first change of a host.
pub(super) fn saved(world: &mut World) {
    world.change(ObjectKind::Secret, "default", STATE, &json!({"stringData": {"state.tar.zst": "keys"}}));
}

pub(super) fn scaled(world: &mut World, nodes: &[&str]) {
    let generation = object(world)["metadata"]["generation"].as_i64().unwrap() + 1;
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"spec": spec(nodes), "metadata": {"generation": generation}}),
    );
    world.settle();
}

#[test]
fn b10_b11_b12_b13_creating_is_one_job_after_the_finalizer_and_without_secrets() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    assert_eq!(phase(&world), "Prechecking");
    let order: Vec<_> = world.written.iter().map(|write| write.target.kind).collect();
    let first = |kind| order.iter().position(|one| *one == kind).unwrap();
    assert!(
        first(ObjectKind::KubernetesCluster) < first(ObjectKind::Operation)
            && first(ObjectKind::Operation) < first(ObjectKind::Job),
        "{order:?}"
    );
    let finalizers = &object(&world)["metadata"]["finalizers"];
    assert_eq!(*finalizers, json!(["other/one", "kubernetescluster.ecs.yun.com/test-cluster"]));
    let job = job(&world);
    let name = job["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("create-default-test-cluster-job-") && name.len() == 32 + 5, "{name}");
    assert_eq!(object(&world)["status"]["jobName"], name);
    assert_eq!(
        (&job["spec"]["backoffLimit"], &job["spec"]["activeDeadlineSeconds"]),
        (&json!(0), &json!(600))
    );
    assert_eq!(job["metadata"]["ownerReferences"][0]["kind"], "KubernetesCluster");
    let maps: Vec<_> = world.objects.keys().filter(|target| target.kind == ObjectKind::ConfigMap).collect();
    let [known_hosts, config] = maps[..] else { panic!("{maps:?}") };
    assert_eq!(known_hosts.name, KNOWN_HOSTS);
    assert!(config.name.starts_with("kube-creating-"), "{config:?}");
    assert_eq!(world.objects[config]["data"]["job-name"], name);
    assert_eq!(env(&job, "MASTER_HOSTS"), "10.0.0.1,10.0.0.3");
    assert_eq!(env(&job, "NODE_HOSTS"), "10.0.0.2");
    assert_eq!(
        (env(&job, "OPERATION"), env(&job, "CLUSTER_NAME"), env(&job, "CLUSTER_NAMESPACE")),
        ("creating".into(), NAME.into(), "default".into())
    );
    assert!(env(&job, "HOSTS_YAML").contains("    kube-node:\n      hosts:\n        10.0.0.2: \n"));
    for (target, value) in &world.objects {
        let shows = matches!(target.kind, ObjectKind::Secret | ObjectKind::KubernetesCluster)
            || !value.to_string().contains("hunter2");
        assert!(shows, "{target:?} shows the password");
    }
    let volumes = job["spec"]["template"]["spec"]["volumes"].to_string();
    assert!(volumes.contains("256"), "mode 0400: {volumes}");
}

#[test]
fn b9_b15_phases_follow_each_other_and_what_was_applied_is_kept_without_secrets() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    let operation = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
    world.change(ObjectKind::Operation, "", &operation, &json!({"status": {
        "steps": {"done": 9, "total": 27, "current": "etcd on h4", "text": "9/27"},
        "conditions": [{"type": "Prechecked", "status": "True", "reason": "Fit", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}));
    world.settle();
    assert_eq!(
        (phase(&world).as_str(), &object(&world)["status"]["step"]),
        ("Creating", &json!("9/27 etcd on h4"))
    );
    saved(&mut world);
    ends(&mut world, "Complete");
    assert_eq!((phase(&world), wanted(&world)), ("Running".into(), "create-finished".into()));
    let status = &object(&world)["status"];
    assert_eq!(status["kubeconfigSecret"]["name"], "default-test-cluster-kubeconfig");
    assert!(status["operation"].is_null());
    let ready = status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Ready").unwrap();
    assert_eq!((&ready["status"], &ready["observedGeneration"]), (&json!("True"), &json!(1)));
    let applied = object(&world)["metadata"]["annotations"]["app.kubernetes.io/spec"].as_str().unwrap();
    assert!(applied.contains("10.0.0.2") && !applied.contains("hunter2"));
    assert_eq!(world.settle(), 0, "B31 and rest");
}

#[test]
fn b20_b21_b22_b23_workers_come_and_go_with_one_job_each() {
    let mut world = running(&["10.0.0.2"]);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    let up = job(&world);
    assert!(up["metadata"]["name"].as_str().unwrap().starts_with("scale-up-default-test-cluster-job-"));
    assert_eq!((env(&up, "NODE_HOSTS"), env(&up, "OPERATION")), ("10.0.0.4".into(), "scaling-up".into()));
    ends(&mut world, "Complete");
    assert_eq!((phase(&world), wanted(&world)), ("Running".into(), "scale-up-finished".into()));
    scaled(&mut world, &["10.0.0.2"]);
    assert_eq!(
        (env(&job(&world), "NODE_HOSTS"), env(&job(&world), "OPERATION")),
        ("10.0.0.4".into(), "scaling-down".into())
    );
    ends(&mut world, "Failed");
    assert_eq!((phase(&world), wanted(&world)), ("Failed".into(), "scale-down-failed".into()));
    let applied = object(&world)["metadata"]["annotations"]["app.kubernetes.io/spec"].as_str().unwrap();
    assert!(applied.contains("10.0.0.4"), "a failed spec is not stored as applied");
    let jobs = world.jobs().len();
    world.settle();
    assert_eq!(world.jobs().len(), jobs, "no retry was requested");
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"metadata": {"annotations": {"app.kubernetes.io/operation": "scaling-down"}}}),
    );
    world.settle();
    ends(&mut world, "Complete");
    assert_eq!(phase(&world), "Running");
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"metadata": {"annotations": {"app.kubernetes.io/operation": "scaling-up"}}}),
    );
    world.settle();
    assert_eq!(
        (wanted(&world), phase(&world)),
        ("scale-up-finished".into(), "Running".into()),
        "B23: nothing to do, no Job"
    );
}

#[test]
fn replaced_workers_are_added_before_others_are_removed() {
    let mut world = running(&["10.0.0.2"]);
    scaled(&mut world, &["10.0.0.4"]);
    assert_eq!(env(&job(&world), "OPERATION"), "scaling-up");
    ends(&mut world, "Complete");
    assert_eq!(
        (env(&job(&world), "OPERATION"), env(&job(&world), "NODE_HOSTS")),
        ("scaling-down".into(), "10.0.0.2".into())
    );
    ends(&mut world, "Complete");
    assert_eq!(phase(&world), "Running");
}

#[test]
fn b24_other_masters_an_unknown_version_and_the_last_worker_are_refused_by_name() {
    for (patch, said) in [
        (json!({"masterList": [{"ip": "10.0.0.9"}]}), "one master of the cluster must stay"),
        (json!({"masterList": list(&["10.0.0.1", "10.0.0.3", "10.0.0.2"])}), "10.0.0.2 has another role"),
        (json!({"etcdList": [{"ip": "10.0.0.9"}]}), "spec.cluster.etcdList"),
        (json!({"kubeVersion": "v1.99.0"}), "spec.cluster.kubeVersion: v1.99.0 is not in the catalogue"),
        (json!({"nodeList": []}), "the last worker"),
    ] {
        let mut world = running(&["10.0.0.2"]);
        let jobs = world.jobs().len();
        world.change(
            ObjectKind::KubernetesCluster,
            "default",
            NAME,
            &json!({"spec": {"cluster": patch}, "metadata": {"generation": 2}}),
        );
        world.settle();
        assert_eq!((phase(&world), world.jobs().len()), ("Running".into(), jobs));
        let reason = object(&world)["status"]["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains(said), "{reason}");
        assert_eq!(world.settle(), 0);
    }
}

#[test]
fn b17_b29_b33_a_failure_says_why_and_a_retry_makes_a_new_operation() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    let operation = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
    world.change(ObjectKind::Operation, "", &operation, &json!({"status": {"conditions": [{"type": "Prechecked", "status": "False",
        "reason": "Unfit", "message": "10.0.0.2 : kernel version is minor < 3.10", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}));
    ends(&mut world, "Failed");
    assert_eq!((phase(&world), wanted(&world)), ("Failed".into(), "create-failed".into()));
    let reason = object(&world)["status"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("[precheck] failed with:") && reason.contains("10.0.0.2 : "), "{reason}");
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"metadata": {"annotations": {"app.kubernetes.io/operation": "creating"}}}),
    );
    world.settle();
    assert_eq!(phase(&world), "Prechecking");
    assert!(object(&world)["status"]["reason"].is_null(), "B30");
    let name = job(&world)["metadata"]["name"].as_str().unwrap().to_owned();
    let now = world.now.to_string();
    world.change(
        ObjectKind::Job,
        "default",
        &name,
        &json!({"status": {"conditions": [{"type": "Failed", "status": "True",
        "reason": "DeadlineExceeded", "message": "", "lastTransitionTime": now}]}}),
    );
    world.settle();
    assert_eq!(object(&world)["status"]["reason"], "the [creating] job running timeout(>600s)");
}

#[test]
fn b26_b27_b28_deleting_takes_the_cluster_down_and_a_failure_is_named() {
    let mut world = running(&["10.0.0.2"]);
    let now = world.now.to_string();
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"metadata": {"deletionTimestamp": now}}),
    );
    world.settle();
    assert_eq!(phase(&world), "Terminating");
    let down = job(&world);
    assert!(down["metadata"]["name"].as_str().unwrap().starts_with("delete-default-test-cluster-job-"));
    assert!(down["metadata"]["ownerReferences"].is_null());
    assert_eq!(
        (&down["spec"]["ttlSecondsAfterFinished"], env(&down, "OPERATION")),
        (&json!(3600), "terminating".into())
    );
    ends(&mut world, "Failed");
    assert_eq!((phase(&world), wanted(&world)), ("Failed".into(), "terminate-failed".into()));
    let conditions = object(&world)["status"]["conditions"].as_array().unwrap();
    let blocker = conditions.iter().find(|one| one["type"] == "Deleting").unwrap();
    assert_eq!(blocker["reason"], "TeardownFailed");
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"metadata": {"annotations": {"app.kubernetes.io/operation": "terminating"}}}),
    );
    world.settle();
    ends(&mut world, "Complete");
    assert_eq!(object(&world)["metadata"]["finalizers"], json!(["other/one"]), "other finalizers stay");
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &json!({"metadata": {"finalizers": null}}));
    world.objects.retain(|target, _| target.kind != ObjectKind::KubernetesCluster);
    world.settle();
    assert!(
        world.all::<kubeon_api::ClusterOperation>(ObjectKind::Operation).is_empty(),
        "its operations are deleted"
    );
}

#[test]
fn the_removal_of_an_ended_job_changes_nothing() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    assert_eq!(job(&world)["spec"]["ttlSecondsAfterFinished"], 604_800);
    saved(&mut world);
    ends(&mut world, "Complete");
    let before = object(&world)["status"].clone();
    world.now += k8s_openapi::jiff::SignedDuration::from_hours(24);
    world.objects.retain(|target, _| target.kind != ObjectKind::Job);
    assert_eq!(world.settle(), 0);
    assert_eq!(object(&world)["status"], before);
    let mut grown = world.clone();
    scaled(&mut grown, &["10.0.0.2", "10.0.0.4"]);
    assert_eq!(job(&grown)["spec"]["ttlSecondsAfterFinished"], 604_800);
    ends(&mut grown, "Complete");
    assert_eq!(phase(&grown), "Running");
    let now = world.now.to_string();
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"metadata": {"deletionTimestamp": now}}),
    );
    world.settle();
    assert_eq!(env(&job(&world), "OPERATION"), "terminating");
}

#[test]
fn deleting_ends_what_works_and_protection_and_retain_are_kept() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    let now = world.now.to_string();
    let create = job(&world)["metadata"]["name"].as_str().unwrap().to_owned();
    saved(&mut world);
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"metadata": {"deletionTimestamp": now}}),
    );
    world.settle();
    assert_eq!(world.get(ObjectKind::Job, "default", &create)["spec"]["suspend"], true);
    world.job_says(&create, "Suspended");
    world.settle();
    assert_eq!(env(&job(&world), "OPERATION"), "terminating");
    let mut world = running(&["10.0.0.2"]);
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"metadata": {"deletionTimestamp": now}}),
    );
    for name in kubeon_api::labels::DELETION_PROTECTIONS {
        let mut world = world.clone();
        let protected = json!({"metadata": {"annotations": {name: "true"}}});
        world.change(ObjectKind::KubernetesCluster, "default", NAME, &protected);
        world.settle();
        assert_eq!(phase(&world), "Running", "{name}");
        assert!(object(&world)["status"]["reason"].as_str().unwrap().contains(name));
    }
    let protected = json!({"metadata": {"annotations": {kubeon_api::labels::DELETION_PROTECTION: "true"}}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &protected);
    world.settle();
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"spec": {"deletionPolicy": "Retain"}}),
    );
    let jobs = world.jobs().len();
    world.settle();
    assert_eq!(object(&world)["metadata"]["finalizers"], json!(["other/one"]));
    assert_eq!(world.jobs().len(), jobs, "the hosts stay");
}

#[test]
fn b42_b43_killed_anywhere_there_is_one_operation_one_job_one_finalizer() {
    for killed_after in 0..13 {
        let mut world = world(&["10.0.0.2"]);
        world.settle_within(killed_after);
        world.settle();
        assert_eq!(world.jobs().len(), 1, "killed after {killed_after}");
        assert_eq!(world.all::<kubeon_api::ClusterOperation>(ObjectKind::Operation).len(), 1);
        assert_eq!(object(&world)["metadata"]["finalizers"].as_array().unwrap().len(), 2);
        let name = world.jobs().remove(0);
        world.job_says(&name, "Complete");
        world.settle_within(killed_after);
        world.settle();
        assert_eq!(phase(&world), "Running", "killed after {killed_after}");
    }
}

#[test]
fn a_paused_cluster_is_not_changed() {
    let mut world = world(&["10.0.0.2"]);
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &json!({"spec": {"paused": true}}));
    world.settle();
    assert!(world.jobs().is_empty());
    assert!(object(&world)["status"]["reason"].as_str().unwrap().contains("paused"));
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &json!({"spec": {"paused": null}}));
    world.settle();
    assert_eq!(world.jobs().len(), 1);
}

#[test]
fn a_paused_cluster_blocks_a_claimed_operation_that_waits() {
    let mut world = world(&["10.0.0.2"]);
    let auth = json!({"username": "root", "password": null, "credentialsRef": {"name": "login"}});
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"spec": {"cluster": {"authConfig": auth}}}),
    );
    world.settle();
    let operation = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
    assert!(world.status(&operation)["reason"].as_str().unwrap().contains("login not found"), "it waits");
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &json!({"spec": {"paused": true}}));
    world.put(ObjectKind::Secret, "default", "login", json!({"stringData": {"password": "hunter2"}}));
    world.settle();
    assert!(world.jobs().is_empty(), "paused means that no host is touched");
    assert_eq!(world.status(&operation)["reason"], "paused: spec.paused of the KubernetesCluster is true");
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &json!({"spec": {"paused": null}}));
    world.settle();
    assert_eq!((world.jobs().len(), env(&job(&world), "OPERATION")), (1, "creating".into()));
}

/// A running operation of the cluster that is not claimed.
fn unclaimed(world: &mut World) {
    let spec = crate::testing::operation("stray", 0).spec;
    let operation = json!({
        "metadata": {"labels": {DERIVED_UID_LABEL: "uid-test-cluster"}},
        "spec": spec,
        "status": {"status": "Running", "jobRef": {"namespace": "default", "name": "stray-job"}},
    });
    world.put(ObjectKind::Operation, "", "stray", operation);
}

#[test]
fn a_job_outside_the_cache_is_read_before_the_next_operation_begins() {
    let mut world = running(&["10.0.0.2"]);
    unclaimed(&mut world);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    assert_eq!(world.status("stray")["status"], "Failed");
    assert!(world.status("stray")["reason"].as_str().unwrap().contains("was deleted"));
    let is_end = |write: &Write| write.target.name == "stray" && matches!(write.change, Change::Status(_));
    let is_next = |write: &Write| write.makes_a_job() && write.target.name.starts_with("scale-up-");
    let at = |found: Option<usize>| found.unwrap_or_else(|| panic!("{:?}", world.written));
    let end = at(world.written.iter().position(is_end));
    assert!(end < at(world.written.iter().position(is_next)), "one after the other");
}

#[test]
fn no_operation_begins_before_the_job_of_an_unclaimed_operation_has_ended() {
    let mut world = running(&["10.0.0.2"]);
    unclaimed(&mut world);
    let labels = json!({OPERATION_LABEL: "uid-stray"});
    let job = json!({"metadata": {"labels": labels}, "spec": {"template": {}}});
    world.put(ObjectKind::Job, "default", "stray-job", job);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    assert_eq!(world.get(ObjectKind::Job, "default", "stray-job")["spec"]["suspend"], true);
    let scales = |world: &World| world.jobs().iter().any(|name| name.starts_with("scale-up-"));
    assert!(!scales(&world), "its pod may still work");
    world.job_says("stray-job", "Suspended");
    world.settle();
    assert!(scales(&world));
}
