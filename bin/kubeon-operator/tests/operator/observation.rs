//! The operator observes the API server and the nodes of a business cluster. The business cluster is another API server, behind
//! a proxy that fails on demand.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kubeon_api::{KubernetesCluster, Phase};
use kubeon_envtest::{ApiServerOptions, FaultProxy, FaultRule, ProxyFault, RequestMatcher, TestApiServer};
use serde_json::{Value, json};

use crate::kubernetes_cluster::{end_job, phase};
use crate::lab::{Lab, TIMEOUT};

/// The business cluster, with one node.
struct ObservedCluster {
    server: TestApiServer,
    proxy: FaultProxy,
    client: Client,
}

impl ObservedCluster {
    async fn start() -> Self {
        let server = TestApiServer::start(ApiServerOptions::default()).await.unwrap();
        let (proxy, client) = (FaultProxy::before(&server).await.unwrap(), server.client().await.unwrap());
        let node = serde_json::from_value(json!({"metadata": {"name": "h1"}})).unwrap();
        Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
        let cluster = Self { server, proxy, client };
        cluster.set_node("True").await;
        cluster
    }

    async fn set_node(&self, ready: &str) {
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.patch_status("h1", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// Writes a report, as the master h1 does.
    async fn report(&self, report: Value) {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "kube-system");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubeon-masters"},
            "data": {"h1": report.to_string()}});
        let applied = PatchParams::apply("test").force();
        maps.patch("kubeon-masters", &applied, &Patch::Apply(map)).await.unwrap();
    }

    /// The kubeconfig of an observer through the proxy.
    fn kubeconfig(&self) -> String {
        self.proxy.kubeconfig_of_token(self.server.admin_token())
    }
}

/// Writes the kubeconfig of the observer, as the runner does.
async fn save_kubeconfig(lab: &Lab, kubeconfig: &str) {
    let secrets: Api<Secret> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let data = Patch::Merge(json!({"stringData": {"kubeconfig": kubeconfig}}));
    let name = format!("{}-shop-observer", lab.namespace);
    secrets.patch(&name, &PatchParams::default(), &data).await.unwrap();
}

/// Waits until a condition has this status and reason; returns its message.
async fn wait_condition(lab: &Lab, type_: &str, status: &str, reason: &str) -> String {
    let find = |object: &KubernetesCluster| {
        let conditions = &object.status.as_ref()?.conditions;
        let found = conditions.iter().find(|condition| condition.type_ == type_)?;
        (found.status == status && found.reason == reason).then(|| found.message.clone())
    };
    find(&lab.wait_kubernetes_cluster("shop", |object| find(object).is_some()).await).unwrap()
}

fn count(page: &str, word: &str) -> Option<String> {
    let name = format!(r#"kubeon_operator_observed_clusters{{word="{word}"}} "#);
    page.lines().find_map(|line| line.strip_prefix(&name)).map(str::to_owned)
}

/// The time in seconds since 1970.
fn seconds() -> i64 {
    Timestamp::now().as_second()
}

async fn running_cluster(lab: &Lab) {
    lab.declare("shop", "127.0.0.1").await;
    end_job(lab, "shop", "create-").await;
    lab.wait_kubernetes_cluster("shop", |object| phase(object) == Some(Phase::Running)).await;
}

#[tokio::test]
async fn ready_and_degraded_follow_the_business_cluster() {
    let (lab, cluster) = (Lab::open().await, ObservedCluster::start().await);
    lab.start_with(&["--leader-elect=false", "--observe-every=1"]);
    running_cluster(&lab).await;
    save_kubeconfig(&lab, &cluster.kubeconfig()).await;
    lab.wait_metrics(|page| count(page, "ready").as_deref() == Some("1")).await;
    is_asked_seldom(&cluster).await;

    cluster.report(json!({"at": seconds(), "firstEnd": 1_893_456_000, "membersDown": ["h3"]})).await;
    let message = wait_condition(&lab, "Degraded", "True", "EtcdMembersDown").await;
    assert_eq!(message, "members of etcd do not serve: h3");
    let message = wait_condition(&lab, "CertificatesRenewed", "True", "AsExpected").await;
    assert_eq!(message, "the first certificate ends on 2030-01-01 00:00 UTC");
    let first_end = "kubeon_operator_first_certificate_end_seconds 1893456000";
    lab.wait_metrics(|page| page.lines().any(|line| line == first_end)).await;
    let drift = json!({"count": 2, "first": ["/etc/kubernetes/admin.conf was changed"]});
    cluster.report(json!({"at": seconds(), "firstEnd": 1_893_456_000, "drift": drift})).await;
    wait_condition(&lab, "Degraded", "False", "AsExpected").await;
    let message = wait_condition(&lab, "Drifted", "True", "ChangedOnHosts").await;
    assert!(message.contains("/etc/kubernetes/admin.conf was changed and 1 more"), "{message}");
    lab.wait_metrics(|page| page.lines().any(|line| line == "kubeon_operator_drifted_clusters 1")).await;
    cluster.report(json!({"at": seconds(), "drift": {"count": 0}})).await;
    wait_condition(&lab, "Drifted", "False", "AsExpected").await;

    cluster.set_node("False").await;
    let message = wait_condition(&lab, "Degraded", "True", "NodesNotReady").await;
    assert_eq!(message, "1 of 1 nodes are not ready: h1");
    cluster.set_node("True").await;
    wait_condition(&lab, "Degraded", "False", "AsExpected").await;

    // The API server answers, but is not ready.
    let sick = FaultRule { when: RequestMatcher::every_request(), how: ProxyFault::Status(500) };
    let rule = cluster.proxy.fail(sick);
    let message = wait_condition(&lab, "Ready", "False", "APIUnreachable").await;
    assert!(message.contains("/readyz answers 500"), "{message}");
    lab.wait_metrics(|page| count(page, "unreachable").as_deref() == Some("1")).await;
    cluster.proxy.remove(rule);
    wait_condition(&lab, "Ready", "True", "Done").await;

    // Nothing listens any more. A restarted operator keeps what was observed, and then observes again.
    cluster.proxy.fail(FaultRule { when: RequestMatcher::every_request(), how: ProxyFault::CutBefore });
    let message = wait_condition(&lab, "Ready", "False", "APIUnreachable").await;
    assert!(message.contains("https://127.0.0.1:"), "{message}");
    lab.wait_event("shop", "APIUnreachable", "no API server of the cluster answers").await;
    lab.kill().await;
    lab.start_with(&["--leader-elect=false", "--observe-every=1"]);
    lab.wait_metrics(|page| count(page, "unreachable").as_deref() == Some("1")).await;
    wait_condition(&lab, "Ready", "False", "APIUnreachable").await;
    cluster.proxy.restore();
    wait_condition(&lab, "Ready", "True", "Done").await;
    lab.wait_event("shop", "APIAnswers", "").await;
}

/// Waits until the cluster is being renewed; returns the name of the Job.
async fn wait_renewal(lab: &Lab) -> String {
    let renews = |object: &KubernetesCluster| {
        let job = object.status.as_ref().and_then(|status| status.job_name.as_deref());
        job.is_some_and(|job| job.starts_with("renew-"))
    };
    let object = lab.wait_kubernetes_cluster("shop", renews).await;
    object.status.unwrap().job_name.unwrap()
}

#[tokio::test]
async fn a_cluster_that_refuses_the_observer_is_unknown_and_its_kubeconfig_is_renewed() {
    let (lab, cluster) = (Lab::open().await, ObservedCluster::start().await);
    lab.start_with(&["--leader-elect=false", "--observe-every=1"]);
    running_cluster(&lab).await;
    save_kubeconfig(&lab, &cluster.kubeconfig()).await;
    lab.wait_metrics(|page| count(page, "ready").as_deref() == Some("1")).await;

    let refuse = FaultRule { when: RequestMatcher::every_request(), how: ProxyFault::Status(401) };
    let rule = cluster.proxy.fail(refuse);
    let message = wait_condition(&lab, "Ready", "Unknown", "ObserverRefused").await;
    assert!(message.contains("refuses the credential of the observer: 401"), "{message}");
    lab.wait_event("shop", "ObserverRefused", "the operator cannot observe the cluster").await;
    lab.wait_metrics(|page| count(page, "unknown").as_deref() == Some("1")).await;
    let job = wait_renewal(&lab).await;
    cluster.proxy.remove(rule);
    wait_condition(&lab, "Ready", "True", "Done").await;
    lab.end_job(&job, true).await;
    lab.wait_kubernetes_cluster("shop", |object| phase(object) == Some(Phase::Running)).await;

    // The authority of the cluster is another one than that in the kubeconfig.
    let proxy = FaultProxy::before(TestApiServer::shared().await.unwrap()).await.unwrap();
    let foreign: Value = serde_json::from_str(&proxy.kubeconfig_of_token("token")).unwrap();
    let mut mixed: Value = serde_json::from_str(&cluster.kubeconfig()).unwrap();
    let authority = "certificate-authority-data";
    mixed["clusters"][0]["cluster"][authority] = foreign["clusters"][0]["cluster"][authority].clone();
    save_kubeconfig(&lab, &mixed.to_string()).await;
    let message = wait_condition(&lab, "Ready", "Unknown", "ObserverRefused").await;
    assert!(message.contains("invalid peer certificate"), "{message}");
    save_kubeconfig(&lab, &cluster.kubeconfig()).await;
    wait_condition(&lab, "Ready", "True", "Done").await;
}

/// The operator has one connection, and at most four requests in a period of one second. None is a write.
async fn is_asked_seldom(cluster: &ObservedCluster) {
    cluster.proxy.clear_requests();
    let begin = std::time::Instant::now();
    let enough = async {
        while cluster.proxy.requests().len() < 8 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, enough).await.expect("the operator observes");
    let periods = begin.elapsed().as_secs() + 1;
    let requests = cluster.proxy.requests();
    assert!(u64::try_from(requests.len()).unwrap() <= periods * 4, "{requests:?} in {periods} s");
    assert!(cluster.proxy.writes().is_empty(), "an observer changes nothing");
    assert_eq!(connections_to(&cluster.proxy.url()), 1);
}

/// The number of connections from this machine to the port in a URL.
fn connections_to(url: &str) -> usize {
    let port: u16 = url.rsplit_once(':').unwrap().1.parse().unwrap();
    let (remote, established) = (format!(":{port:04X}"), "01");
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let lines = table.lines().filter(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(2).is_some_and(|address| address.ends_with(&remote)) && fields[3] == established
    });
    lines.count()
}

/// How often the operator has read a Secret.
fn secret_reads(page: &str) -> u64 {
    let reads = page.lines().filter(|line| {
        line.starts_with("kubeon_operator_requests_total{")
            && line.contains(r#"verb="get""#)
            && line.contains(r#"kind="Secret""#)
    });
    reads.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

/// Saves a kubeconfig that the operator must not use, and waits until it has tried to. It reads the Secret before each attempt.
async fn is_not_used(lab: &Lab, kubeconfig: &Value) {
    save_kubeconfig(lab, &kubeconfig.to_string()).await;
    let before = secret_reads(&lab.metrics().await);
    let page = lab.wait_metrics(|page| secret_reads(page) >= before + 3).await;
    assert_eq!(count(&page, "unknown").as_deref(), Some("1"), "{page}");
}

#[tokio::test]
async fn a_kubeconfig_that_a_tenant_wrote_starts_no_program_and_reaches_no_other_address() {
    let (lab, cluster) = (Lab::open().await, ObservedCluster::start().await);
    lab.start_with(&["--leader-elect=false", "--observe-every=1"]);
    running_cluster(&lab).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("started");
    let good: Value = serde_json::from_str(&cluster.kubeconfig()).unwrap();
    let mut program = good.clone();
    program["users"][0]["user"] = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [file], "interactiveMode": "Never"}});
    is_not_used(&lab, &program).await;
    assert!(!file.exists(), "a program was started");
    // The address belongs to this machine, but is no master of the cluster.
    let mut other = good.clone();
    other["clusters"][0]["cluster"]["server"] = cluster.proxy.url().replace("127.0.0.1", "127.0.0.2").into();
    is_not_used(&lab, &other).await;
    assert!(cluster.proxy.requests().is_empty(), "{:?}", cluster.proxy.requests());
    save_kubeconfig(&lab, &good.to_string()).await;
    lab.wait_metrics(|page| count(page, "ready").as_deref() == Some("1")).await;
}

/// Bytes of memory that the optimised operator may need with 1,000 observed clusters, and any operator for their observation.
const MOST_MEMORY: u64 = 64 << 20;

/// The optimised program beside this one, if it was compiled, and whether there is one. `cargo build --release` compiles it.
fn measured_program() -> (PathBuf, bool) {
    let own = Path::new(env!("CARGO_BIN_EXE_kubeon-operator"));
    let optimised = own.ancestors().nth(2).map(|target| target.join("release/kubeon-operator"));
    match optimised.filter(|program| program.exists()) {
        Some(program) => (program, true),
        None => (own.to_owned(), false),
    }
}

/// Clusters that are observed and never created, because they are paused.
#[tokio::test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "prints the measured values")]
async fn measure_the_memory_of_1000_observed_clusters() {
    let (lab, cluster) = (Lab::open().await, ObservedCluster::start().await);
    cluster.report(json!({"at": seconds(), "firstEnd": 1_893_456_000})).await;
    let (kubeconfig, lab) = (cluster.kubeconfig(), &lab);
    let creates = (0..1000).map(|number| {
        let (name, kubeconfig) = (format!("c{number}"), kubeconfig.as_str());
        async move {
            let object = json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": name},
                "spec": {"paused": true, "cluster": {"masterList": [{"ip": "127.0.0.1"}]}}});
            let object: KubernetesCluster = serde_json::from_value(object).unwrap();
            lab.kubernetes_clusters().create(&PostParams::default(), &object).await.unwrap();
            let secret = json!({"metadata": {"name": format!("{}-{name}-observer", lab.namespace)},
                "stringData": {"kubeconfig": kubeconfig}});
            lab.put::<Secret>(serde_json::from_value(secret).unwrap()).await;
        }
    });
    futures::stream::iter(creates).buffer_unordered(16).collect::<Vec<()>>().await;
    let (program, is_optimised) = measured_program();
    lab.start_program_with(&program, &["--leader-elect=false", "--observe-every=0"]);
    let all = r#"kubeon_operator_objects{word="KubernetesCluster"} 1000"#;
    lab.wait_metrics(|page| page.lines().any(|line| line == all)).await;
    let unobserved = lab.memory();
    lab.kill().await;
    // The report of a master counts for minutes only.
    cluster.report(json!({"at": seconds(), "firstEnd": 1_893_456_000})).await;
    lab.start_program(&program);
    lab.wait_metrics(|page| count(page, "ready").as_deref() == Some("1000")).await;
    let first = lab.memory();
    cluster.proxy.clear_requests();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (requests, connections) = (cluster.proxy.requests().len(), connections_to(&cluster.proxy.url()));
    let last = lab.memory();
    println!(
        "{}, 1000 clusters: {} MiB; observed {} MiB, a minute later {} MiB; {requests} requests in a minute, {connections} connections",
        program.display(),
        unobserved >> 20,
        first >> 20,
        last >> 20
    );
    assert!(last - unobserved <= MOST_MEMORY, "{last}");
    assert!(!is_optimised || last <= MOST_MEMORY, "{last}");
}
