//! One signed request to the API of a provider.

use std::io::Read as _;
use std::time::Duration;

use kubeon_api::{CloudProvider, HttpUrl};
use serde::de::DeserializeOwned;
use ureq::Agent;
use ureq::http::{Request, StatusCode};
use ureq::tls::RootCerts;

use crate::error::CloudError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The most bytes of an answer that are read.
const ANSWER_LIMIT: u64 = 8 << 20;

/// The HTTP client for one address of an API.
pub(crate) struct ApiClient {
    pub(crate) provider: CloudProvider,
    /// `HOST[:PORT]`, which is signed.
    pub(crate) host: String,
    agent: Agent,
    url: String,
}

/// The answer to a request.
pub(crate) struct ApiAnswer {
    pub(crate) status: StatusCode,
    text: String,
}

impl ApiClient {
    /// A client of the given URL, or of the public host without one.
    ///
    /// # Errors
    /// When the URL has a path: only its host is signed.
    pub(crate) fn new(
        provider: CloudProvider,
        given: Option<&HttpUrl>,
        public_host: &str,
    ) -> Result<Self, CloudError> {
        let url = given.map_or_else(|| format!("https://{public_host}"), ToString::to_string);
        let url = url.trim_end_matches('/').to_owned();
        let host = url.split_once("://").map_or("", |(_, host)| host).to_owned();
        if host.contains('/') {
            return Err(CloudError::Settings(format!(
                "the URL {url} of the API of {provider} must have no path"
            )));
        }
        let config = Agent::config_builder()
            .tls_config(kubeon_https::tls(RootCerts::PlatformVerifier).build())
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("kubeon/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(REQUEST_TIMEOUT))
            .build();
        Ok(Self { provider, host, agent: config.into(), url })
    }

    /// Sends a POST request. `query` is empty or begins with a question mark.
    ///
    /// # Errors
    /// When there is no complete answer.
    pub(crate) fn post(
        &self,
        action: &'static str,
        query: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<ApiAnswer, CloudError> {
        let failed = |error: &dyn std::error::Error| self.unavailable(action, error.to_string());
        let mut request = Request::post(format!("{}/{query}", self.url)).header("host", &self.host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body).map_err(|error| failed(&error))?;
        let answer = self.agent.run(request).map_err(|error| failed(&error))?;
        let (status, mut text) = (answer.status(), String::new());
        let read = answer.into_body().into_reader().take(ANSWER_LIMIT).read_to_string(&mut text);
        read.map_err(|error| failed(&error))?;
        Ok(ApiAnswer { status, text })
    }

    /// The content of an answer.
    ///
    /// # Errors
    /// When it is not what the API answers: something between this machine and the API may have answered.
    pub(crate) fn parsed<T: DeserializeOwned>(
        &self,
        action: &'static str,
        answer: &ApiAnswer,
    ) -> Result<T, CloudError> {
        serde_json::from_str(&answer.text)
            .map_err(|error| self.unavailable(action, format!("HTTP {}: {error}", answer.status)))
    }

    pub(crate) fn unavailable(&self, action: &'static str, why: String) -> CloudError {
        CloudError::Unavailable { provider: self.provider, action, why }
    }

    /// The error of a code: one that passes, or one that does not.
    pub(crate) fn refused(
        &self,
        action: &'static str,
        (code, message): (String, String),
        passing: &[&str],
    ) -> CloudError {
        if passing.iter().any(|begin| code.starts_with(begin)) {
            return self.unavailable(action, format!("{code}: {message}"));
        }
        CloudError::Refused { provider: self.provider, action, code, message }
    }
}
