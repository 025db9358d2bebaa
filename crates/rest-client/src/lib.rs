//! A typed, blocking client of the REST server of a meta cluster, version 2.

mod error;
mod watch;

use std::io::{BufRead, BufReader};
use std::time::Duration;

use kubeon_rest::{
    ClusterDetail, ClusterView, HostView, OperationDetail, OperationView, Page, Problem, StepList,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::Body;
use ureq::http::Response;

pub use error::RestError;

/// The timeout of a request, except for a log that is followed.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The most pages of a list: a million objects.
const PAGES: usize = 1000;
/// The longest answer in bytes.
const LONGEST_ANSWER: u64 = 64 * 1024 * 1024;
/// Characters that a part of a path contains unescaped.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How to reach a server.
#[derive(Clone)]
pub struct RestOptions {
    /// `https://…`, without the path of the API.
    pub url: String,
    /// A token that the meta cluster knows.
    pub token: String,
    /// The authorities of the server's certificate, PEM; `None` for those of this machine.
    pub authorities: Option<Vec<u8>>,
}

impl std::fmt::Debug for RestOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RestOptions").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A client of one server.
pub struct RestClient {
    agent: ureq::Agent,
    url: String,
    bearer: String,
}

/// Which operations are listed.
#[derive(Debug, Clone, Default)]
pub struct OperationFilter {
    /// Only those of clusters in this namespace.
    pub namespace: Option<String>,
    /// Only those of this cluster.
    pub cluster: Option<String>,
}

impl RestClient {
    /// # Errors
    /// When the URL does not begin with `https://`, or the authorities hold no certificate.
    pub fn new(options: RestOptions) -> Result<Self, RestError> {
        let url = options.url.trim_end_matches('/').to_owned();
        if !url.starts_with("https://") {
            return Err(RestError::NotHttps(url));
        }
        let authorities = kubeon_https::authorities_or_platform(options.authorities.as_deref())
            .map_err(|_| RestError::NoCertificate)?;
        let config = ureq::Agent::config_builder()
            .tls_config(kubeon_https::tls(authorities).build())
            .https_only(true)
            .http_status_as_error(false)
            // The token must not reach another server.
            .max_redirects(0)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_recv_response(Some(TIMEOUT))
            .build();
        Ok(Self { agent: config.new_agent(), url, bearer: format!("Bearer {}", options.token.trim()) })
    }

    /// The clusters in a namespace, or all clusters.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub fn clusters(&self, namespace: Option<&str>) -> Result<Vec<ClusterView>, RestError> {
        match namespace {
            None => self.pages("/api/v2/clusters", &[]),
            Some(namespace) => self.pages(&format!("/api/v2/namespaces/{}/clusters", part(namespace)), &[]),
        }
    }

    /// One cluster.
    ///
    /// # Errors
    /// As [`RestClient::clusters`].
    pub fn cluster(&self, namespace: &str, name: &str) -> Result<ClusterDetail, RestError> {
        self.get(&cluster_path(namespace, name), &[])
    }

    /// The hosts of a cluster, in the order of their declaration.
    ///
    /// # Errors
    /// As [`RestClient::clusters`].
    pub fn hosts(&self, namespace: &str, name: &str) -> Result<Vec<HostView>, RestError> {
        self.pages(&format!("{}/hosts", cluster_path(namespace, name)), &[])
    }

    /// Declares a cluster: a `KubernetesCluster` as JSON.
    ///
    /// # Errors
    /// As [`RestClient::clusters`].
    pub fn create(&self, namespace: &str, object: &Value) -> Result<ClusterDetail, RestError> {
        let url = format!("{}/api/v2/namespaces/{}/clusters", self.url, part(namespace));
        let request = self.agent.post(&url).header("authorization", &self.bearer);
        let answer = request.content_type("application/json").send(object.to_string());
        read(answer.map_err(RestError::lost)?)
    }

    /// Changes a cluster with a JSON merge patch.
    ///
    /// # Errors
    /// As [`RestClient::clusters`].
    pub fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Result<ClusterDetail, RestError> {
        let url = format!("{}{}", self.url, cluster_path(namespace, name));
        let request = self.agent.patch(&url).header("authorization", &self.bearer);
        let answer = request.content_type("application/merge-patch+json").send(patch.to_string());
        read(answer.map_err(RestError::lost)?)
    }

    /// Operations, in the order of their names.
    ///
    /// # Errors
    /// As [`RestClient::clusters`].
    pub fn operations(&self, filter: &OperationFilter) -> Result<Vec<OperationView>, RestError> {
        let given = |name: &'static str, value: &Option<String>| Some((name, value.clone()?));
        let filters = [given("namespace", &filter.namespace), given("cluster", &filter.cluster)];
        self.pages("/api/v2/operations", &filters.into_iter().flatten().collect::<Vec<_>>())
    }

    /// One operation.
    ///
    /// # Errors
    /// As [`RestClient::clusters`].
    pub fn operation(&self, name: &str) -> Result<OperationDetail, RestError> {
        self.get(&format!("/api/v2/operations/{}", part(name)), &[])
    }

    /// Approves the plan of an operation: another operation applies it.
    ///
    /// # Errors
    /// As [`RestClient::clusters`].
    pub fn approve(&self, operation: &str) -> Result<OperationDetail, RestError> {
        let url = format!("{}/api/v2/operations/{}/approve", self.url, part(operation));
        let answer = self.agent.post(&url).header("authorization", &self.bearer).send_empty();
        read(answer.map_err(RestError::lost)?)
    }

    /// The steps of an operation.
    ///
    /// # Errors
    /// As [`RestClient::clusters`].
    pub fn steps(&self, operation: &str) -> Result<StepList, RestError> {
        let path = format!("/api/v2/operations/{}/steps", part(operation));
        let mut all: StepList = self.get(&path, &[])?;
        for _ in 1..PAGES {
            let Some(next) = all.next.take() else { return Ok(all) };
            let page: StepList = self.get(&path, &[("continue", next)])?;
            all.items.extend(page.items);
            all = StepList { items: all.items, ..page };
        }
        Err(RestError::TooManyPages(PAGES))
    }

    /// The lines of an operation's log. With `follow` the iterator waits for further lines until the operation ends.
    ///
    /// # Errors
    /// As [`RestClient::clusters`].
    pub fn log(
        &self,
        operation: &str,
        follow: bool,
        tail: Option<u32>,
    ) -> Result<impl Iterator<Item = Result<String, RestError>> + use<>, RestError> {
        let mut parameters = vec![("follow", follow.to_string())];
        parameters.extend(tail.map(|tail| ("tail", tail.to_string())));
        let path = format!("/api/v2/operations/{}/logs", part(operation));
        let answer = refuse(self.request(&path, &parameters)?)?;
        let lines = BufReader::new(answer.into_body().into_reader()).lines();
        Ok(lines.map(|line| line.map_err(|error| RestError::lost(ureq::Error::Io(error)))))
    }

    fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        filters: &[(&'static str, String)],
    ) -> Result<Vec<T>, RestError> {
        let (mut all, mut parameters) = (Vec::new(), filters.to_vec());
        for _ in 0..PAGES {
            let page: Page<T> = self.get(path, &parameters)?;
            all.extend(page.items);
            let Some(next) = page.next else { return Ok(all) };
            parameters.retain(|(name, _)| *name != "continue");
            parameters.push(("continue", next));
        }
        Err(RestError::TooManyPages(PAGES))
    }

    fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        parameters: &[(&'static str, String)],
    ) -> Result<T, RestError> {
        read(self.request(path, parameters)?)
    }

    fn request(
        &self,
        path: &str,
        parameters: &[(&'static str, String)],
    ) -> Result<Response<Body>, RestError> {
        let request = self.agent.get(format!("{}{path}", self.url)).header("authorization", &self.bearer);
        let request = parameters.iter().fold(request, |request, (name, value)| request.query(*name, value));
        request.call().map_err(RestError::lost)
    }
}

fn part(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

fn cluster_path(namespace: &str, name: &str) -> String {
    format!("/api/v2/namespaces/{}/clusters/{}", part(namespace), part(name))
}

fn text_of(answer: Response<Body>) -> Result<String, RestError> {
    answer.into_body().into_with_config().limit(LONGEST_ANSWER).read_to_string().map_err(RestError::lost)
}

/// The answer, or an error if the server refused the request.
fn refuse(answer: Response<Body>) -> Result<Response<Body>, RestError> {
    let status = answer.status().as_u16();
    if (200..300).contains(&status) {
        return Ok(answer);
    }
    let text = text_of(answer)?;
    let detail = serde_json::from_str::<Problem>(&text).map(|problem| problem.detail);
    Err(RestError::Refused { status, detail: detail.unwrap_or(text) })
}

fn read<T: DeserializeOwned>(answer: Response<Body>) -> Result<T, RestError> {
    serde_json::from_str(&text_of(refuse(answer)?)?).map_err(RestError::Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sent_only_over_tls_and_never_printed() {
        let options =
            |url: &str| RestOptions { url: url.to_owned(), token: "t0ken".to_owned(), authorities: None };
        assert!(matches!(RestClient::new(options("http://x")), Err(RestError::NotHttps(_))));
        assert!(!format!("{:?}", options("https://x")).contains("t0ken"));
    }

    #[test]
    fn names_are_parts_of_a_path() {
        assert_eq!(cluster_path("a/b", ".."), "/api/v2/namespaces/a%2Fb/clusters/..");
    }
}
