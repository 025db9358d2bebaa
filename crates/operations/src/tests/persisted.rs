//! The persisted objects of a `KubernetesCluster`, and the credentials of its hosts.

use serde_json::{Value, json};

use super::kubernetes_cluster::{
    KNOWN_HOSTS, NAME, STATE, ends, env, job, object, running, saved, scaled, spec, world,
};
use crate::settings::Callback;
use crate::testing::World;
use crate::write::{ObjectKind, ObjectRef};

#[test]
fn what_outlives_a_job_is_there_before_it_and_changes_hands_with_each_operation() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    let keeper = |world: &World, kind, name: &str| {
        let meta = world.get(kind, "default", name)["metadata"].clone();
        assert_eq!(meta["labels"]["kubeon.io/cluster"], "default.test-cluster");
        let owners = meta["ownerReferences"].as_array().map_or(0, Vec::len);
        assert_eq!(owners, 0, "the teardown needs it");
        meta["annotations"]["kubeon.io/job"].as_str().unwrap().to_owned()
    };
    let order: Vec<_> = world.written.iter().map(|write| write.target.clone()).collect();
    let first = |kind, name: &str| {
        order.iter().position(|one| one.kind == kind && one.name.starts_with(name)).unwrap()
    };
    let create = job(&world)["metadata"]["name"].as_str().unwrap().to_owned();
    let kubeconfig = (ObjectKind::Secret, "default-test-cluster-kubeconfig");
    let all = [(ObjectKind::Secret, STATE), kubeconfig, (ObjectKind::ConfigMap, KNOWN_HOSTS)];
    for (kind, name) in all {
        assert!(first(kind, name) < first(ObjectKind::Job, "create-"), "{name}");
        assert_eq!(keeper(&world, kind, name), create);
    }
    assert!(
        world.get(ObjectKind::ConfigMap, "default", KNOWN_HOSTS)["data"].is_null(),
        "until a runner writes"
    );
    saved(&mut world);
    ends(&mut world, "Complete");
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    let up = job(&world)["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(up.starts_with("scale-up-"), "{up}");
    for (kind, name) in all {
        assert_eq!(keeper(&world, kind, name), up);
    }
    assert_eq!(world.get(ObjectKind::Secret, "default", STATE)["stringData"]["state.tar.zst"], "keys");
}

#[test]
fn conditions_have_the_generation_of_the_operation() {
    let mut world = running(&["10.0.0.2"]);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    let later = json!({"metadata": {"generation": 3}, "spec": spec(&["10.0.0.2", "10.0.0.4", "10.0.0.5"])});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &later);
    let ready = |world: &World| {
        let conditions = object(world)["status"]["conditions"].as_array().unwrap();
        let ready = conditions.iter().find(|one| one["type"] == "Ready").unwrap();
        (ready["status"].clone(), ready["observedGeneration"].clone())
    };
    let name = job(&world)["metadata"]["name"].as_str().unwrap().to_owned();
    world.job_says(&name, "Complete");
    world.settle();
    assert_eq!(ready(&world), (json!("True"), json!(2)), "the third worker is not added yet");
    ends(&mut world, "Complete");
    assert_eq!(ready(&world), (json!("True"), json!(3)));
    assert_eq!(object(&world)["status"]["ready"], "5/5");
}

#[test]
fn a_secret_that_is_not_the_operators_is_named_and_left_alone() {
    let mut world = world(&["10.0.0.2"]);
    world.put(ObjectKind::Secret, "default", STATE, json!({"stringData": {"mine": "x"}}));
    world.settle();
    assert!(world.jobs().is_empty());
    let operation = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
    let reason = world.status(&operation)["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains(STATE) && reason.contains("kubeon.io/cluster=default.test-cluster"), "{reason}");
    assert!(world.get(ObjectKind::Secret, "default", STATE)["metadata"]["labels"].is_null());
}

/// A user may know the SSH keys of the hosts before the first connection.
#[test]
fn known_hosts_of_a_user_are_used_when_their_label_names_the_cluster() {
    let mut world = world(&["10.0.0.2"]);
    let lines = json!({"data": {"known_hosts": "10.0.0.1 ssh-ed25519 AAAA\n"}});
    world.put(ObjectKind::ConfigMap, "default", KNOWN_HOSTS, lines);
    world.settle();
    let operation = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
    let reason = world.status(&operation)["reason"].as_str().unwrap().to_owned();
    assert!(world.jobs().is_empty() && reason.starts_with("ConfigMap default/"), "{reason}");
    let label = json!({"metadata": {"labels": {"kubeon.io/cluster": "default.test-cluster"}}});
    world.change(ObjectKind::ConfigMap, "default", KNOWN_HOSTS, &label);
    world.settle();
    let map = world.get(ObjectKind::ConfigMap, "default", KNOWN_HOSTS).clone();
    assert_eq!(map["data"]["known_hosts"], "10.0.0.1 ssh-ed25519 AAAA\n");
    assert_eq!(map["metadata"]["annotations"]["kubeon.io/job"], job(&world)["metadata"]["name"]);
}

#[test]
fn known_hosts_are_mounted_from_the_configmap_that_users_may_edit() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    let job = job(&world);
    let pod = &job["spec"]["template"]["spec"];
    let volume = json!({"name": "known-hosts", "configMap": {"name": KNOWN_HOSTS, "optional": true}});
    assert!(pod["volumes"].as_array().unwrap().contains(&volume), "{}", pod["volumes"]);
    let mount = json!({"name": "known-hosts", "mountPath": "/known-hosts", "readOnly": true});
    assert!(pod["containers"][0]["volumeMounts"].as_array().unwrap().contains(&mount));
    let operation = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
    let inputs = world.status(&operation)["inputs"].to_string();
    assert!(!inputs.contains(KNOWN_HOSTS), "the ConfigMap changes, so it is not an input: {inputs}");
}

#[test]
fn a_job_tells_a_listener_with_a_token_for_its_operation_alone() {
    let mut quiet = world(&["10.0.0.2"]);
    quiet.settle();
    assert!(!job(&quiet).to_string().contains("callback"), "there is no callback without a server");
    let mut world = world(&["10.0.0.2"]);
    let url = "https://gateway.example:8443".parse().unwrap();
    world.settings.callback = Some(Callback { url, authorities: Some("-----BEGIN CERTIFICATE-----".into()) });
    world.settle();
    let job = job(&world);
    let pod = &job["spec"]["template"]["spec"];
    let command = pod["containers"][0]["command"].as_array().unwrap();
    let flags = json!([
        "--callback-url=https://gateway.example:8443",
        "--callback-token-file=/callback/token",
        "--callback-ca=/conf/callback-ca.crt",
    ]);
    assert_eq!(json!(command[command.len() - 3..]), flags);
    let operation = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
    let audience = format!("kubeon-callback/uid-{operation}");
    let token = json!({"audience": audience, "expirationSeconds": 3600, "path": "token"});
    let volumes = pod["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == "callback").unwrap();
    assert_eq!(volume["projected"]["sources"], json!([{"serviceAccountToken": token}]));
    let conf = volumes.iter().find(|volume| volume["name"] == "conf").unwrap();
    let map = world.get(ObjectKind::ConfigMap, "default", conf["configMap"]["name"].as_str().unwrap());
    assert_eq!(map["data"]["callback-ca.crt"], "-----BEGIN CERTIFICATE-----");
}

fn pins(world: &mut World, message: &str, time: &str) {
    let operation = object(world)["status"]["operation"].as_str().unwrap().to_owned();
    let condition = json!({"type": "HostKeysPinned", "status": "True", "reason": "FirstContact", "message": message,
        "lastTransitionTime": time});
    world.change(ObjectKind::Operation, "", &operation, &json!({"status": {"conditions": [condition]}}));
}

fn reported_keys(world: &World) -> Vec<(ObjectKind, String)> {
    let reported = world.next().notices.into_iter().filter(|notice| notice.reason == "HostKeysPinned");
    reported.map(|notice| (notice.about.kind, notice.text)).collect()
}

#[test]
fn new_host_keys_are_reported_once() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    assert!(reported_keys(&world).is_empty());
    pins(&mut world, "1 new: 10.0.0.1 SHA256:abc", "2026-01-01T00:00:00Z");
    let text = "1 new: 10.0.0.1 SHA256:abc".to_owned();
    assert_eq!(
        reported_keys(&world),
        [(ObjectKind::KubernetesCluster, text.clone()), (ObjectKind::Operation, text.clone())]
    );
    world.settle();
    assert!(reported_keys(&world).is_empty());
    let conditions = object(&world)["status"]["conditions"].as_array().unwrap().clone();
    let shown = conditions.iter().find(|one| one["type"] == "HostKeysPinned").unwrap();
    assert_eq!((&shown["message"], &shown["observedGeneration"]), (&json!(text), &json!(1)));
    saved(&mut world);
    ends(&mut world, "Complete");
    // The line was removed, and the next operation that connects to the host reports it again.
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    pins(&mut world, "1 new: 10.0.0.1 SHA256:abc", "2026-01-01T01:00:00Z");
    let name = job(&world)["metadata"]["name"].as_str().unwrap().to_owned();
    world.job_says(&name, "Complete");
    let mut reported = Vec::new();
    while !world.next().is_done() {
        reported.extend(reported_keys(&world));
        for write in world.next().stages.concat() {
            world.write(&write);
        }
    }
    assert_eq!(
        reported.len(),
        2,
        "also when the Job ended before the operator observed the keys: {reported:?}"
    );
}

#[test]
fn a_cluster_without_a_saved_state_is_deleted_without_a_job() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    ends(&mut world, "Failed");
    let jobs = world.jobs().len();
    let now = world.now.to_string();
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"metadata": {"deletionTimestamp": now}}),
    );
    let messages: Vec<_> = world.next().notices.into_iter().map(|notice| notice.text).collect();
    assert!(
        messages.iter().any(|text| text.contains("nothing was ever written to its hosts")),
        "{messages:?}"
    );
    world.settle();
    assert_eq!(
        (world.jobs().len(), &object(&world)["metadata"]["finalizers"]),
        (jobs, &json!(["other/one"]))
    );
    let kept = |name: &str| [STATE, KNOWN_HOSTS].contains(&name);
    assert!(!world.objects.keys().any(|target| kept(&target.name)), "its persisted objects are deleted");
}

/// The next leader cannot see the objects that were deleted already.
#[test]
fn a_leader_that_ends_while_it_releases_a_cluster_is_followed_by_one_that_completes_it() {
    let mut before = world(&["10.0.0.2"]);
    before.settle();
    ends(&mut before, "Failed");
    let deletion = json!({"metadata": {"deletionTimestamp": before.now.to_string()}});
    before.change(ObjectKind::KubernetesCluster, "default", NAME, &deletion);
    let decided = before.next().stages.concat();
    assert_eq!(decided.len(), 1, "nothing is deleted before it: {decided:?}");
    before.write(&decided[0]);
    let writes = before.next().stages.concat();
    assert!(writes.len() > 1, "{writes:?}");
    for count in 0..writes.len() {
        let mut world = before.clone();
        for write in &writes[..count] {
            world.write(write);
        }
        world.settle();
        let finalizers = &object(&world)["metadata"]["finalizers"];
        assert_eq!(finalizers, &json!(["other/one"]), "after {count} of {} writes", writes.len());
    }
}

#[test]
fn an_applied_cluster_is_taken_down_without_its_state() {
    let mut world = running(&["10.0.0.2"]);
    world.objects.retain(|target, _| target.name != STATE);
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

fn deleted(world: &mut World) -> Vec<String> {
    let now = world.now.to_string();
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"metadata": {"deletionTimestamp": now}}),
    );
    let messages = world.next().notices.into_iter().map(|notice| notice.text).collect();
    world.settle();
    messages
}

/// The operator creates the Secret before the first Job, so a missing Secret was deleted by a user.
#[test]
fn a_state_that_was_deleted_after_a_job_began_blocks_the_deletion_and_is_reported() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    saved(&mut world);
    ends(&mut world, "Failed");
    let kept = world.objects.remove(&ObjectRef::new(ObjectKind::Secret, "default", STATE)).unwrap();
    let messages = deleted(&mut world);
    assert_eq!(
        object(&world)["metadata"]["finalizers"].as_array().unwrap().len(),
        2,
        "its hosts are not forgotten"
    );
    let blocker = object(&world)["status"]["conditions"].as_array().unwrap().clone();
    let blocker = blocker.iter().find(|one| one["type"] == "Deleting").unwrap();
    assert_eq!((&blocker["status"], &blocker["reason"]), (&json!("True"), &json!("StateMissing")));
    for words in [STATE, "kubeon.io/cluster=default.test-cluster", "Retain"] {
        assert!(blocker["message"].as_str().unwrap().contains(words), "{words} is missing in {blocker}");
        assert!(messages.iter().any(|text| text.contains(words)), "{words} is in no event: {messages:?}");
    }
    assert_eq!(world.settle(), 0);
    let mut back = world.clone();
    back.put(ObjectKind::Secret, "default", STATE, kept);
    back.settle();
    assert_eq!(env(&job(&back), "OPERATION"), "terminating", "after the Secret was restored");
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"spec": {"deletionPolicy": "Retain"}}),
    );
    world.settle();
    assert_eq!(object(&world)["metadata"]["finalizers"], json!(["other/one"]), "with Retain");
}

/// A new, empty state would mean that nothing was ever written to the hosts.
#[test]
fn a_creation_does_not_continue_without_the_state_of_the_first_job() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    saved(&mut world);
    ends(&mut world, "Failed");
    world.objects.retain(|target, _| target.name != STATE);
    let again = json!({"metadata": {"annotations": {"app.kubernetes.io/operation": "creating"}}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &again);
    let jobs = world.jobs().len();
    world.settle();
    assert_eq!(world.jobs().len(), jobs);
    let operation = object(&world)["status"]["operation"].as_str().unwrap();
    let reason = world.status(operation)["reason"].as_str().unwrap();
    assert!(reason.contains(STATE) && reason.contains("is missing"), "{reason}");
    deleted(&mut world);
    assert_eq!(object(&world)["metadata"]["finalizers"].as_array().unwrap().len(), 2);
}

fn with_secret(secret: Value) -> World {
    let mut world = world(&["10.0.0.2"]);
    let auth = json!({"username": "admin", "password": null, "credentialsRef": {"name": "login"}});
    world.change(
        ObjectKind::KubernetesCluster,
        "default",
        NAME,
        &json!({"spec": {"cluster": {"authConfig": auth}}}),
    );
    world.put(ObjectKind::Secret, "default", "login", secret);
    world.settle();
    world
}

const KEY: &str = "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n";

#[test]
fn a_secret_that_is_referred_to_is_mounted_and_not_told_to_the_program() {
    let world = with_secret(json!({"stringData": {"ssh-privatekey": KEY.trim_end()}}));
    let is_config =
        |target: &&ObjectRef| target.kind == ObjectKind::ConfigMap && target.name.starts_with("kube-");
    let config = world.objects.keys().find(is_config).unwrap();
    let desired: Value =
        serde_json::from_str(world.objects[config]["data"]["cluster.json"].as_str().unwrap()).unwrap();
    assert_eq!(desired["spec"]["cluster"]["authConfig"], json!({"username": "admin"}));
    let volumes = job(&world)["spec"]["template"]["spec"]["volumes"].as_array().unwrap().clone();
    let auth = volumes.iter().find(|volume| volume["name"] == "auth").unwrap();
    let copy = world.get(ObjectKind::Secret, "default", auth["secret"]["secretName"].as_str().unwrap());
    use base64::Engine as _;
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    assert_eq!(copy["data"], json!({"ssh-privatekey": encoded(KEY), "username": encoded("admin")}));
}

#[test]
fn the_account_of_a_secret_has_precedence_over_the_field() {
    let world = with_secret(json!({"stringData": {"ssh-privatekey": KEY.trim_end(), "username": "ops"}}));
    let is_config =
        |target: &&ObjectRef| target.kind == ObjectKind::ConfigMap && target.name.starts_with("kube-");
    let data = &world.objects[world.objects.keys().find(is_config).unwrap()]["data"];
    let desired: Value = serde_json::from_str(data["cluster.json"].as_str().unwrap()).unwrap();
    assert_eq!(desired["spec"]["cluster"]["authConfig"], json!({"username": "ops"}));
    let inventory = data["hosts.yml"].as_str().unwrap();
    assert!(
        !inventory.contains("ansible_user"),
        "the spec has the account, and the space is limited: {inventory}"
    );
}

/// Contract B, case 14.
#[test]
fn b14_a_secret_that_cannot_log_in_is_named() {
    let reason = |world: &World| {
        let operation = world.all::<kubeon_api::ClusterOperation>(ObjectKind::Operation).remove(0);
        operation.status.clone().unwrap().reason.unwrap()
    };
    let world = with_secret(json!({"stringData": {"ssh-privatekey": "ssh-ed25519 AAAA"}}));
    assert!(world.jobs().is_empty() && reason(&world).contains("this is a public key"), "{}", reason(&world));
    let world = with_secret(json!({"stringData": {"token": "x"}}));
    assert!(world.jobs().is_empty(), "it waits");
    assert_eq!(
        reason(&world),
        "authConfig.credentialsRef default,login has neither key ssh-privatekey nor password"
    );
}

#[test]
fn ignored_checks_are_passed_to_the_runner() {
    let mut world = world(&["10.0.0.2"]);
    let annotated = json!({"metadata": {"annotations": {"kubeon.io/ignore-checks": "swap,dns"}}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &annotated);
    world.settle();
    assert_eq!(env(&job(&world), "IGNORE_CHECKS"), "swap,dns");
}
