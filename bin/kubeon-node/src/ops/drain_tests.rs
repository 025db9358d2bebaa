use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use kubeon_wire::Category;
use parking_lot::Mutex;

use super::*;
use crate::testing::Bench;
use crate::testing_api::{Reply, Requests, serve};

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

/// An API server with these pods on the node. The budget of pod `held` allows its eviction from the given
/// attempt on; an evicted pod is deleted at once.
fn cluster(bench: &mut Bench, pods: Vec<Value>, allowed_from: usize) -> Requests {
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

fn evicted(requests: &Requests) -> Vec<String> {
    let requests = requests.lock();
    let paths = requests.iter().filter(|(method, ..)| method == "POST").map(|(_, path, _)| path);
    paths.map(|path| path.split('/').nth(6).unwrap().to_owned()).collect()
}

#[test]
fn evicts_running_pods_but_no_daemon_mirror_or_ended_pods() {
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
    let requests = cluster(&mut bench, pods, 0);
    assert!(run(&bench.job(), &node()).unwrap().changed);
    assert_eq!(evicted(&requests), ["web", "alone"]);
    let requests = requests.lock();
    assert_eq!(requests[0].1, "/api/v1/nodes/h3?fieldManager=kubeon");
    assert_eq!(requests[0].2, r#"{"spec":{"unschedulable":true}}"#, "cordoned before the first eviction");
    assert_eq!(requests[1].1, "/api/v1/pods?fieldSelector=spec.nodeName%3Dh3");
    assert!(
        requests[2].2.contains("\"uid\":\"uid-web\""),
        "only the listed pod, not a later one of the same name: {}",
        requests[2].2
    );
}

#[test]
fn waits_until_the_budget_allows_it() {
    let mut bench = Bench::new();
    let requests = cluster(&mut bench, vec![pod("held", json!({})), pod("free", json!({}))], 3);
    run(&bench.job(), &node()).unwrap();
    assert_eq!(evicted(&requests), ["held", "free", "held", "held"]);
}

#[test]
fn names_the_pod_and_its_budget_when_time_is_up() {
    let mut bench = Bench::new();
    cluster(&mut bench, vec![pod("held", json!({}))], usize::MAX);
    let job = Job { deadline: Instant::now() + Duration::from_secs(2), ..bench.job() };
    let failure = run(&job, &node()).unwrap_err();
    assert_eq!(failure.category, Category::Failed, "a user has to decide");
    assert_eq!(
        failure.cause,
        "node h3 is not empty: pod default/held is not evicted: Cannot evict pod as it would violate the pod's \
         disruption budget. The disruption budget web needs 1 healthy pods and has 1 currently"
    );
}

#[test]
fn names_the_pods_of_the_last_answer_when_the_server_stops_answering() {
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
    assert_eq!(failure.category, Category::Failed, "a user has to decide");
    assert_eq!(failure.cause, "node h3 is not empty: pod default/web is still terminating");
}

#[test]
fn names_pods_that_do_not_end() {
    let mut bench = Bench::new();
    let ending = |name: &str| pod(name, json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
    let requests = cluster(&mut bench, (0..7).map(|i| ending(&format!("p{i}"))).collect(), 0);
    let job = Job { deadline: Instant::now() + Duration::from_secs(2), ..bench.job() };
    let failure = run(&job, &node()).unwrap_err();
    assert!(failure.cause.contains("pod default/p0 is still terminating"), "{failure}");
    assert!(failure.cause.ends_with("and 2 more"), "{failure}");
    assert!(evicted(&requests).is_empty(), "a terminating pod is not evicted again");
}

#[test]
fn an_evicted_pod_that_ended_remains_until_its_kubelet_deletes_it() {
    let mut bench = Bench::new();
    let ended = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "phase": "Failed"});
    cluster(&mut bench, vec![pod("web", ended)], 0);
    let job = Job { deadline: Instant::now() + Duration::from_secs(2), ..bench.job() };
    assert!(run(&job, &node()).unwrap_err().cause.contains("pod default/web is still terminating"));
}

#[test]
fn a_missing_node_is_drained() {
    let mut bench = Bench::new();
    serve(&mut bench, |_, _, _| Reply::Json(404, "{}".into()));
    assert!(!run(&bench.job(), &node()).unwrap().changed);
}

#[test]
fn ends_on_cancellation() {
    let mut bench = Bench::new();
    cluster(&mut bench, vec![pod("held", json!({}))], usize::MAX);
    bench.stop.store(true, Ordering::Relaxed);
    assert_eq!(run(&bench.job(), &node()).unwrap_err().category, Category::Cancelled);
}

#[test]
fn a_cancelled_drain_does_not_wait_for_the_server() {
    let mut bench = Bench::new();
    serve(&mut bench, |method, path, _| match (method, path) {
        ("GET", path) if path.contains("watch=true") => Reply::Hang(vec![]),
        ("GET", _) => Reply::Json(
            200,
            json!({ "items": [pod("slow", json!({"deletionTimestamp": "now"}))] }).to_string(),
        ),
        _ => Reply::Json(200, "{}".into()),
    });
    let (begin, job) = (Instant::now(), Job { deadline: Instant::now() + WATCH_TIMEOUT, ..bench.job() });
    let failure = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            bench.stop.store(true, Ordering::Relaxed);
        });
        run(&job, &node()).unwrap_err()
    });
    assert_eq!(failure.category, Category::Cancelled);
    assert!(begin.elapsed() < WATCH_TIMEOUT / 2, "{:?}", begin.elapsed());
}

#[test]
fn uncordons_a_cordoned_node_and_leaves_another_unchanged() {
    let mut bench = Bench::new();
    let requests = serve(&mut bench, |method, _, number| match (method, number) {
        ("GET", 0) => Reply::Json(200, json!({"spec": {"unschedulable": true}}).to_string()),
        ("GET", _) => Reply::Json(200, json!({"spec": {}}).to_string()),
        _ => Reply::Json(200, "{}".into()),
    });
    assert!(uncordon(&bench.job(), &node()).unwrap().changed);
    assert!(!uncordon(&bench.job(), &node()).unwrap().changed, "nothing is written twice");
    let requests = requests.lock();
    let methods: Vec<_> = requests.iter().map(|(method, ..)| method.as_str()).collect();
    assert_eq!(methods, ["GET", "PATCH", "GET"]);
    assert_eq!(requests[1].2, r#"{"spec":{"unschedulable":null}}"#);
}

#[test]
fn a_missing_node_cannot_be_uncordoned() {
    let mut bench = Bench::new();
    serve(&mut bench, |_, _, _| Reply::Json(404, "{}".into()));
    assert_eq!(uncordon(&bench.job(), &node()).unwrap_err().cause, "node h3 does not exist");
}
