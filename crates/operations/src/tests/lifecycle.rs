//! Contract A, operation lifecycle and history.

use kubeon_api::kubeonkube::{Action, ActionSource, HookAction};
use serde_json::json;

use crate::testing::World;
use crate::write::ObjectKind;

fn started() -> World {
    let mut world = World::with_cluster();
    world.ask("myops", |_| {});
    world.settle();
    world
}

const JOB: &str = "kubeonkube-myops-job";

#[test]
fn a13_a25_a26_an_operation_becomes_one_job_with_copies_of_its_inputs() {
    let mut world = started();
    let job = world.get(ObjectKind::Job, "ns", JOB).clone();
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["volumeMounts"].as_array().unwrap().len(), 4);
    let status = world.status("myops");
    assert_eq!((&status["status"], &status["jobRef"]["name"]), (&json!("Running"), &json!(JOB)));
    let inputs = status["inputs"].as_array().unwrap().clone();
    assert_eq!(inputs.len(), 2);
    let copy = world.get(ObjectKind::ConfigMap, "ns", inputs[0]["name"].as_str().unwrap());
    assert_eq!((&copy["data"]["hosts.yml"], &copy["immutable"]), (&json!("all: {}\n"), &json!(true)));
    assert!(copy["data"]["entrypoint.sh"].as_str().unwrap().contains("sleep 10"));
    let key = world.get(ObjectKind::Secret, "ns", inputs[1]["name"].as_str().unwrap());
    assert_eq!(
        (&key["type"], &key["metadata"]["ownerReferences"][0]["kind"]),
        (&json!("kubernetes.io/ssh-auth"), &json!("ClusterOperation"))
    );
    let meta = &world.get(ObjectKind::Operation, "", "myops")["metadata"];
    assert_eq!(meta["labels"]["clusterName"], "sample");
    assert_eq!(meta["ownerReferences"].as_array().unwrap().len(), 1);
    assert_eq!(meta["ownerReferences"][0]["uid"], "uid-sample");
    // Later changes of the originals have no effect.
    world.change(ObjectKind::ConfigMap, "ns", "hosts", &json!({"data": {"hosts.yml": "all: {hosts: {}}\n"}}));
    assert_eq!(world.settle(), 0);
}

#[test]
fn a20_a21_a22_a_change_while_it_runs_is_marked_and_changes_nothing() {
    let mut world = World::with_cluster();
    world.ask("myops", |spec| {
        spec.main =
            Action { action_type: "playbook".into(), action: "scale.yml".into(), ..Action::default() };
        spec.image = "wangzhichidocker/kubeonkube:v0.1".into();
    });
    world.settle();
    assert_eq!(world.status("myops")["digest"], "4dbdd009a6bf42e7d43abfa842a3d8d0");
    assert!(world.status("myops")["hasModified"].is_null());
    world.change(ObjectKind::Operation, "", "myops", &json!({"spec": {"action": "reset.yml"}}));
    assert_eq!(world.settle(), 1);
    let status = world.status("myops");
    assert_eq!((&status["hasModified"], &status["status"]), (&json!(true), &json!("Running")));
    assert_eq!(status["digest"], "4dbdd009a6bf42e7d43abfa842a3d8d0");
    let job = world.get(ObjectKind::Job, "ns", JOB);
    assert_eq!(job["spec"]["template"]["spec"]["serviceAccountName"], "kubeon-runner");
}

/// Contract A's digest is unchanged. Changes of fields outside it are reported as well, from the creation of
/// the Job on.
#[test]
fn a_change_that_the_digest_does_not_know_is_marked_too() {
    let change = json!({"spec": {"extraArgs": "--limit=all"}});
    let mut world = started();
    let digest = world.status("myops")["digest"].clone();
    world.change(ObjectKind::Operation, "", "myops", &change);
    assert_eq!(world.settle(), 1);
    assert_eq!(
        (&world.status("myops")["hasModified"], &world.status("myops")["digest"]),
        (&json!(true), &digest)
    );
    assert_eq!(world.settle(), 0, "once");
    let claimed = |most| {
        let mut world = World::with_cluster();
        world.ask("myops", |_| {});
        world.settle_within(most);
        world
    };
    let mut world = (0..8).map(claimed).find(|world| !world.jobs().is_empty()).unwrap();
    world.change(ObjectKind::Operation, "", "myops", &change);
    world.settle();
    assert_eq!(world.status("myops")["hasModified"], true, "the spec was changed after the Job was created");
}

#[test]
fn how_long_it_took_stands_beside_its_end() {
    let mut world = started();
    world.now += k8s_openapi::jiff::SignedDuration::from_secs(312);
    world.job_says(JOB, "Complete");
    world.settle();
    assert_eq!(world.status("myops")["took"], "5m12s");
}

#[test]
fn a28_a32_the_jobs_end_is_the_operations_end() {
    for (condition, word) in [
        ("Complete", "Succeeded"),
        ("Failed", "Failed"),
        ("FailureTarget", "Failed"),
        ("Suspended", "Failed"),
    ] {
        let mut world = started();
        world.now += k8s_openapi::jiff::SignedDuration::from_secs(100);
        world.job_says(JOB, condition);
        let end = world.now.to_string();
        world.now += k8s_openapi::jiff::SignedDuration::from_secs(1000);
        world.settle();
        let status = world.status("myops");
        assert_eq!(status["status"], word, "{condition}");
        if condition != "Suspended" {
            assert_eq!(status["endTime"], json!(end), "the operation ends with its Job");
        }
        assert_eq!(
            world.get(ObjectKind::Operation, "", "myops")["metadata"]["labels"]["hasCompleted"],
            "done"
        );
        let history = &world.get(ObjectKind::Cluster, "", "sample")["status"]["conditions"];
        assert_eq!((&history[0]["clusterOps"], &history[0]["status"]), (&json!("myops"), &json!(word)));
        assert_eq!(world.settle(), 0, "A29: an ended operation is not written again");
    }
    let mut world = started();
    world.objects.retain(|target, _| target.kind != ObjectKind::Job);
    world.settle();
    assert_eq!(world.status("myops")["reason"], format!("its Job ns,{JOB} was deleted"));
    assert!(world.jobs().is_empty(), "A30: no second Job");
}

#[test]
fn as_soon_as_an_operation_ends_its_log_is_persisted_because_the_pod_may_go() {
    for (late, next) in [(0, "kubeonkube-myops-job-log"), (60, "myops")] {
        let mut world = started();
        succeeded_pod(&mut world, "myops");
        world.job_says(JOB, "Complete");
        world.settle_within(1);
        assert_eq!(world.status("myops")["status"], "Succeeded");
        world.now += k8s_openapi::jiff::SignedDuration::from_secs(late);
        world.written.clear();
        world.settle_within(1);
        assert_eq!(world.written[0].target.name, next, "after {late} s");
    }
}

#[test]
fn a_shell_operation_needs_at_most_eleven_writes() {
    let mut world = World::with_cluster();
    world.settle();
    world.ask("myops", |_| {});
    let start = world.settle();
    succeeded_pod(&mut world, "myops");
    world.job_says(JOB, "Complete");
    let end = world.settle();
    assert!(start + end <= 11, "{start} + {end}");
    let log = world.get(ObjectKind::ConfigMap, "ns", "kubeonkube-myops-job-log");
    assert_eq!(log["data"]["log"], "words of the pod\n");
}

/// A pod of the Job of an operation, which ended.
pub(super) fn succeeded_pod(world: &mut World, operation: &str) {
    let job = format!("kubeonkube-{operation}-job");
    world.put(ObjectKind::Log, "ns", "pod", json!({
        "metadata": {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": format!("uid-{job}")}],
                     "labels": {"kubeon.io/operation": format!("uid-{operation}")}},
        "status": {"phase": "Succeeded", "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}]}}));
}

#[test]
fn a33_a_job_that_was_created_before_a_crash_is_used_after_it() {
    for killed_after in 0..8 {
        let mut world = World::with_cluster();
        world.ask("myops", |_| {});
        world.settle_within(killed_after);
        world.settle();
        assert_eq!(world.jobs(), [JOB], "killed after write {killed_after}");
        assert_eq!(world.status("myops")["status"], "Running");
        world.job_says(JOB, "Complete");
        world.settle_within(killed_after);
        world.settle();
        assert_eq!(world.status("myops")["status"], "Succeeded");
        assert_eq!(
            world.get(ObjectKind::Operation, "", "myops")["metadata"]["labels"]["hasCompleted"],
            "done"
        );
    }
}

#[test]
fn a_job_that_ended_before_its_start_was_reported_is_reported_in_one_write() {
    let claimed = |most| {
        let mut world = World::with_cluster();
        world.ask("myops", |_| {});
        world.settle_within(most);
        world
    };
    let mut world = (0..8).map(claimed).find(|world| !world.jobs().is_empty()).unwrap();
    assert!(world.status("myops").is_null(), "nothing was reported yet");
    world.written.clear();
    world.job_says(JOB, "Complete");
    world.settle();
    let reports = world.written.iter().filter(|write| {
        write.target.kind == ObjectKind::Operation && matches!(write.change, crate::write::Change::Status(_))
    });
    assert_eq!(reports.count(), 1);
    let status = world.status("myops");
    assert_eq!((&status["status"], &status["jobRef"]["name"]), (&json!("Succeeded"), &json!(JOB)));
    assert_eq!(status["inputs"].as_array().unwrap().len(), 2);
    assert!(!status["startTime"].is_null() && !status["endTime"].is_null());
}

#[test]
fn a35_a_playbook_from_a_configmap_is_mounted_where_it_is_looked_for() {
    let mut world = World::with_cluster();
    world.put(
        ObjectKind::ConfigMap,
        "default",
        "mine",
        json!({"data": {"myplaybook.yml": "- hosts: all\n", "hello.sh": "echo hi\n"}}),
    );
    let source = |kind: &str, file: &str| Action {
        action_type: kind.into(),
        action: file.into(),
        action_source: Some(ActionSource::Configmap),
        action_source_ref: Some(kubeon_api::DataRef::new("default", "mine")),
        ..Action::default()
    };
    world.ask("myops", |spec| {
        spec.main = source("playbook", "myplaybook.yml");
        spec.pre_hook = vec![HookAction { what: source("shell", "hello.sh"), when: None }];
        spec.post_hook = spec.pre_hook.clone();
    });
    world.settle();
    let job = world.get(ObjectKind::Job, "ns", JOB);
    let mounts = job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
    let paths: Vec<_> = mounts.iter().filter_map(|mount| mount["mountPath"].as_str()).collect();
    assert!(paths.contains(&"/kubespray/myplaybook.yml"), "{paths:?}");
    assert_eq!(paths.iter().filter(|path| **path == "/bin/hello.sh").count(), 1, "mounted once");
}

#[test]
fn a36_a37_the_history_lets_the_oldest_go_and_is_shown_newest_first() {
    let mut world = World::with_cluster();
    world.settings.history_limit = 2;
    for name in ["o1", "o2", "o3", "o4"] {
        world.ask(name, |_| {});
        world.settle();
        if name != "o4" {
            world.job_says(&format!("kubeonkube-{name}-job"), "Complete");
            world.settle();
        }
    }
    let cluster = world.get(ObjectKind::Cluster, "", "sample");
    let shown: Vec<_> = cluster["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["clusterOps"].as_str().unwrap())
        .collect();
    assert_eq!(shown, ["o4", "o3", "o2"], "two ended operations, and the running one");
    assert_eq!(cluster["status"]["latest"], "o4");
}

/// As a tool does that installs from Git.
#[test]
fn an_operation_that_the_history_removed_does_not_run_again() {
    let mut world = World::with_cluster();
    world.settings.history_limit = 1;
    for (name, condition) in [("o1", "Complete"), ("o2", "Failed"), ("o3", "Complete")] {
        world.ask(name, |_| {});
        world.settle();
        world.job_says(&format!("kubeonkube-{name}-job"), condition);
        world.settle();
    }
    let exists = |world: &World, name: &str| {
        world.objects.contains_key(&crate::ObjectRef::new(ObjectKind::Operation, "", name))
    };
    assert_eq!(["o1", "o2", "o3"].map(|name| exists(&world, name)), [false, false, true]);
    let removed = world.get(ObjectKind::Cluster, "", "sample")["status"]["removed"].clone();
    let named: Vec<_> =
        removed.as_array().unwrap().iter().map(|entry| (&entry["name"], &entry["result"])).collect();
    assert_eq!(named, [(&json!("o1"), &json!("Succeeded")), (&json!("o2"), &json!("Failed"))]);

    world.settings.history_limit = 5;
    let jobs = world.jobs().len();
    world.ask("o1", |_| {});
    world.ask("o2", |_| {});
    world.settle();
    assert_eq!(world.jobs().len(), jobs, "neither runs again");
    assert_eq!(
        (&world.status("o1")["status"], &world.status("o2")["status"]),
        (&json!("Succeeded"), &json!("Failed"))
    );
    assert!(
        world.status("o1")["reason"].as_str().unwrap().contains("it ran before"),
        "{}",
        world.status("o1")
    );

    world.objects.remove(&crate::ObjectRef::new(ObjectKind::Operation, "", "o2"));
    world.objects.remove(&crate::ObjectRef::new(ObjectKind::Job, "ns", "kubeonkube-o2-job"));
    world.ask("o2", |spec| spec.main.action = "another command".into());
    world.settle();
    assert_eq!(world.status("o2")["status"], "Running", "another spec is another operation");
}

/// As a backup does that has no status. A person who creates it again writes no such label.
#[test]
fn an_operation_that_was_restored_without_its_status_does_not_run_again() {
    let mut world = started();
    world.job_says(JOB, "Complete");
    world.settle();
    let (operation, job) = (
        crate::ObjectRef::new(ObjectKind::Operation, "", "myops"),
        crate::ObjectRef::new(ObjectKind::Job, "ns", JOB),
    );
    let mut restored = world.objects.remove(&operation).unwrap();
    world.objects.remove(&job);
    restored.as_object_mut().unwrap().remove("status");
    restored["metadata"]["uid"] = json!("uid-restored");
    world.put(ObjectKind::Operation, "", "myops", restored);
    world.settle();
    assert!(!world.objects.contains_key(&job));
    let status = world.status("myops");
    assert_eq!(status["status"], "Failed");
    assert!(status["reason"].as_str().unwrap().contains("hasCompleted=done"), "{status}");
    assert_eq!(world.settle(), 0);

    world.objects.remove(&operation);
    world.ask("myops", |_| {});
    world.settle();
    assert_eq!(world.status("myops")["status"], "Running");
}

#[test]
fn a17_annotations_reach_the_pod() {
    let mut world = World::with_cluster();
    world.ask("myops", |_| {});
    world.change(
        ObjectKind::Operation,
        "",
        "myops",
        &json!({"metadata": {"annotations": {
        "sidecar.istio.io/inject": "false", "kubectl.kubernetes.io/last-applied-configuration": "{}"}}}),
    );
    world.settle();
    let annotations = &world.get(ObjectKind::Job, "ns", JOB)["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["sidecar.istio.io/inject"], "false");
    assert!(annotations["kubectl.kubernetes.io/last-applied-configuration"].is_null());
    assert_eq!(annotations["kubeon.io/queue-key"], "cluster/sample");
}

/// A key or an inventory that a user wrote is not deleted with a Cluster that refers to it.
#[test]
fn a_cluster_owns_no_object_that_it_refers_to() {
    let mut world = World::with_cluster();
    let owner =
        |uid: &str| json!({"apiVersion": "v1", "kind": "X", "name": "x", "uid": uid, "controller": true});
    let owners = json!({"metadata": {"ownerReferences": [owner("u"), owner("uid-sample")]}});
    world.change(ObjectKind::ConfigMap, "ns", "vars", &owners);
    world.settle();
    let owners =
        |world: &World, kind, name: &str| world.get(kind, "ns", name)["metadata"]["ownerReferences"].clone();
    assert_eq!(owners(&world, ObjectKind::ConfigMap, "vars"), json!([owner("u")]));
    assert!(owners(&world, ObjectKind::ConfigMap, "hosts").is_null());
    assert!(owners(&world, ObjectKind::Secret, "key").is_null());
    assert_eq!(world.settle(), 0);
}
