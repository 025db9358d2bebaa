//! A request, parsed as the API server parses it.

use std::time::Instant;

use hyper::header::USER_AGENT;
use hyper::{HeaderMap, Method, Uri};

use super::fault::ProxyFault;

/// A request that the proxy received.
#[derive(Debug, Clone)]
pub struct ProxyRequest {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; outside of resources the
    /// method in lower case.
    pub verb: String,
    /// The API group; empty for the core.
    pub group: String,
    /// The kind's plural, or the path outside of resources: `/readyz`.
    pub resource: String,
    /// Such as `status`; empty for the object itself.
    pub subresource: String,
    /// Empty for cluster-wide resources.
    pub namespace: String,
    /// Empty for `create`, `list` and most `watch`.
    pub name: String,
    /// The client's User-Agent.
    pub user_agent: String,
    /// Time of arrival.
    pub at: Instant,
    /// The answer's HTTP status, from the server or from a fault; `None` while there is no answer.
    pub status: Option<u16>,
    /// The fault that the proxy injected.
    pub fault: Option<ProxyFault>,
}

impl ProxyRequest {
    pub(super) fn read(method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut request = Self {
            verb: method.as_str().to_ascii_lowercase(),
            group: String::new(),
            resource: uri.path().to_owned(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
            user_agent: agent.to_owned(),
            at: Instant::now(),
            status: None,
            fault: None,
        };
        request.read_path(uri.path());
        if !request.resource.starts_with('/') {
            request.verb = verb(method, &request.name, uri.query().unwrap_or_default()).to_owned();
        }
        request
    }

    fn read_path(&mut self, path: &str) {
        let parts: Vec<_> = path.trim_matches('/').split('/').collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _version, rest @ ..] => ("", rest),
            ["apis", group, _version, rest @ ..] => (*group, rest),
            _ => return,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !is_own_subresource(rest) => (*namespace, rest),
            _ => ("", rest),
        };
        let Some((resource, rest)) = rest.split_first() else { return };
        self.group = group.to_owned();
        self.namespace = namespace.to_owned();
        self.resource = (*resource).to_owned();
        self.name = rest.first().copied().unwrap_or_default().to_owned();
        self.subresource = rest.get(1).copied().unwrap_or_default().to_owned();
    }

    /// Whether it changes an object. Leases, events, reviews and tokens do not count: clients create them at any time, so
    /// counting would not be reproducible.
    #[must_use]
    pub fn is_write(&self) -> bool {
        let changes =
            matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection");
        let is_ignored = matches!(self.resource.as_str(), "leases" | "events")
            || self.resource.ends_with("reviews")
            || self.subresource == "token";
        changes && !is_ignored
    }

    /// Such as `patch clusters/status`.
    #[must_use]
    pub fn kind(&self) -> String {
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        format!("{} {}{slash}{}", self.verb, self.resource, self.subresource)
    }
}

/// Whether the path after `namespaces/NAME` belongs to the namespace itself.
fn is_own_subresource(rest: &[&str]) -> bool {
    matches!(rest, [] | ["status" | "finalize"])
}

fn verb(method: &Method, name: &str, query: &str) -> &'static str {
    let is_watch = query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"));
    match (method.as_str(), name.is_empty()) {
        ("GET", _) if is_watch => "watch",
        ("GET", true) => "list",
        ("GET", false) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "deletecollection",
        ("DELETE", false) => "delete",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: Method, uri: &str) -> (String, String, String) {
        let request = ProxyRequest::read(&method, &uri.parse().unwrap(), &HeaderMap::new());
        (request.kind(), request.namespace, request.name)
    }

    fn is(kind: &str, namespace: &str, name: &str) -> (String, String, String) {
        (kind.to_owned(), namespace.to_owned(), name.to_owned())
    }

    #[test]
    fn reads_requests_as_the_api_server_does() {
        let group = "/apis/kubeonkube.clay.io/v1alpha1/clusters";
        assert_eq!(read(Method::GET, group), is("list clusters", "", ""));
        assert_eq!(
            read(Method::GET, &format!("{group}?watch=true&resourceVersion=1")),
            is("watch clusters", "", "")
        );
        assert_eq!(read(Method::PATCH, &format!("{group}/a/status")), is("patch clusters/status", "", "a"));
        assert_eq!(read(Method::POST, "/apis/batch/v1/namespaces/n/jobs"), is("create jobs", "n", ""));
        assert_eq!(read(Method::GET, "/api/v1/namespaces/n/secrets/s"), is("get secrets", "n", "s"));
        assert_eq!(read(Method::DELETE, "/api/v1/namespaces/n"), is("delete namespaces", "", "n"));
        assert_eq!(
            read(Method::PUT, "/api/v1/namespaces/n/finalize"),
            is("update namespaces/finalize", "", "n")
        );
        assert_eq!(read(Method::GET, "/readyz?verbose"), is("get /readyz", "", ""));
    }

    #[test]
    fn counts_as_writes_only_changes_that_a_crash_can_interrupt() {
        let is_write = |method: Method, uri: &str| {
            ProxyRequest::read(&method, &uri.parse().unwrap(), &HeaderMap::new()).is_write()
        };
        assert!(is_write(Method::POST, "/apis/batch/v1/namespaces/n/jobs"));
        assert!(!is_write(Method::GET, "/apis/batch/v1/namespaces/n/jobs"));
        assert!(!is_write(Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"));
        assert!(!is_write(Method::POST, "/apis/events.k8s.io/v1/namespaces/n/events"));
        assert!(!is_write(Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"));
    }
}
