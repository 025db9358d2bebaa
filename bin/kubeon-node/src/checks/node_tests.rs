use std::io::BufRead as _;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use kubeon_wire::{Category, Check, StepFailure};

use super::*;
use crate::checks::wait_for;
use crate::job::Job;
use crate::paths;
use crate::testing::Bench;
use crate::testing_api::{Reply, Requests, serve};

const IDENTITY: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000
}

/// A kubelet that answers about its health.
fn kubelet(healthy: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            std::io::BufReader::new(&stream).read_line(&mut line).unwrap();
            let status = if healthy.load(Ordering::Relaxed) { "200 OK" } else { "500 Internal Server Error" };
            write!(stream, "HTTP/1.0 {status}\r\n\r\nok").unwrap();
        }
    });
    port
}

/// A host whose kubelet runs, with an API server that reports this Lease.
fn bench(renewed: impl Fn(usize) -> &'static str + Send + Sync + 'static) -> (Bench, Requests) {
    bench_that_reported("2999-01-01T00:00:00Z", renewed)
}

/// The same, with the time of the kubelet's last report.
fn bench_that_reported(
    reported: &'static str,
    renewed: impl Fn(usize) -> &'static str + Send + Sync + 'static,
) -> (Bench, Requests) {
    let mut bench = Bench::new();
    let requests = serve(&mut bench, move |_, path, number| {
        let body = if path.starts_with("/api/v1/nodes/") {
            serde_json::json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": reported}]}})
        } else {
            serde_json::json!({"spec": {"renewTime": renewed(number)}})
        };
        Reply::Json(200, body.to_string())
    });
    let read = |path| std::fs::read_to_string(bench.host.root.at(path)).unwrap();
    bench.write(IDENTITY, &(read(paths::ADMIN_CERTIFICATE) + &read(paths::ADMIN_KEY)));
    bench.services.running.lock().insert("kubelet.service".into());
    *bench.services.started.lock() = monotonic();
    (bench, requests)
}

fn prove(bench: &Bench, health_port: u16, milliseconds: u64) -> Result<(), StepFailure> {
    prove_version(bench, health_port, milliseconds, None)
}

fn prove_version(
    bench: &Bench,
    health_port: u16,
    milliseconds: u64,
    version: Option<&str>,
) -> Result<(), StepFailure> {
    let api = bench.host.api.trim_start_matches("https://").parse::<std::net::SocketAddrV4>().unwrap();
    let check = Check::NodeWorks {
        node: "h4".parse().unwrap(),
        version: version.map(|version| version.parse().unwrap()),
        units: vec!["kubelet.service".into()],
        health_port,
        address: *api.ip(),
        port: api.port(),
        ca_file: paths::API_CA.to_owned(),
        identity_file: IDENTITY.to_owned(),
        may_lack_network: false,
    };
    let job = Job { deadline: Instant::now() + Duration::from_millis(milliseconds), ..bench.job() };
    wait_for(&job, &[check], &|| Ok(()))
}

fn healthy() -> u16 {
    kubelet(Arc::new(AtomicBool::new(true)))
}

#[test]
fn a_lease_that_was_renewed_after_the_start_is_waited_for() {
    let (bench, requests) =
        bench(
            |number| if number < 6 { "2020-01-01T00:00:00.000000Z" } else { "2999-01-01T00:00:00.000000Z" },
        );
    prove(&bench, healthy(), 4000).unwrap();
    let requests = requests.lock();
    assert_eq!(requests[0].1, "/api/v1/nodes/h4");
    assert_eq!(requests[1].1, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/h4");
    assert_eq!(requests.len(), 8, "each attempt reads the node and its Lease");
}

#[test]
fn a_lease_from_before_the_start_proves_nothing() {
    let (bench, _) = bench(|_| "2020-01-01T00:00:00.000000Z");
    let failure = prove(&bench, healthy(), 500).unwrap_err();
    assert_eq!(failure.category, Category::Timeout);
    assert_eq!(failure.cause, "the kubelet has not renewed the Lease of node h4 since its last start");
}

#[test]
fn network_agents_that_restart_with_the_kubelet_need_no_other_lease() {
    let (kubelet, second) = (5_000_000_000, 1_000_000);
    for agent in ["kube-proxy.service", "flanneld.service"] {
        assert!(!needs_lease(agent, kubelet + second, kubelet), "{agent}");
        assert!(!needs_lease(agent, kubelet - second, kubelet), "{agent}");
        assert!(needs_lease(agent, kubelet + 61 * second, kubelet), "{agent} alone was restarted");
    }
    for used in ["containerd.service", "kubelet.service", "kube-apiserver.service", "kube-apiserver.pod"] {
        assert!(needs_lease(used, kubelet + second, kubelet), "the kubelet uses {used}");
    }
}

#[test]
fn a_report_from_before_the_start_proves_nothing() {
    let (bench, _) = bench_that_reported("2020-01-01T00:00:00Z", |_| "2999-01-01T00:00:00.000000Z");
    let failure = prove(&bench, healthy(), 500).unwrap_err();
    assert_eq!(failure.cause, "the kubelet has not reported node h4 as Ready since its last start");
}

/// A host with this pod, whose kubelet reports v1.37.2.
fn bench_with_pod(pod: serde_json::Value) -> (Bench, Requests) {
    let mut bench = Bench::new();
    let requests = serve(&mut bench, move |_, path, _| {
        let body = if path.starts_with("/api/v1/nodes/") {
            let ready = serde_json::json!({"type": "Ready", "status": "True", "lastHeartbeatTime": "2999-01-01T00:00:00Z"});
            let info = serde_json::json!({"kubeletVersion": "v1.37.2"});
            serde_json::json!({"status": {"nodeInfo": info, "conditions": [ready]}})
        } else if path.starts_with("/api/v1/pods") {
            serde_json::json!({"items": [pod]})
        } else {
            serde_json::json!({"spec": {"renewTime": "2999-01-01T00:00:00.000000Z"}})
        };
        Reply::Json(200, body.to_string())
    });
    let read = |path| std::fs::read_to_string(bench.host.root.at(path)).unwrap();
    bench.write(IDENTITY, &(read(paths::ADMIN_CERTIFICATE) + &read(paths::ADMIN_KEY)));
    bench.services.running.lock().insert("kubelet.service".into());
    *bench.services.started.lock() = monotonic();
    (bench, requests)
}

fn pod(created: &str, ready: &str, since: &str) -> serde_json::Value {
    let condition = serde_json::json!({"type": "Ready", "status": ready, "lastTransitionTime": since,
                                       "reason": "ContainersNotReady"});
    serde_json::json!({"metadata": {"namespace": "shop", "name": "web", "creationTimestamp": created},
                       "status": {"phase": "Running", "conditions": [condition]}})
}

#[test]
fn the_kubelet_must_report_its_new_version() {
    let (bench, requests) = bench_with_pod(pod("2020-01-01T00:00:00Z", "True", "2999-01-01T00:00:00Z"));
    prove_version(&bench, healthy(), 4000, Some("v1.37.2")).unwrap();
    assert_eq!(requests.lock()[2].1, "/api/v1/pods?fieldSelector=spec.nodeName%3Dh4");
    let failure = prove_version(&bench, healthy(), 300, Some("v1.38.0")).unwrap_err();
    assert_eq!(failure.cause, "node h4 reports kubelet v1.37.2, not v1.38.0");
}

#[test]
fn pods_that_were_ready_before_must_be_ready_again() {
    let (old, late) = ("2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z");
    let (bench, _) = bench_with_pod(pod(old, "False", late));
    let failure = prove_version(&bench, healthy(), 300, Some("v1.37.2")).unwrap_err();
    let text = "pod shop/web of node h4 was ready before its kubelet started: ContainersNotReady";
    assert_eq!(failure.cause, text);
    prove(&bench, healthy(), 4000).unwrap();
    let mut ends = pod(old, "False", late);
    ends["metadata"]["deletionTimestamp"] = late.into();
    let mut done = pod(old, "False", late);
    done["status"]["phase"] = "Succeeded".into();
    for accepted in [pod(old, "False", old), pod(late, "False", late), ends, done] {
        let (bench, _) = bench_with_pod(accepted);
        prove_version(&bench, healthy(), 4000, Some("v1.37.2")).unwrap();
    }
}

#[test]
fn the_kubelet_must_run_and_be_healthy() {
    let (bench, _) = bench(|_| "2999-01-01T00:00:00.000000Z");
    let failure = prove(&bench, kubelet(Arc::new(AtomicBool::new(false))), 300).unwrap_err();
    assert_eq!(failure.cause, "the kubelet is not healthy: HTTP/1.0 500 Internal Server Error");
    bench.services.running.lock().clear();
    let failure = prove(&bench, healthy(), 300).unwrap_err();
    assert_eq!(failure.cause, "kubelet.service is inactive (dead)");
}

#[test]
fn times_of_kubernetes_are_read() {
    assert_eq!(microseconds("1970-01-01T00:00:00.000001Z"), Some(1));
    assert_eq!(microseconds("2000-02-29T12:30:15Z"), Some(951_827_415_000_000));
    assert_eq!(microseconds("2026-11-25T05:00:00.5Z"), Some(1_795_582_800_500_000));
    for text in ["", "now", "2026-11-25", "2026-11-25T05:00Z", "2026-11-25T05:00:00+01:00"] {
        assert_eq!(microseconds(text), None, "{text}");
    }
}
