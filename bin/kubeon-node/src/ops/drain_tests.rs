use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use kubeon_wire::Category;
use parking_lot::Mutex;

use super::*;
use crate::testing::Bench;
use crate::testing_api::{Asked, Reply, serve};

fn node() -> HostName {
    "h3".parse().unwrap()
}

fn pod(name: &str, more: Value) -> Value {
    let mut pod = json!({"metadata": {"namespace": "default", "name": name, "uid": format!("uid-{name}")},
        "status": {"phase": "Running"}});
    for (key, value) in more.as_object().cloned().unwrap_or_default() {
        match key.as_str() {
            "phase" => pod["status"]["phase"] = value,
            _ => pod["metadata"][key] = value,
        }
    }
    pod
}

/// An API server with these pods on the node. The budget of pod `held` allows its eviction from the given try on;
/// an evicted pod is gone at once.
fn cluster(bench: &mut Bench, pods: Vec<Value>, allowed_from: usize) -> Asked {
    let (pods, tries) = (Arc::new(Mutex::new(pods)), Mutex::new(0));
    serve(bench, move |method, path, _| {
        let mut pods = pods.lock();
        match (method, path) {
            ("PATCH", _) => Reply::Json(200, "{}".into()),
            ("GET", path) if path.contains("watch=true") => Reply::Lines(vec![]),
            ("GET", _) => Reply::Json(200, json!({ "items": *pods }).to_string()),
            (_, path) => {
                let name = path.split('/').nth(6).unwrap().to_owned();
                let mut tries = tries.lock();
                *tries += usize::from(name == "held");
                if name == "held" && *tries < allowed_from {
                    let cause = json!({"message": "The disruption budget web needs 1 healthy pods and has 1 currently"});
                    let body = json!({"message": "Cannot evict pod as it would violate the pod's disruption budget.",
                        "details": {"causes": [cause]}});
                    return Reply::Json(429, body.to_string());
                }
                pods.retain(|pod| pod["metadata"]["name"] != *name);
                Reply::Json(201, "{}".into())
            }
        }
    })
}

fn evicted(asked: &Asked) -> Vec<String> {
    let asked = asked.lock();
    let paths = asked.iter().filter(|(method, ..)| method == "POST").map(|(_, path, _)| path);
    paths.map(|path| path.split('/').nth(6).unwrap().to_owned()).collect()
}

#[test]
fn evicts_what_would_end_with_the_host_and_leaves_the_rest() {
    let mut bench = Bench::new();
    let daemon = json!({"ownerReferences": [{"kind": "DaemonSet", "controller": true}]});
    let mirror = json!({"annotations": {"kubernetes.io/config.mirror": "x"}});
    let managed = json!({"ownerReferences": [{"kind": "ReplicaSet", "controller": true}]});
    let pods = vec![
        pod("web", managed),
        pod("alone", json!({})),
        pod("daemon", daemon),
        pod("mirror", mirror),
        pod("ended", json!({"phase": "Succeeded"})),
    ];
    let asked = cluster(&mut bench, pods, 0);
    assert!(run(&bench.job(), &node()).unwrap().changed);
    assert_eq!(evicted(&asked), ["web", "alone"]);
    let asked = asked.lock();
    assert_eq!(asked[0].1, "/api/v1/nodes/h3?fieldManager=kubeon");
    assert_eq!(asked[0].2, r#"{"spec":{"unschedulable":true}}"#, "cordoned before the first eviction");
    assert_eq!(asked[1].1, "/api/v1/pods?fieldSelector=spec.nodeName%3Dh3");
    assert!(
        asked[2].2.contains("\"uid\":\"uid-web\""),
        "the pod that was seen, no later one: {}",
        asked[2].2
    );
}

#[test]
fn waits_until_the_budget_allows_it() {
    let mut bench = Bench::new();
    let asked = cluster(&mut bench, vec![pod("held", json!({})), pod("free", json!({}))], 3);
    run(&bench.job(), &node()).unwrap();
    assert_eq!(evicted(&asked), ["held", "free", "held", "held"]);
}

#[test]
fn names_the_pod_and_its_budget_when_time_is_up() {
    let mut bench = Bench::new();
    cluster(&mut bench, vec![pod("held", json!({}))], usize::MAX);
    let job = Job { deadline: Instant::now() + Duration::from_secs(2), ..bench.job() };
    let failure = run(&job, &node()).unwrap_err();
    assert_eq!(failure.category, Category::Failed, "for a person to decide on");
    assert_eq!(
        failure.cause,
        "node h3 is not empty: pod default/held is not evicted: Cannot evict pod as it would violate the pod's \
         disruption budget. The disruption budget web needs 1 healthy pods and has 1 currently"
    );
}

#[test]
fn names_the_pods_of_the_last_answer_when_the_server_falls_silent() {
    let mut bench = Bench::new();
    let lists = Mutex::new(0);
    serve(&mut bench, move |method, path, _| {
        let first = method == "GET" && !path.contains("watch=true") && {
            let mut lists = lists.lock();
            *lists += 1;
            *lists == 1
        };
        let ending = pod("web", json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
        match method {
            "PATCH" => Reply::Json(200, "{}".into()),
            "GET" if first => Reply::Json(200, json!({ "items": [ending] }).to_string()),
            _ => Reply::Json(503, "{}".into()),
        }
    });
    let job = Job { deadline: Instant::now() + Duration::from_secs(2), ..bench.job() };
    let failure = run(&job, &node()).unwrap_err();
    assert_eq!(failure.category, Category::Failed, "for a person to decide on");
    assert_eq!(failure.cause, "node h3 is not empty: pod default/web is still ending");
}

#[test]
fn names_pods_that_do_not_end() {
    let mut bench = Bench::new();
    let ending = |name: &str| pod(name, json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
    let asked = cluster(&mut bench, (0..7).map(|i| ending(&format!("p{i}"))).collect(), 0);
    let job = Job { deadline: Instant::now() + Duration::from_secs(2), ..bench.job() };
    let failure = run(&job, &node()).unwrap_err();
    assert!(failure.cause.contains("pod default/p0 is still ending"), "{failure}");
    assert!(failure.cause.ends_with("and 2 more"), "{failure}");
    assert!(evicted(&asked).is_empty(), "what goes already is not asked to go again");
}

#[test]
fn one_that_was_evicted_and_ended_is_still_there_until_its_kubelet_took_it_away() {
    let mut bench = Bench::new();
    let ended = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "phase": "Failed"});
    cluster(&mut bench, vec![pod("web", ended)], 0);
    let job = Job { deadline: Instant::now() + Duration::from_secs(2), ..bench.job() };
    assert!(run(&job, &node()).unwrap_err().cause.contains("pod default/web is still ending"));
}

#[test]
fn a_node_that_is_not_there_is_empty() {
    let mut bench = Bench::new();
    serve(&mut bench, |_, _, _| Reply::Json(404, "{}".into()));
    assert!(!run(&bench.job(), &node()).unwrap().changed);
}

#[test]
fn ends_when_told_to_stop() {
    let mut bench = Bench::new();
    cluster(&mut bench, vec![pod("held", json!({}))], usize::MAX);
    bench.stop.store(true, Ordering::Relaxed);
    assert_eq!(run(&bench.job(), &node()).unwrap_err().category, Category::Cancelled);
}

#[test]
fn a_node_that_stays_takes_pods_again_and_one_that_does_is_left_alone() {
    let mut bench = Bench::new();
    let asked = serve(&mut bench, |method, _, number| match (method, number) {
        ("GET", 0) => Reply::Json(200, json!({"spec": {"unschedulable": true}}).to_string()),
        ("GET", _) => Reply::Json(200, json!({"spec": {}}).to_string()),
        _ => Reply::Json(200, "{}".into()),
    });
    assert!(uncordon(&bench.job(), &node()).unwrap().changed);
    assert!(!uncordon(&bench.job(), &node()).unwrap().changed, "nothing is written twice");
    let asked = asked.lock();
    let methods: Vec<_> = asked.iter().map(|(method, ..)| method.as_str()).collect();
    assert_eq!(methods, ["GET", "PATCH", "GET"]);
    assert_eq!(asked[1].2, r#"{"spec":{"unschedulable":null}}"#);
}

#[test]
fn a_node_that_is_missing_cannot_take_pods_again() {
    let mut bench = Bench::new();
    serve(&mut bench, |_, _, _| Reply::Json(404, "{}".into()));
    assert_eq!(uncordon(&bench.job(), &node()).unwrap_err().cause, "there is no node h3");
}
