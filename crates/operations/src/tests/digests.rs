//! Digests of specs do not depend on how they are serialized, and those of earlier operators are recognized.

use k8s_openapi::api::core::v1::ResourceRequirements;
use kubeon_api::kubeonkube::ClusterOperationSpec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::kubernetes_cluster::{NAME, ends, list, object, running};
use crate::testing::World;
use crate::write::ObjectKind;

/// The fields of a spec, as JSON.
static GIVEN: [(&str, &str); 7] = [
    ("cluster", r#""sample""#),
    ("image", r#""busybox""#),
    ("actionType", r#""shell""#),
    ("action", r#""sleep 10""#),
    ("hostsConfRef", r#"{"namespace":"ns","name":"hosts"}"#),
    ("resources", r#"{"requests":{},"limits":{"cpu":"1"},"claims":[]}"#),
    ("postHook", r#"[{"when":"Always","actionType":"shell","action":"true","extraArgs":null}]"#),
];

/// Fields without a value, among them one that this version does not know.
static UNSET: [(&str, &str); 7] = [
    ("preHook", "[]"),
    ("paused", "false"),
    ("plan", "false"),
    ("approves", "null"),
    ("varsConfRef", "null"),
    ("activeDeadlineSeconds", "null"),
    ("later", "{}"),
];

fn spec<'f>(fields: impl Iterator<Item = &'f (&'f str, &'f str)>) -> ClusterOperationSpec {
    let fields: Vec<String> = fields.map(|(key, value)| format!("\"{key}\":{value}")).collect();
    serde_json::from_str(&format!("{{{}}}", fields.join(","))).unwrap()
}

proptest! {
    #[test]
    fn the_digest_does_not_depend_on_the_order_and_on_fields_without_a_value(
        order in Just((0..GIVEN.len() + UNSET.len()).collect::<Vec<usize>>()).prop_shuffle(),
        added in proptest::collection::vec(any::<bool>(), UNSET.len()),
    ) {
        let wanted = spec(GIVEN.iter());
        let is_added = |at: usize| at < GIVEN.len() || added[at - GIVEN.len()];
        let all: Vec<&(&str, &str)> = GIVEN.iter().chain(&UNSET).collect();
        let found = spec(order.into_iter().filter(|at| is_added(*at)).map(|at| all[at]));
        prop_assert_eq!(found.whole_digest(), wanted.whole_digest());
        prop_assert!(found.has_whole_digest(&wanted.whole_digest()));
    }

    #[test]
    fn the_digest_depends_on_every_field_that_is_given(removed in 4..GIVEN.len()) {
        let wanted = spec(GIVEN.iter());
        let without = spec(GIVEN.iter().enumerate().filter(|(at, _)| *at != removed).map(|(_, field)| field));
        prop_assert_ne!(without.whole_digest(), wanted.whole_digest());
    }
}

/// The digest that the operator before `canonical_json` stored for [`with_empty_resources`]: it counted them.
const EARLIER: &str = "2ba55960f6c8aeea46b1e59ceb32f162";

/// Clients in Go write resources that are not set as an empty object.
fn with_empty_resources(spec: &mut ClusterOperationSpec) {
    spec.resources = Some(ResourceRequirements::default());
}

#[test]
fn the_digest_of_an_earlier_operator_is_recognized_and_stays() {
    let mut world = World::with_cluster();
    world.ask("o", with_empty_resources);
    world.settle();
    assert_ne!(world.status("o")["specDigest"], EARLIER);
    world.change(ObjectKind::Operation, "", "o", &json!({"status": {"specDigest": EARLIER}}));
    assert_eq!(world.settle(), 0);
    assert!(world.status("o")["hasModified"].is_null());
    world.change(ObjectKind::Operation, "", "o", &json!({"spec": {"extraArgs": "-v"}}));
    world.settle();
    let status = world.status("o");
    assert_eq!((&status["hasModified"], &status["specDigest"]), (&json!(true), &json!(EARLIER)));
}

#[test]
fn an_operation_that_an_earlier_operator_removed_does_not_run_again() {
    let mut world = World::with_cluster();
    world.settle();
    let removed = json!([{"name": "o", "digest": EARLIER, "result": "Succeeded"}]);
    world.change(ObjectKind::Cluster, "", "sample", &json!({"status": {"removed": removed}}));
    world.ask("o", with_empty_resources);
    world.settle();
    assert!(world.jobs().is_empty());
    assert_eq!(world.status("o")["status"], "Succeeded");
    assert_eq!(world.get(ObjectKind::Cluster, "", "sample")["status"]["removed"], removed);
    // The limit of the history removes it once more.
    world.settings.history_limit = 1;
    world.ask("p", |_| {});
    world.settle();
    world.job_says("kubeonkube-p-job", "Complete");
    world.settle();
    assert_eq!(world.all::<kubeon_api::ClusterOperation>(ObjectKind::Operation).len(), 1);
    assert_eq!(world.get(ObjectKind::Cluster, "", "sample")["status"]["removed"], removed);
}

#[test]
fn a_plan_of_an_earlier_operator_still_waits_for_its_approval() {
    let mut world = running(&["10.0.0.2"]);
    let nodes = list(&["10.0.0.2", "10.0.0.4"]);
    let spec = json!({"plan": true, "cluster": {"nodeList": nodes}});
    let patch = json!({"spec": spec, "metadata": {"generation": 2}});
    world.change(ObjectKind::KubernetesCluster, "default", NAME, &patch);
    world.settle();
    let operation = object(&world)["status"]["operation"].as_str().unwrap().to_owned();
    ends(&mut world, "Complete");
    let annotations = world.get(ObjectKind::Operation, "", &operation)["metadata"]["annotations"].clone();
    let planned = annotations["app.kubernetes.io/spec"].as_str().unwrap();
    let mut spec: Value = serde_json::from_str(planned).unwrap();
    spec["paused"] = json!(false);
    spec["cluster"]["extraArgs"] = json!({});
    let annotations = json!({"app.kubernetes.io/spec": spec.to_string()});
    world.change(ObjectKind::Operation, "", &operation, &json!({"metadata": {"annotations": annotations}}));
    assert_eq!(world.settle(), 0, "no other plan is made: {:?}", world.written.last());
}
