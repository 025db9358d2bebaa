//! Each request of the operator, read or write, is refused, lost, or not answered.
//!
//! Several scenarios are executed in parallel, each with a fault at another request: the first, the second, and so
//! on until no request is left.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use futures::stream::{self, StreamExt as _};
use kubeon_envtest::{FaultRule, ProxyFault, RequestMatcher};

use crate::events::wait_once;
use crate::lab::Lab;
use crate::scenarios;

/// The kinds of faults.
pub(crate) const FAULTS: [ProxyFault; 8] = [
    ProxyFault::Status(409),
    ProxyFault::Status(429),
    ProxyFault::Status(500),
    ProxyFault::Status(503),
    ProxyFault::Hang,
    ProxyFault::HangAfter,
    ProxyFault::LoseAnswer,
    ProxyFault::Refuse,
];
/// Parallel scenarios with one kind of fault.
const PARALLEL: usize = 4;
/// More requests than any scenario has.
const MOST: usize = 64;
/// The known numbers of writes of the scenarios, without events.
const SHELL_WRITES: usize = 13;
/// The events of a shell operation, and those of its Cluster.
const SHELL_EVENTS: [&str; 4] = ["Started", "Succeeded", "OperationStarted", "OperationSucceeded"];
const CREATE_WRITES: usize = 14;
const SCALE_UP_WRITES: usize = 13;
const DELETE_WRITES: usize = 14;

/// The failed request of each part of a scenario, such as `create jobs`.
type Failed = Vec<Option<String>>;

/// Executes a part with a fault at the n-th request about `name`, without events. Returns that request.
async fn with_fault(
    lab: &Lab,
    n: usize,
    fault: &ProxyFault,
    name: &str,
    part: impl Future<Output = ()>,
) -> Option<String> {
    let when = RequestMatcher::nth_request(n).except("events").about(name);
    let rule = lab.proxy.fail(FaultRule { when, how: fault.clone() });
    part.await;
    if lab.proxy.matches(rule).failed.is_empty() {
        later_request(lab).await;
    }
    lab.proxy.remove(rule).failed.pop()
}

/// Waits for a request that the operator sends for an object that is created now. Requests that were due before
/// reach the proxy before it.
async fn later_request(lab: &Lab) {
    static MARKERS: AtomicUsize = AtomicUsize::new(0);
    let name = format!("marker-{}", MARKERS.fetch_add(1, Ordering::Relaxed));
    lab.cluster(&name).await;
    lab.wait_reported(&name).await;
}

/// Executes scenarios with a fault at every request, of every kind. Returns the failed requests of each part.
/// Names contain a letter that no UID has, so that a rule matches only its own requests.
async fn at_every_request(
    known: &[usize],
    scenario: impl AsyncFn(usize, usize) -> Failed,
) -> Vec<BTreeSet<String>> {
    let scenario = &scenario;
    let of_kind = |kind: usize| async move {
        let mut failed = vec![BTreeSet::new(); known.len()];
        let mut requests = vec![None; known.len()];
        let mut results =
            pin!(stream::iter(1..MOST).map(|n| scenario(kind, n)).buffered(PARALLEL).enumerate());
        while requests.iter().any(Option::is_none) {
            let Some((before, parts)) = results.next().await else { break };
            for (part, request) in parts.into_iter().enumerate() {
                match request {
                    Some(request) => failed[part].extend([request]),
                    None => _ = requests[part].get_or_insert(before),
                }
            }
        }
        for (requests, writes) in requests.into_iter().zip(known) {
            let requests = requests.unwrap_or_else(|| panic!("more than {MOST} requests"));
            assert!(
                requests > *writes,
                "{:?} failed {requests} requests, there are {writes} writes",
                FAULTS[kind]
            );
        }
        failed
    };
    let each = join_all((0..FAULTS.len()).map(of_kind)).await;
    (0..known.len()).map(|part| each.iter().flat_map(|kind| kind[part].clone()).collect()).collect()
}

fn assert_all(failed: &BTreeSet<String>, wanted: &[&str]) {
    for request in wanted {
        assert!(failed.contains(*request), "{request} never failed, only {failed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_operation_runs_one_job_when_any_request_fails() {
    let lab = Lab::open().await;
    lab.start_with(&["--leader-elect=false", "--request-timeout=2"]);
    let scenario = async |kind: usize, n: usize| {
        let name = format!("s{kind}-{n:02}");
        let failed = with_fault(&lab, n, &FAULTS[kind], &name, scenarios::shell(&lab, &name)).await;
        // The answer of the write may be lost, but not its event.
        wait_once(&lab, "default", &name, &SHELL_EVENTS).await;
        vec![failed]
    };
    let failed = at_every_request(&[SHELL_WRITES], scenario).await;
    let all = [
        "get configmaps",
        "get secrets",
        "create configmaps",
        "create secrets",
        "delete secrets",
        "create jobs",
        "patch clusters/status",
        "patch clusteroperations",
        "patch clusteroperations/status",
        "get pods/log",
    ];
    assert_all(&failed[0], &all);
}

/// Contract B, case 43.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b43_each_change_of_a_cluster_is_made_once_when_any_request_fails() {
    let lab = Lab::open().await;
    lab.start_with(&["--leader-elect=false", "--request-timeout=2"]);
    let scenario = async |kind: usize, n: usize| {
        let (name, lab) = (format!("w{kind}-{n:02}"), &lab);
        let (master, worker) = (format!("10.1.{kind}.{n}"), format!("10.2.{kind}.{n}"));
        let create = with_fault(lab, n, &FAULTS[kind], &name, scenarios::create(lab, &name, &master)).await;
        let scale_up =
            with_fault(lab, n, &FAULTS[kind], &name, scenarios::scale_up(lab, &name, &worker)).await;
        let delete = with_fault(lab, n, &FAULTS[kind], &name, scenarios::delete(lab, &name)).await;
        vec![create, scale_up, delete]
    };
    let failed = at_every_request(&[CREATE_WRITES, SCALE_UP_WRITES, DELETE_WRITES], scenario).await;
    let every_time = [
        "create clusteroperations",
        "patch kubernetesclusters/status",
        "create configmaps",
        "create secrets",
        "create jobs",
        "patch clusteroperations/status",
    ];
    for part in &failed {
        assert_all(part, &every_time);
    }
    assert_all(&failed[0], &["patch kubernetesclusters", "patch clusteroperations"]);
    assert_all(
        &failed[1],
        &["patch kubernetesclusters", "patch clusteroperations", "patch secrets", "patch configmaps"],
    );
    let deletion =
        ["patch kubernetesclusters", "delete secrets", "delete configmaps", "delete clusteroperations"];
    assert_all(&failed[2], &deletion);
}
