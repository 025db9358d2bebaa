use serde_json::json;

use super::*;
use crate::journal::Entry;
use crate::testing::Bench;
use crate::testing_api::{Reply, serve};

fn name() -> HostName {
    "h3".parse().unwrap()
}

fn reply(status: u16, body: &Value) -> Reply {
    Reply::Json(status, body.to_string())
}

#[test]
fn a_node_that_is_removed_is_forgotten_first() {
    let mut bench = Bench::new();
    let asked = serve(&mut bench, |_, _, number| match number {
        0 => reply(503, &json!({"message": "starting"})),
        1 => reply(200, &json!({})),
        _ => reply(404, &json!({})),
    });
    let ids = ["join/ready-h3@h1".to_owned(), "join/labels-h3@h1".to_owned()];
    for id in &ids {
        let entry = Entry { id: id.clone(), digest: "d".into(), marks: Vec::new() };
        journal::remember(&bench.host.root, &entry).unwrap();
    }
    assert!(remove(&bench.job(), &name(), &ids).unwrap().changed);
    assert!(!remove(&bench.job(), &name(), &ids).unwrap().changed, "a node that is not there is no change");
    assert!(journal::all(&bench.host.root).unwrap().is_empty());
    assert_eq!(asked.lock()[0].0, "DELETE");
    assert_eq!(asked.lock()[0].1, "/api/v1/nodes/h3");
}

#[test]
fn the_taint_leaves_others_alone_and_minds_the_revision() {
    let other = json!({"key": "gpu", "effect": "NoSchedule"});
    let ours = json!({"key": CONTROL_PLANE, "effect": "NoSchedule"});
    let node = |taints: &[&Value]| json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": taints}});
    assert_eq!(tainted(&node(&[&other]), true).unwrap(), node(&[&other, &ours]));
    assert_eq!(tainted(&node(&[&ours, &other]), false).unwrap(), node(&[&other]));
    assert_eq!(tainted(&node(&[&ours]), true), None);
    assert_eq!(tainted(&json!({"spec": {}}), false), None);
}

#[test]
fn a_taint_that_met_another_writer_is_tried_again() {
    let mut bench = Bench::new();
    let asked = serve(&mut bench, |method, _, number| match (method, number) {
        ("GET", _) => reply(200, &json!({"metadata": {"resourceVersion": number.to_string()}, "spec": {}})),
        (_, 1) => reply(409, &json!({"message": "the object has been modified"})),
        _ => reply(200, &json!({})),
    });
    assert!(taint(&bench.job(), &name(), true).unwrap().changed);
    let asked = asked.lock();
    let methods: Vec<_> = asked.iter().map(|(method, ..)| method.as_str()).collect();
    assert_eq!(methods, ["GET", "PATCH", "GET", "PATCH"]);
    assert!(asked[3].2.contains("\"resourceVersion\":\"2\""), "{}", asked[3].2);
}

#[test]
fn a_node_that_is_missing_cannot_be_tainted() {
    let mut bench = Bench::new();
    serve(&mut bench, |_, _, _| reply(404, &json!({})));
    assert_eq!(taint(&bench.job(), &name(), true).unwrap_err().cause, "there is no node h3");
}

#[test]
fn what_is_refused_for_good_is_not_tried_again() {
    let mut bench = Bench::new();
    let asked = serve(&mut bench, |_, _, _| reply(403, &json!({"message": "not you"})));
    let failure = remove(&bench.job(), &name(), &[]).unwrap_err();
    assert_eq!(failure.cause, "node h3 is not removed: refused (403): not you");
    assert_eq!(asked.lock().len(), 1);
}
