//! The callback: sends the result of the operation over HTTPS, with a token for this operation only.
//!
//! The status of the operation is authoritative; the callback is an extra notice with the routes and fields of
//! kubernetes-operator.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubeon_api::{Operation, clip};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use ureq::tls::RootCerts;

use crate::args::{CallbackFlags, RunnerSettings};
use crate::backoff::Backoff;
use crate::inputs::{self, CallbackHost, Task};
use crate::log::RunnerLog;
use crate::outcome::WorkOutcome;
use crate::redactor::Redactor;
use crate::shutdown::Shutdown;

/// The timeout of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest message in bytes.
const MESSAGE: usize = 4096;
/// Characters that a route contains unescaped.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The body of the callback.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    name: String,
    namespace: String,
    region: String,
    master_list: Vec<CallbackHost>,
    node_list: Vec<CallbackHost>,
    etcd_list: Vec<CallbackHost>,
    kubeconfig: String,
    success: bool,
    message: String,
}

/// The reason why the callback was not delivered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallbackError {
    /// The operation has no route.
    #[error("the operation has no route: {0}")]
    NoRoute(&'static str),
    /// Without TLS the token would be readable on the network.
    #[error("the URL must begin with https://")]
    NotHttps,
    /// The token file is not set.
    #[error("no token; name its file with --callback-token-file")]
    NoToken,
    /// A file cannot be read.
    #[error("cannot read {0}: {1}")]
    Read(String, #[source] std::io::Error),
    /// A file contains no certificate.
    #[error("{0} contains no PEM certificate")]
    NoCertificate(String),
    /// The payload cannot be serialized.
    #[error("cannot serialize the payload: {0}")]
    Json(#[from] serde_json::Error),
    /// The server's certificate is not trusted.
    #[error("the server's certificate is not trusted: {0}")]
    Untrusted(String),
    /// The server refused the callback; a retry does not help.
    #[error("refused with status {0}")]
    Refused(u16),
    /// The attempt failed; a retry may help.
    #[error("{0}")]
    Failed(String),
    /// No attempt succeeded before the timeout.
    #[error("no success in time; last attempt: {0}")]
    Late(String),
}

impl CallbackError {
    fn may_recover(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

/// A request that is ready to be sent.
#[derive(Clone)]
struct Notice {
    agent: ureq::Agent,
    url: String,
    /// Read before every attempt: the kubelet renews the token.
    token: PathBuf,
    body: String,
}

/// Sends the callback, and retries until the timeout. Without a URL it does nothing.
pub(crate) async fn send(
    settings: &RunnerSettings,
    outcome: &WorkOutcome,
    shutdown: &Shutdown,
    log: &RunnerLog,
    redactor: &Redactor,
) {
    let Some(url) = &settings.flags.callback.callback_url else { return };
    let notice = notice(settings, url, outcome, redactor);
    let sent = match notice {
        Ok(notice) => deliver(notice, settings.flags.callback.callback_timeout, shutdown, log).await,
        Err(error) => Err(error),
    };
    match sent {
        Ok(()) => log.line("the callback was delivered"),
        Err(error) => log.line(&format!("the callback was not delivered: {error}")),
    }
}

async fn deliver(
    notice: Notice,
    timeout: Duration,
    shutdown: &Shutdown,
    log: &RunnerLog,
) -> Result<(), CallbackError> {
    let mut last = "no attempt ended".to_owned();
    let attempts = async {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(8));
        loop {
            let Err(error) = send_once(notice.clone()).await else { return Ok(()) };
            if !error.may_recover() {
                return Err(error);
            }
            if last != error.to_string() {
                log.line(&format!("the callback failed and will be retried: {error}"));
            }
            last = error.to_string();
            backoff.wait().await;
        }
    };
    tokio::select! {
        sent = attempts => return sent,
        () = shutdown.deadline(timeout) => {}
    }
    Err(CallbackError::Late(last))
}

async fn send_once(notice: Notice) -> Result<(), CallbackError> {
    let bearer = format!("Bearer {}", String::from_utf8_lossy(&read(&notice.token)?).trim());
    let request = move || {
        let request = notice.agent.post(&notice.url).header("authorization", &bearer);
        request
            .header("content-type", "application/json")
            .send(&notice.body)
            .map(|answer| answer.status().as_u16())
    };
    let answer = tokio::task::spawn_blocking(request).await;
    match answer.map_err(|error| CallbackError::Failed(error.to_string()))? {
        Ok(200..=299) => Ok(()),
        Ok(status @ (408 | 425 | 429 | 500..=599)) => Err(CallbackError::Failed(format!("status {status}"))),
        Ok(status) => Err(CallbackError::Refused(status)),
        Err(error) => Err(failed(&error)),
    }
}

fn failed(error: &ureq::Error) -> CallbackError {
    let tls = match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()),
        _ => None,
    };
    match tls {
        Some(error @ rustls::Error::InvalidCertificate(_)) => CallbackError::Untrusted(error.to_string()),
        _ => CallbackError::Failed(error.to_string()),
    }
}

fn notice(
    settings: &RunnerSettings,
    url: &str,
    outcome: &WorkOutcome,
    redactor: &Redactor,
) -> Result<Notice, CallbackError> {
    let flags = &settings.flags.callback;
    if !url.starts_with("https://") {
        return Err(CallbackError::NotHttps);
    }
    let route = match inputs::task(settings) {
        Ok(Task::Change(Operation::Creating)) => "create",
        Ok(Task::Change(Operation::ScalingUp)) => "scaleup",
        Ok(Task::Change(Operation::ScalingDown)) => "scaledown",
        Ok(Task::Change(Operation::Terminating)) => "delete",
        _ => {
            return Err(CallbackError::NoRoute(
                "OPERATION is not creating, scaling-up, scaling-down or terminating",
            ));
        }
    };
    let payload = payload(settings, outcome, redactor)?;
    let encode = |text: &str| utf8_percent_encode(text, PLAIN).to_string();
    let (region, name) = (encode(&payload.region), encode(&payload.name));
    let url = format!("{}/api/v1/region/{region}/cluster/{name}/{route}/callback", url.trim_end_matches('/'));
    let token = flags.callback_token_file.as_deref().ok_or(CallbackError::NoToken)?;
    Ok(Notice { agent: agent(flags)?, url, token: token.to_owned(), body: serde_json::to_string(&payload)? })
}

fn payload(
    settings: &RunnerSettings,
    outcome: &WorkOutcome,
    redactor: &Redactor,
) -> Result<Payload, CallbackError> {
    let environment = &settings.environment;
    let message = outcome.reason.as_deref().unwrap_or("success");
    Ok(Payload {
        name: inputs::cluster_name(settings).ok_or(CallbackError::NoRoute("CLUSTER_NAME is not set"))?,
        namespace: inputs::namespace(settings),
        region: inputs::region(settings),
        master_list: inputs::hosts(settings, "masterList", environment.masters.as_deref()),
        node_list: inputs::hosts(settings, "nodeList", environment.nodes.as_deref()),
        etcd_list: inputs::hosts(settings, "etcdList", environment.etcd.as_deref()),
        kubeconfig: outcome.kubeconfig.clone().unwrap_or_default(),
        success: outcome.code == 0,
        message: clip(&redactor.redact_text(message), MESSAGE).to_owned(),
    })
}

fn read(file: &Path) -> Result<Vec<u8>, CallbackError> {
    fs::read(file).map_err(|error| CallbackError::Read(file.display().to_string(), error))
}

fn agent(flags: &CallbackFlags) -> Result<ureq::Agent, CallbackError> {
    let authorities = match &flags.callback_ca {
        None => RootCerts::PlatformVerifier,
        Some(file) => kubeon_https::authorities(&read(file)?)
            .map_err(|_| CallbackError::NoCertificate(file.display().to_string()))?,
    };
    let config = ureq::Agent::config_builder()
        .tls_config(kubeon_https::tls(authorities).build())
        .https_only(true)
        .http_status_as_error(false)
        // The token must not reach another server: no redirects, no proxy of the environment.
        .max_redirects(0)
        .proxy(None)
        .timeout_global(Some(ATTEMPT_TIMEOUT))
        .build();
    Ok(config.new_agent())
}
