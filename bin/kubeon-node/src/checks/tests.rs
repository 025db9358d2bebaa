use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::cluster::{Awaited, Deployment, Nodes};
use kubeon_wire::Category;

use super::*;
use crate::api::WatchEvent;
use crate::testing::Bench;
use crate::testing_api::{Reply, serve};

fn never() -> Result<(), StepFailure> {
    Ok(())
}

fn event(kind: &str, object: serde_json::Value) -> WatchEvent {
    WatchEvent { kind: kind.into(), object }
}

#[test]
fn waits_for_a_port_to_open() {
    let bench = Bench::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = "127.0.0.1".parse().unwrap();
    let check = [Check::Tcp { address, port }];
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        listener.accept().unwrap();
    });
    let start = Instant::now();
    wait_for(&bench.job(), &check, &never).unwrap();
    assert!(start.elapsed() < Duration::from_secs(4));
    late.join().unwrap();
}

#[test]
fn a_timeout_reports_the_last_result() {
    let bench = Bench::new();
    let job = Job { deadline: Instant::now() + Duration::from_millis(150), ..bench.job() };
    let failure = wait_for(&job, &[Check::Path { path: "/run/x".into() }], &never).unwrap_err();
    assert_eq!((failure.category, failure.cause.as_str()), (Category::Timeout, "/run/x does not exist"));
    let job = Job { deadline: Instant::now() + Duration::from_millis(150), ..bench.job() };
    let failure = wait_for(&job, &[Check::Socket { path: "/run/x".into() }], &never).unwrap_err();
    assert!(failure.cause.contains("socket /run/x"), "{failure}");
}

#[test]
fn a_wait_ends_on_cancellation() {
    let bench = Bench::new();
    bench.stop.store(true, Ordering::Relaxed);
    let failure = wait_for(&bench.job(), &[Check::Path { path: "/run/x".into() }], &never).unwrap_err();
    assert_eq!(failure.category, Category::Cancelled);
}

#[test]
fn reports_why_nodes_are_not_ready() {
    let node = |name: &str, status: &str, message: &str| {
        serde_json::json!({"metadata": {"name": name}, "status": {"conditions": [
            {"type": "MemoryPressure", "status": "False"},
            {"type": "Ready", "status": status, "message": message}]}})
    };
    let mut nodes = Nodes::new(&["h2".parse().unwrap(), "h3".parse().unwrap()], false);
    assert!(!nodes.observe(&event("ADDED", node("h1", "True", ""))), "another node");
    assert!(!nodes.observe(&event("ADDED", node("h2", "True", ""))));
    assert_eq!(nodes.missing(), "node h3 has not joined");
    assert!(!nodes.observe(&event("ADDED", node("h3", "False", "container runtime network not ready"))));
    assert_eq!(nodes.missing(), "node h3 is not Ready: container runtime network not ready");
    assert!(nodes.observe(&event("MODIFIED", node("h3", "True", ""))));
    nodes.begin();
    assert!(!nodes.observe(&event("ADDED", node("h3", "True", ""))), "a new watch forgets the old state");
}

#[test]
fn a_node_that_lacks_only_a_network_is_ready_enough_if_nothing_installs_one_yet() {
    let node = |message: &str| {
        serde_json::json!({"metadata": {"name": "h2"}, "status": {"conditions": [
            {"type": "Ready", "status": "False", "message": message}]}})
    };
    let lacks = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
                 message:Network plugin returns error: cni plugin not initialized";
    let awaited = |may_lack_network| Nodes::new(&["h2".parse().unwrap()], may_lack_network);
    assert!(awaited(true).observe(&event("ADDED", node(lacks))));
    assert!(!awaited(false).observe(&event("ADDED", node(lacks))));
    let more = format!("[{lacks}, CSINode is not yet initialized]");
    assert!(!awaited(true).observe(&event("ADDED", node(&more))));
    assert!(!awaited(true).observe(&event("ADDED", node("PLEG is not healthy"))));
}

#[test]
fn a_deployment_is_available_when_all_replicas_are_new_and_available() {
    let deployment = |generation: i64, counts: [i64; 3]| {
        serde_json::json!({"metadata": {"generation": generation}, "spec": {"replicas": 2},
            "status": {"observedGeneration": 2, "replicas": counts[0], "updatedReplicas": counts[1],
                       "availableReplicas": counts[2]}})
    };
    let mut awaited = Deployment::named("coredns");
    assert_eq!(awaited.missing(), "Deployment coredns does not exist");
    assert!(
        !awaited.observe(&event("ADDED", deployment(3, [2, 2, 2]))),
        "the controller has not observed it yet"
    );
    assert!(!awaited.observe(&event("MODIFIED", deployment(2, [2, 2, 1]))));
    assert_eq!(awaited.missing(), "Deployment coredns has 1 of 2 replicas available");
    assert!(!awaited.observe(&event("MODIFIED", deployment(2, [3, 2, 3]))));
    assert_eq!(awaited.missing(), "Deployment coredns still has 1 old replicas");
    assert!(awaited.observe(&event("MODIFIED", deployment(2, [2, 2, 2]))));
    assert!(!awaited.observe(&event("DELETED", deployment(2, [2, 2, 2]))));
}

fn node_line(kind: &str, name: &str, status: &str) -> String {
    let object = serde_json::json!({"metadata": {"name": name}, "status": {"conditions": [
        {"type": "Ready", "status": status, "message": "network not ready"}]}});
    serde_json::json!({"type": kind, "object": object}).to_string()
}

#[test]
fn restarts_a_watch_of_nodes_after_its_end_or_an_error() {
    let mut bench = Bench::new();
    let requests = serve(&mut bench, |_, _, number| match number {
        0 => Reply::Json(503, "starting".into()),
        1 => Reply::Lines(vec![node_line("ADDED", "h1", "False")]),
        2 => Reply::Lines(vec![r#"{"type":"ERROR","object":{"code":410,"message":"too old"}}"#.into()]),
        _ => Reply::Hang(vec![node_line("ADDED", "h1", "False"), node_line("MODIFIED", "h1", "True")]),
    });
    let nodes = vec!["h1".parse().unwrap()];
    wait_for(&bench.job(), &[Check::NodesReady { nodes, may_lack_network: false }], &never).unwrap();
    let requests = requests.lock();
    assert_eq!(requests.len(), 4);
    assert!(requests[0].1.starts_with("/api/v1/nodes?watch=true&timeoutSeconds="), "{}", requests[0].1);
    assert!(requests[0].1.ends_with("&fieldSelector=metadata.name%3Dh1"), "{}", requests[0].1);
}

#[test]
fn a_watch_times_out_at_the_deadline_and_reports_the_nodes() {
    let mut bench = Bench::new();
    serve(&mut bench, |_, _, _| Reply::Hang(vec![node_line("ADDED", "h1", "False")]));
    let start = Instant::now();
    let job = Job { deadline: start + Duration::from_secs(2), ..bench.job() };
    let nodes = vec!["h1".parse().unwrap(), "h2".parse().unwrap()];
    let check = Check::NodesReady { nodes, may_lack_network: false };
    let failure = wait_for(&job, &[check], &never).unwrap_err();
    assert_eq!(failure.category, Category::Timeout);
    assert_eq!(failure.cause, "node h1 is not Ready: network not ready; node h2 has not joined");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn an_unavailable_deployment_reports_why_its_pods_wait() {
    let mut bench = Bench::new();
    let requests = serve(&mut bench, |_, path, _| {
        if path.contains("/pods?") {
            let waiting = serde_json::json!({"reason": "ErrImagePull", "message": "not found"});
            let status = serde_json::json!({"containerStatuses": [{"state": {"waiting": waiting}}]});
            let pods = serde_json::json!({"items": [{"metadata": {"name": "coredns-1"}, "status": status}]});
            return Reply::Json(200, pods.to_string());
        }
        let object = serde_json::json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"k8s-app": "dns", "a/b": "c"}}}});
        Reply::Hang(vec![serde_json::json!({"type": "ADDED", "object": object}).to_string()])
    });
    let job = Job { deadline: Instant::now() + Duration::from_secs(2), ..bench.job() };
    let check = Check::DeploymentAvailable { namespace: "kube-system".into(), name: "coredns".into() };
    let failure = wait_for(&job, &[check], &never).unwrap_err();
    let cause = "Deployment coredns has 0 of 1 replicas available: pod coredns-1 ErrImagePull: not found";
    assert_eq!(failure.cause, cause);
    assert!(requests.lock()[1].1.contains("labelSelector=a%2Fb%3Dc%2Ck8s-app%3Ddns"));
}
