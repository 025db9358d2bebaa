use serde_json::json;

use super::*;
use crate::testing::Bench;
use crate::testing_api::{Reply, serve};

fn name() -> HostName {
    "h3".parse().unwrap()
}

fn reply(status: u16, body: &Value) -> Reply {
    Reply::Json(status, body.to_string())
}

#[test]
fn a_node_is_removed_once_and_its_pods_with_it() {
    let mut bench = Bench::new();
    let pod = |name: &str| json!({"metadata": {"namespace": "shop", "name": name}});
    let requests = serve(&mut bench, move |method, _, number| match (method, number) {
        (_, 0) => reply(503, &json!({"message": "starting"})),
        ("GET", 2) => reply(200, &json!({"items": [pod("web-1"), pod("web-2")]})),
        ("GET", _) => reply(200, &json!({"items": []})),
        (_, 1 | 3) => reply(200, &json!({})),
        _ => reply(404, &json!({})),
    });
    assert!(remove(&bench.job(), &name()).unwrap().changed);
    assert!(!remove(&bench.job(), &name()).unwrap().changed, "removing a missing node changes nothing");
    let requests = requests.lock();
    let sent: Vec<_> = requests.iter().map(|(method, path, _)| format!("{method} {path}")).collect();
    let pods = "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dh3";
    assert_eq!(
        sent[1..],
        [
            "DELETE /api/v1/nodes/h3",
            pods,
            "DELETE /api/v1/namespaces/shop/pods/web-1?gracePeriodSeconds=0",
            "DELETE /api/v1/namespaces/shop/pods/web-2?gracePeriodSeconds=0",
            "DELETE /api/v1/nodes/h3",
            pods,
        ]
    );
}

#[test]
fn the_taint_patch_keeps_other_taints() {
    let other = json!({"key": "gpu", "effect": "NoSchedule"});
    let control_plane = json!({"key": CONTROL_PLANE, "effect": "NoSchedule"});
    let node = |taints: &[&Value]| json!({"spec": {"taints": taints}});
    assert_eq!(tainted(&node(&[&other]), true).unwrap(), node(&[&other, &control_plane]));
    assert_eq!(tainted(&node(&[&control_plane, &other]), false).unwrap(), node(&[&other]));
    assert_eq!(tainted(&node(&[&control_plane]), true), None);
    assert_eq!(tainted(&json!({"spec": {}}), false), None);
}

#[test]
fn a_conflict_of_the_taint_patch_is_retried() {
    let mut bench = Bench::new();
    let requests = serve(&mut bench, |method, _, number| match (method, number) {
        ("GET", _) => reply(200, &json!({"metadata": {"resourceVersion": number.to_string()}, "spec": {}})),
        (_, 1) => reply(409, &json!({"message": "the object has been modified"})),
        _ => reply(200, &json!({})),
    });
    assert!(taint(&bench.job(), &name(), true).unwrap().changed);
    let requests = requests.lock();
    let methods: Vec<_> = requests.iter().map(|(method, ..)| method.as_str()).collect();
    assert_eq!(methods, ["GET", "PATCH", "GET", "PATCH"]);
    assert!(requests[3].2.contains("\"resourceVersion\":\"2\""), "{}", requests[3].2);
}

#[test]
fn a_missing_node_cannot_be_tainted() {
    let mut bench = Bench::new();
    serve(&mut bench, |_, _, _| reply(404, &json!({})));
    assert_eq!(taint(&bench.job(), &name(), true).unwrap_err().cause, "node h3 does not exist");
}

#[test]
fn a_permanent_refusal_is_not_retried() {
    let mut bench = Bench::new();
    let requests = serve(&mut bench, |_, _, _| reply(403, &json!({"message": "not you"})));
    let failure = remove(&bench.job(), &name()).unwrap_err();
    assert_eq!(failure.cause, "node h3 is not removed: refused (403): not you");
    assert_eq!(requests.lock().len(), 1);
}
