//! Measurements of the gateway as a process of its own, with 1,000 clusters. Run by hand; docs/benchmarks.md has the results.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::api::{Api, PatchParams, PostParams, WatchEvent, WatchParams};
use kubeon_api::KubernetesCluster;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::{RestServer, rest};

const CLUSTERS: usize = 1000;
const STREAMS: usize = 10_000;
const LISTS: usize = 400;
const EVENTS: usize = 200;
/// The most milliseconds until 99 of 100 lists are read, by a program of the profile `release`; by another one, half of the lists.
const MOST_FOR_LIST: f64 = 50.0;
/// The most milliseconds that 99 of 100 events arrive later than in the API server's own watch.
const MOST_FOR_EVENT: f64 = 20.0;

/// The optimised program beside this one, if it was compiled, and whether it is an optimised one. `cargo build --release` compiles it.
fn measured_program() -> (PathBuf, bool) {
    let own = Path::new(env!("CARGO_BIN_EXE_kubeon-gateway"));
    let optimised = own.ancestors().nth(2).map(|target| target.join("release/kubeon-gateway"));
    match optimised.filter(|program| program.exists()) {
        Some(program) => (program, true),
        None => (own.to_owned(), own.iter().any(|part| part == "release")),
    }
}

/// Resident memory of a process in MiB.
pub(crate) fn memory(process: &Child) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<f64>().unwrap() / 1024.0
}

fn percentile(times: &mut [Duration], part: f64) -> f64 {
    times.sort_unstable();
    let index = ((times.len() - 1) as f64 * part).round() as usize;
    times[index].as_secs_f64() * 1000.0
}

#[allow(clippy::print_stderr, reason = "prints measured numbers")]
fn print(text: &str) {
    eprintln!("{text}");
}

async fn stream(rest: &RestServer, path: &str) -> TlsStream<TcpStream> {
    let connector = TlsConnector::from(Arc::new(rest.tls_client()));
    let tcp = TcpStream::connect(rest.address).await.unwrap();
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = connector.connect(name, tcp).await.unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        rest.server.admin_token()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// Reads until the text has appeared in the stream.
async fn read_until(stream: &mut TlsStream<TcpStream>, wanted: &str) {
    let (mut seen, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    while !String::from_utf8_lossy(&seen).contains(wanted) {
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the stream ended");
        let keep = seen.len().saturating_sub(4096);
        seen.drain(..keep);
        seen.extend_from_slice(&buffer[..read]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes: 10,000 streams"]
async fn measure_lists_streams_and_memory() {
    let rest = rest().await;
    let clusters: Api<KubernetesCluster> = Api::namespaced(rest.admin().await, "default");
    for number in 0..CLUSTERS {
        let object = json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster",
            "metadata": {"name": format!("measured-{number:04}")},
            "spec": {"cluster": {"masterList": [{"ip": format!("10.9.{}.{}", number / 250, number % 250 + 1)}]}}});
        clusters.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }
    let (path, is_optimised) = measured_program();
    print(&path.display().to_string());
    let mut program = Command::new(path);
    program.arg(format!("--connections-per-user={}", 2 * STREAMS));
    let (mut process, address) = rest.start_process(program).await;
    let measured = rest.at(address);
    print(&format!("memory with {CLUSTERS} clusters: {:.1} MiB", memory(&process)));
    lists(&measured, is_optimised).await;
    latency(&measured, &clusters).await;
    many_streams(&measured, &process, &clusters).await;
    process.kill().unwrap();
    process.wait().unwrap();
}

async fn lists(rest: &RestServer, is_optimised: bool) {
    let (agent, url) = (rest.agent(None), rest.url("/api/v2/clusters?limit=1000"));
    let bearer = format!("Bearer {}", rest.server.admin_token());
    let read = move || {
        let start = Instant::now();
        let mut answer = agent.get(&url).header("authorization", &bearer).call().unwrap();
        let bytes = answer.body_mut().read_to_vec().unwrap();
        (start.elapsed(), bytes)
    };
    // The first one connects, and the gateway asks the meta cluster about the token and the right, which it remembers for 10 s.
    let all = move || {
        let (first, bytes) = read();
        (first, bytes, (0..LISTS).map(|_| read().0).collect::<Vec<_>>())
    };
    let (first, bytes, mut times) = tokio::task::spawn_blocking(all).await.unwrap();
    let list: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), CLUSTERS);
    let (middle, most) = (percentile(&mut times, 0.5), percentile(&mut times, 0.99));
    print(&format!(
        "list of {CLUSTERS} clusters, {} KiB: first {:.1} ms, then p50 {middle:.1} ms, p99 {most:.1} ms",
        bytes.len() / 1024,
        first.as_secs_f64() * 1000.0
    ));
    let measured = if is_optimised { most } else { middle };
    assert!(measured <= MOST_FOR_LIST, "{measured} ms");
}

/// How much later than the API server's own watch an event arrives.
async fn latency(rest: &RestServer, clusters: &Api<KubernetesCluster>) {
    let mut events = stream(rest, "/api/v2/watch/clusters?namespace=default").await;
    read_until(&mut events, "event: synced").await;
    let mut direct = clusters.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(1), direct.next()).await {}
    let (mut direct_times, mut times) = (Vec::new(), Vec::new());
    for number in 0..EVENTS {
        let region = format!("r{number}");
        let patch = kube::api::Patch::Merge(json!({"metadata": {"labels": {"measured": region}}}));
        let wanted = "\"measured-0000\"";
        let start = Instant::now();
        let how = PatchParams::default();
        let change = clusters.patch("measured-0000", &how, &patch);
        let seen_directly = async {
            while let Some(event) = direct.next().await {
                if matches!(event, Ok(WatchEvent::Modified(_))) {
                    return start.elapsed();
                }
            }
            panic!("the watch ended");
        };
        let seen = async {
            read_until(&mut events, wanted).await;
            start.elapsed()
        };
        let (changed, direct_time, time) = tokio::join!(change, seen_directly, seen);
        changed.unwrap();
        direct_times.push(direct_time);
        times.push(time.saturating_sub(direct_time));
    }
    let most = percentile(&mut times, 0.99);
    print(&format!(
        "an event in the API server's watch: p50 {:.1} ms; in a stream, later than that: p50 {:.1} ms, p99 {most:.1} ms",
        percentile(&mut direct_times, 0.5),
        percentile(&mut times, 0.5)
    ));
    assert!(most <= MOST_FOR_EVENT, "{most} ms");
}

async fn many_streams(rest: &RestServer, process: &Child, clusters: &Api<KubernetesCluster>) {
    let (before, start) = (memory(process), Instant::now());
    let mut open = Vec::with_capacity(STREAMS);
    for _ in 0..STREAMS {
        let mut one = stream(rest, "/api/v2/watch/clusters?namespace=kubeon-system").await;
        read_until(&mut one, "event: synced").await;
        open.push(one);
    }
    print(&format!(
        "{STREAMS} streams: opened in {:.1} s, {:.1} MiB, {:.1} KiB each",
        start.elapsed().as_secs_f64(),
        memory(process),
        (memory(process) - before) * 1024.0 / STREAMS as f64
    ));
    let object = json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster",
        "metadata": {"name": "for-all", "namespace": "kubeon-system"},
        "spec": {"cluster": {"masterList": [{"ip": "10.99.0.1"}]}}});
    let system: Api<KubernetesCluster> = Api::namespaced(clusters.clone().into_client(), "kubeon-system");
    let start = Instant::now();
    system.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let reached = Arc::new(AtomicUsize::new(0));
    let readers = open.into_iter().map(|mut one| {
        let reached = reached.clone();
        async move {
            read_until(&mut one, "for-all").await;
            reached.fetch_add(1, Ordering::Relaxed);
        }
    });
    futures::future::join_all(readers).await;
    print(&format!(
        "one event reached {} streams in {:.2} s",
        reached.load(Ordering::Relaxed),
        start.elapsed().as_secs_f64()
    ));
}
