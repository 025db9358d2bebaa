//! Requests to the API server.

mod log;

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{
    Api, DeleteParams, GetParams, LogParams, Patch, PatchParams, PostParams, Preconditions, Request,
};
use serde_json::Value;
use tokio::time::error::Elapsed;

use crate::concurrency::{ConcurrencyLimiter, HighPermit, NormalPermit};
use crate::error::{LinkError, RetryClass};

/// The timeout for the read of a log.
const LOG_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout for following a log.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(600);

/// The API path of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourcePath<'a> {
    /// Group and version: `batch/v1`, `v1`.
    pub api: &'a str,
    /// The plural: `jobs`.
    pub plural: &'a str,
    /// The namespace; empty for kinds without one.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
}

impl ResourcePath<'_> {
    fn url(&self) -> String {
        let root = if self.api.contains('/') { "/apis" } else { "/api" };
        if self.namespace.is_empty() {
            return format!("{root}/{}/{}", self.api, self.plural);
        }
        format!("{root}/{}/namespaces/{}/{}", self.api, self.namespace, self.plural)
    }
}

/// The verb of a request, with its body.
#[derive(Debug, Clone, PartialEq)]
pub enum Verb {
    /// Read the object.
    Get,
    /// Read the object at this version or later. The API server answers from its cache, which costs less.
    GetAsOf(u64),
    /// Create the object.
    Create(Value),
    /// A JSON merge patch.
    Merge(Value),
    /// A strategic merge patch.
    Strategic(Value),
    /// A JSON merge patch of the status.
    Status(Value),
    /// Delete the object in the background; only with this UID unless empty.
    Delete(String),
}

impl Verb {
    /// One word, for metrics.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Get | Self::GetAsOf(_) => "get",
            Self::Create(_) => "create",
            Self::Merge(_) | Self::Strategic(_) => "patch",
            Self::Status(_) => "patch-status",
            Self::Delete(_) => "delete",
        }
    }
}

/// The priority of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// It waits, and few such requests are sent at the same time. No user waits for it.
    Low,
    /// It waits until the number of parallel requests is below the limit.
    Normal,
    /// It is sent at once, because a user waits for it.
    High,
}

/// A permit for one request. A caller may stop waiting for it; then no request is sent.
pub struct RequestPermit<'h> {
    _place: HeldPermit<'h>,
}

/// The place of the request in the limiter.
enum HeldPermit<'h> {
    High { _permit: HighPermit<'h> },
    Normal { _permit: NormalPermit<'h> },
}

/// Sends requests with one field manager.
#[derive(Clone)]
pub struct KubeWriter {
    client: Client,
    manager: &'static str,
    timeout: Duration,
    limiter: Arc<ConcurrencyLimiter>,
}

impl KubeWriter {
    /// A writer with this client. `timeout` applies to the whole answer; `manager` is the field manager of
    /// the writes.
    #[must_use]
    pub fn new(client: Client, manager: &'static str, timeout: Duration) -> Self {
        Self { client, manager, timeout, limiter: Arc::default() }
    }

    /// The current limit of parallel requests that are not urgent.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limiter.limit()
    }

    /// Waits until no urgent request is sent or expected, at most 1.5 s.
    pub async fn idle(&self) {
        self.limiter.idle().await;
    }

    /// Waits for a permit and sends one request. Returns the object, or a status object after a deletion.
    ///
    /// # Errors
    /// When it was refused, lost, or not answered in time.
    pub async fn send(
        &self,
        path: ResourcePath<'_>,
        verb: &Verb,
        priority: Priority,
    ) -> Result<Value, LinkError> {
        let permit = self.permit(priority).await;
        self.send_with(permit, path, verb).await
    }

    /// Waits until a request may be sent.
    pub async fn permit(&self, priority: Priority) -> RequestPermit<'_> {
        let place = match priority {
            Priority::Low => HeldPermit::Normal { _permit: self.limiter.acquire_low().await },
            Priority::Normal => HeldPermit::Normal { _permit: self.limiter.acquire().await },
            Priority::High => HeldPermit::High { _permit: self.limiter.acquire_high() },
        };
        RequestPermit { _place: place }
    }

    /// As [`KubeWriter::send`], with a permit.
    ///
    /// # Errors
    /// When it was refused, lost, or not answered in time.
    pub async fn send_with(
        &self,
        _permit: RequestPermit<'_>,
        path: ResourcePath<'_>,
        verb: &Verb,
    ) -> Result<Value, LinkError> {
        let start = Instant::now();
        let answer = self.send_now(path, verb).await;
        // Only writes are measured: reads have another latency.
        match &answer {
            Err(error) if error.retry_class() == RetryClass::Later => self.limiter.observe(None),
            _ if matches!(verb, Verb::Get | Verb::GetAsOf(_)) => {}
            _ => self.limiter.observe(Some(start.elapsed())),
        }
        answer
    }

    async fn send_now(&self, path: ResourcePath<'_>, verb: &Verb) -> Result<Value, LinkError> {
        let action = format!("{} {}/{} {}", verb.word(), path.plural, path.namespace, path.name);
        let request = self.request(path, verb);
        let request = request.map_err(|error| LinkError::of(&action, kube::Error::BuildRequest(error)))?;
        let after = self.timeout;
        match tokio::time::timeout(after, self.client.request::<Value>(request)).await {
            Err(_) => Err(LinkError::Silent { action, after }),
            Ok(Err(error)) if is_silence(&error) => Err(LinkError::Silent { action, after }),
            Ok(answer) => answer.map_err(|error| LinkError::of(&action, error)),
        }
    }

    fn request(
        &self,
        path: ResourcePath<'_>,
        verb: &Verb,
    ) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
        let request = Request::new(path.url());
        let patched = PatchParams { field_manager: Some(self.manager.to_owned()), ..PatchParams::default() };
        match verb {
            Verb::Get => request.get(path.name, &GetParams::default()),
            Verb::GetAsOf(version) => request.get(path.name, &GetParams::at(&version.to_string())),
            Verb::Create(value) => {
                let posted =
                    PostParams { field_manager: Some(self.manager.to_owned()), ..PostParams::default() };
                let body = serde_json::to_vec(value).map_err(kube::core::request::Error::SerializeBody)?;
                request.create(&posted, body)
            }
            Verb::Merge(value) => request.patch(path.name, &patched, &Patch::Merge(value)),
            Verb::Strategic(value) => request.patch(path.name, &patched, &Patch::Strategic(value)),
            Verb::Status(value) => {
                request.patch_subresource("status", path.name, &patched, &Patch::Merge(value))
            }
            Verb::Delete(uid) => {
                let mut how = DeleteParams::background();
                if !uid.is_empty() {
                    how.preconditions =
                        Some(Preconditions { uid: Some(uid.clone()), resource_version: None });
                }
                request.delete(path.name, &how)
            }
        }
    }

    /// The end of a pod's log: at most `most` bytes, from the beginning of a line unless the last line is
    /// longer. Bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// When it was refused, lost, or not read within 30 s.
    pub async fn log(&self, namespace: &str, pod: &str, most: usize) -> Result<String, LinkError> {
        self.read_log((namespace, pod), most, &LogParams::default(), LOG_TIMEOUT).await
    }

    /// Follows the log of a running pod until the pod ends, and returns its end as [`KubeWriter::log`].
    ///
    /// # Errors
    /// When it was refused, lost, or did not end within 10 min.
    pub async fn follow(&self, namespace: &str, pod: &str, most: usize) -> Result<String, LinkError> {
        let follow = LogParams { follow: true, ..LogParams::default() };
        self.read_log((namespace, pod), most, &follow, FOLLOW_TIMEOUT).await
    }

    async fn read_log(
        &self,
        (namespace, pod): (&str, &str),
        most: usize,
        how: &LogParams,
        timeout: Duration,
    ) -> Result<String, LinkError> {
        let action = format!("read the log of pod {namespace}/{pod}");
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let read = async {
            let stream = pods.log_stream(pod, how).await?;
            log::last_lines(stream, most).await.map_err(kube::Error::ReadEvents)
        };
        let answer = tokio::time::timeout(timeout, read).await;
        let answer = answer.map_err(|_| LinkError::Silent { action: action.clone(), after: timeout })?;
        answer.map_err(|error| LinkError::of(&action, error))
    }
}

/// Whether the client's own timeout for the head of an answer expired.
fn is_silence(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(error) if error.is::<Elapsed>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_the_form_of_the_api() {
        let path = |api, namespace| ResourcePath { api, plural: "things", namespace, name: "x" }.url();
        assert_eq!(path("v1", "ns"), "/api/v1/namespaces/ns/things");
        assert_eq!(path("batch/v1", "ns"), "/apis/batch/v1/namespaces/ns/things");
        assert_eq!(path("a.b/v1", ""), "/apis/a.b/v1/things");
    }
}
