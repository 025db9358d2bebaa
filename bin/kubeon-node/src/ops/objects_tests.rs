use std::time::Instant;

use serde_json::json;

use super::*;
use crate::testing::Bench;
use crate::testing_api::{Reply, serve};

fn object(kind: &str, path: &str) -> ApiObject {
    ApiObject { path: path.into(), body: json!({"kind": kind}) }
}

/// The object with a resource version and status that change between calls.
fn revision(number: usize) -> Reply {
    let metadata = json!({"resourceVersion": number.to_string(), "managedFields": [number]});
    Reply::Json(200, json!({"metadata": metadata, "data": {"a": "b"}, "status": number}).to_string())
}

fn not_found() -> Reply {
    Reply::Json(404, json!({"kind": "Status", "message": "namespaces \"x\" not found"}).to_string())
}

#[test]
fn namespaces_come_first_and_the_other_objects_keep_their_order() {
    let objects = [
        object("Deployment", "d"),
        object("CustomResourceDefinition", "c"),
        object("Namespace", "n1"),
        object("ConfigMap", "m"),
        object("Namespace", "n2"),
    ];
    let order: Vec<_> = in_order(&objects).iter().map(|object| object.path.clone()).collect();
    assert_eq!(order, ["n1", "n2", "c", "d", "m"]);
}

#[test]
fn uses_server_side_apply_as_field_manager_kubeon() {
    let mut bench = Bench::new();
    let requests = serve(&mut bench, |method, _, number| match method {
        "GET" => not_found(),
        _ => revision(number),
    });
    let effect = run(&bench.job(), &[object("Namespace", "/api/v1/namespaces/x")]).unwrap();
    assert!(effect.changed);
    let requests = requests.lock();
    assert_eq!((requests[0].0.as_str(), requests[0].1.as_str()), ("GET", "/api/v1/namespaces/x"));
    assert_eq!(requests[1].0, "PATCH");
    assert_eq!(requests[1].1, "/api/v1/namespaces/x?fieldManager=kubeon&force=true");
    assert_eq!(requests[1].2, r#"{"kind":"Namespace"}"#);
}

#[test]
fn an_up_to_date_object_does_not_change() {
    let mut bench = Bench::new();
    serve(&mut bench, |_, _, number| revision(number));
    assert!(!run(&bench.job(), &[object("ConfigMap", "/api/v1/x")]).unwrap().changed);
}

#[test]
fn retries_temporary_failures_and_stops_at_permanent_ones() {
    let mut bench = Bench::new();
    serve(&mut bench, |method, _, number| match (method, number) {
        ("GET", 0) => Reply::Json(503, "starting".into()),
        ("GET", _) => not_found(),
        ("PATCH", 0..6) => [Reply::Json(409, String::new()), Reply::Json(429, String::new()), not_found()]
            .into_iter()
            .nth(number % 3)
            .unwrap(),
        (_, number) => revision(number),
    });
    assert!(run(&bench.job(), &[object("ConfigMap", "/api/v1/x")]).unwrap().changed);

    let mut bench = Bench::new();
    let status = |text: &str| json!({"kind": "Status", "message": text}).to_string();
    let invalid = status("ConfigMap \"x\" is invalid: data");
    let misshapen = status("failed to create typed patch object: .data.a: expected string");
    serve(&mut bench, move |method, path, _| match (method, path.contains("/y")) {
        ("GET", _) => not_found(),
        (_, false) => Reply::Json(422, invalid.clone()),
        (_, true) => Reply::Json(500, misshapen.clone()),
    });
    let start = Instant::now();
    let failure = run(&bench.job(), &[object("ConfigMap", "/api/v1/x")]).unwrap_err();
    assert_eq!(failure.cause, "/api/v1/x is refused (422): ConfigMap \"x\" is invalid: data");
    let failure = run(&bench.job(), &[object("ConfigMap", "/api/v1/y")]).unwrap_err();
    assert!(failure.cause.contains("is refused (500)"), "{failure}");
    assert!(start.elapsed() < Duration::from_secs(4));
}

#[test]
fn reports_at_the_deadline_that_the_api_server_does_not_answer() {
    let mut bench = Bench::new();
    serve(&mut bench, |_, _, _| revision(1));
    bench.host.api = "https://127.0.0.1:1".into();
    let job = Job { deadline: Instant::now() + Duration::from_secs(2), ..bench.job() };
    let failure = run(&job, &[object("ConfigMap", "/api/v1/x")]).unwrap_err();
    assert_eq!(failure.category, Category::Timeout);
    let cause = "/api/v1/x is not applied: the API server on this host does not answer: connection refused";
    assert_eq!(failure.cause, cause);
}

#[test]
fn a_path_cannot_contain_a_query() {
    let bench = Bench::new();
    for bad in ["/api/v1/x?force=false", "/api/../x", "//other/api", "api/v1/x"] {
        assert!(run(&bench.job(), &[object("ConfigMap", bad)]).is_err(), "{bad}");
    }
}
