//! A kubelet for tests: a node, a pod on it, and the log of the pod, which the API server reads as on every node.

use std::convert::Infallible;
use std::net::TcpListener;
use std::time::{Duration, SystemTime};

use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::routing::get;
use futures::stream::{repeat, unfold};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use crate::provider::serve_tls;
use crate::support::RestServer;

/// The log of a pod so far.
#[derive(Debug, Default)]
struct PodLog {
    lines: Vec<(SystemTime, String)>,
    ended: bool,
    /// What it has instead, again and again.
    endless: Option<Bytes>,
}

/// The parameters that the API server sends.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodLogQuery {
    #[serde(default)]
    follow: bool,
    tail_lines: Option<usize>,
    since_seconds: Option<u64>,
}

impl PodLog {
    /// The index of the first line that is asked for.
    fn first(&self, query: &PodLogQuery) -> usize {
        let age = Duration::from_secs(query.since_seconds.unwrap_or(u64::MAX));
        let is_new = |(at, _): &(SystemTime, String)| at.elapsed().unwrap_or_default() <= age;
        let since = self.lines.iter().position(is_new).unwrap_or(self.lines.len());
        since.max(self.lines.len().saturating_sub(query.tail_lines.unwrap_or(usize::MAX)))
    }
}

/// The pod of a Job on a node of its own.
pub(crate) struct FakeKubelet {
    log: watch::Sender<PodLog>,
    pods: Api<Pod>,
    job: String,
}

impl FakeKubelet {
    /// A new node with the pod of this Job. The pod has the service account.
    pub(crate) async fn start(rest: &RestServer, (namespace, account): (&str, &str), job: &str) -> Self {
        let (log, receiver) = watch::channel(PodLog::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = axum::Router::new()
            .route("/containerLogs/{namespace}/{pod}/{container}", get(answer))
            .with_state(receiver);
        serve_tls(listener, &rest.client_certificate("kubelet", &[]), router);

        let nodes: Api<Node> = Api::all(rest.admin().await);
        let node = serde_json::from_value(json!({"metadata": {"name": job}})).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let status = Patch::Merge(json!({"status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }}));
        nodes.patch_status(job, &PatchParams::default(), &status).await.unwrap();
        let pods: Api<Pod> = Api::namespaced(rest.admin().await, namespace);
        let pod = json!({
            "metadata": {"name": job, "labels": {"job-name": job}},
            "spec": {"nodeName": job, "serviceAccountName": account, "automountServiceAccountToken": false,
                "containers": [{"name": "runner", "image": "runner"}]},
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        Self { log, pods, job: job.to_owned() }
    }

    /// The pod writes a line.
    pub(crate) fn write(&self, line: &str) {
        self.write_before(Duration::ZERO, line);
    }

    /// The pod wrote a line some time ago.
    pub(crate) fn write_before(&self, age: Duration, line: &str) {
        let at = SystemTime::now().checked_sub(age).unwrap();
        self.log.send_modify(|log| log.lines.push((at, line.to_owned())));
    }

    /// The pod writes this text again and again, as fast as it is read.
    pub(crate) fn write_without_end(&self, text: String) {
        self.log.send_modify(|log| log.endless = Some(text.into()));
    }

    /// The pod ends.
    pub(crate) fn end(&self) {
        self.log.send_modify(|log| log.ended = true);
    }

    /// The pod is deleted, and its log with it.
    pub(crate) async fn delete_pod(&self) {
        self.end();
        let now = DeleteParams::default().grace_period(0);
        self.pods.delete(&self.job, &now).await.unwrap();
        for _ in 0..100 {
            if self.pods.get_opt(&self.job).await.unwrap().is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("pod {} exists 5 s after its deletion", self.job);
    }
}

/// The lines that exist, and with `follow` those that come until the pod ends.
async fn answer(State(log): State<watch::Receiver<PodLog>>, Query(query): Query<PodLogQuery>) -> Body {
    let endless = log.borrow().endless.clone();
    if let Some(text) = endless {
        return Body::from_stream(repeat(Ok::<_, Infallible>(text)));
    }
    let first = log.borrow().first(&query);
    let follow = query.follow;
    Body::from_stream(unfold((log, first), move |(mut log, next)| async move {
        let (text, count) = {
            let log = log.wait_for(|log| !follow || log.ended || log.lines.len() > next).await.ok()?;
            let text: String = log.lines[next..].iter().map(|(_, line)| format!("{line}\n")).collect();
            (text, log.lines.len())
        };
        (!text.is_empty()).then_some((Ok::<_, Infallible>(text), (log, count)))
    }))
}
