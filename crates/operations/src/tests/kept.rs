//! What a `KubernetesCluster` keeps between its operations, and how its hosts are logged in to.

use serde_json::{Value, json};

use super::business::{NAME, STATE, ends, env, job, object, running, saved, scaled, spec, world};
use crate::testing::World;
use crate::write::Kind;

#[test]
fn what_outlives_a_job_is_there_before_it_and_changes_hands_with_each_operation() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    let keeper = |world: &World, name: &str| {
        let meta = world.get(Kind::Secret, "default", name)["metadata"].clone();
        assert_eq!(meta["labels"]["kubeon.io/cluster"], "default.test-cluster");
        assert!(meta["ownerReferences"].is_null(), "taking the cluster down needs it");
        meta["annotations"]["kubeon.io/job"].as_str().unwrap().to_owned()
    };
    let order: Vec<_> = world.written.iter().map(|write| write.target.clone()).collect();
    let first = |kind, name: &str| {
        order.iter().position(|one| one.kind == kind && one.name.starts_with(name)).unwrap()
    };
    assert!(first(Kind::Secret, STATE) < first(Kind::Job, "create-"));
    let create = job(&world)["metadata"]["name"].as_str().unwrap().to_owned();
    for name in [STATE, "default-test-cluster-kubeconfig"] {
        assert_eq!(keeper(&world, name), create);
    }
    saved(&mut world);
    ends(&mut world, "Complete");
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    let up = job(&world)["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!((keeper(&world, STATE), up.starts_with("scale-up-")), (up.clone(), true));
    assert_eq!(world.get(Kind::Secret, "default", STATE)["stringData"]["state.tar.zst"], "keys");
}

#[test]
fn conditions_are_about_the_generation_that_was_worked_on() {
    let mut world = running(&["10.0.0.2"]);
    scaled(&mut world, &["10.0.0.2", "10.0.0.4"]);
    let later = json!({"metadata": {"generation": 3}, "spec": spec(&["10.0.0.2", "10.0.0.4", "10.0.0.5"])});
    world.change(Kind::Business, "default", NAME, &later);
    let ready = |world: &World| {
        let conditions = object(world)["status"]["conditions"].as_array().unwrap();
        let ready = conditions.iter().find(|one| one["type"] == "Ready").unwrap();
        (ready["status"].clone(), ready["observedGeneration"].clone())
    };
    let name = job(&world)["metadata"]["name"].as_str().unwrap().to_owned();
    world.job_says(&name, "Complete");
    world.settle();
    assert_eq!(ready(&world), (json!("True"), json!(2)), "a third worker is still to come");
    ends(&mut world, "Complete");
    assert_eq!(ready(&world), (json!("True"), json!(3)));
    assert_eq!(object(&world)["status"]["ready"], "5/5");
}

#[test]
fn a_secret_that_is_not_the_operators_is_named_and_left_alone() {
    let mut world = world(&["10.0.0.2"]);
    world.put(Kind::Secret, "default", STATE, json!({"stringData": {"mine": "x"}}));
    world.settle();
    assert!(world.jobs().is_empty());
    let operation = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
    let reason = world.status(&operation)["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains(STATE) && reason.contains("kubeon.io/cluster=default.test-cluster"), "{reason}");
    assert!(world.get(Kind::Secret, "default", STATE)["metadata"]["labels"].is_null());
}

#[test]
fn a_cluster_of_which_nothing_was_saved_needs_no_job_to_go() {
    let mut world = world(&["10.0.0.2"]);
    world.settle();
    ends(&mut world, "Failed");
    let jobs = world.jobs().len();
    let now = world.now.to_string();
    world.change(Kind::Business, "default", NAME, &json!({"metadata": {"deletionTimestamp": now}}));
    let told: Vec<_> = world.next().notices.into_iter().map(|notice| notice.text).collect();
    assert!(told.iter().any(|text| text.contains("nothing was ever written to its hosts")), "{told:?}");
    world.settle();
    assert_eq!(
        (world.jobs().len(), &object(&world)["metadata"]["finalizers"]),
        (jobs, &json!(["other/one"]))
    );
    assert!(!world.objects.keys().any(|target| target.name == STATE), "what was kept for it goes with it");
}

#[test]
fn what_was_applied_is_taken_down_though_somebody_took_its_state_away() {
    let mut world = running(&["10.0.0.2"]);
    world.objects.retain(|target, _| target.name != STATE);
    let now = world.now.to_string();
    world.change(Kind::Business, "default", NAME, &json!({"metadata": {"deletionTimestamp": now}}));
    world.settle();
    assert_eq!(env(&job(&world), "OPERATION"), "terminating");
}

fn with_secret(secret: Value) -> World {
    let mut world = world(&["10.0.0.2"]);
    let auth = json!({"username": "admin", "password": null, "credentialsRef": {"name": "login"}});
    world.change(Kind::Business, "default", NAME, &json!({"spec": {"cluster": {"authConfig": auth}}}));
    world.put(Kind::Secret, "default", "login", secret);
    world.settle();
    world
}

const KEY: &str = "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n";

#[test]
fn a_secret_that_is_referred_to_is_mounted_and_not_told_to_the_program() {
    let world = with_secret(json!({"stringData": {"ssh-privatekey": KEY.trim_end()}}));
    let (config, _) = world.objects.iter().find(|(target, _)| target.kind == Kind::ConfigMap).unwrap();
    let wish: Value =
        serde_json::from_str(world.objects[config]["data"]["cluster.json"].as_str().unwrap()).unwrap();
    assert_eq!(wish["spec"]["cluster"]["authConfig"], json!({"username": "admin"}));
    let volumes = job(&world)["spec"]["template"]["spec"]["volumes"].as_array().unwrap().clone();
    let auth = volumes.iter().find(|volume| volume["name"] == "auth").unwrap();
    let copy = world.get(Kind::Secret, "default", auth["secret"]["secretName"].as_str().unwrap());
    use base64::Engine as _;
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    assert_eq!(copy["data"], json!({"ssh-privatekey": encoded(KEY), "username": encoded("admin")}));
}

/// Contract B, case 14.
#[test]
fn b14_a_secret_that_cannot_log_in_is_named() {
    let reason = |world: &World| {
        let operation = world.all::<kubeon_api::ClusterOperation>(Kind::Operation).remove(0);
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
fn checks_that_may_fail_reach_the_runner() {
    let mut world = world(&["10.0.0.2"]);
    let annotated = json!({"metadata": {"annotations": {"kubeon.io/ignore-checks": "swap,dns"}}});
    world.change(Kind::Business, "default", NAME, &annotated);
    world.settle();
    assert_eq!(env(&job(&world), "IGNORE_CHECKS"), "swap,dns");
}
