//! Client of the API server on this host, with kubeon's administrator certificate.

use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use kubeon_api::clip;
use kubeon_wire::{ApiObject, StepFailure};
use serde::Deserialize;
use serde_json::Value;

use crate::durable::read_text;
use crate::failure::{failed, plain};
use crate::host::HostSystem;
use crate::https::{HttpResponse, Https, Method, NoAnswer, is_time_up};
use crate::paths;
use crate::root::Root;

/// The longest line of a watch that is read: no object in the API server is larger.
const LINE_LIMIT: u64 = 16 << 20;

/// The file that names the API server of a host.
const KUBECONFIG: &str = "/etc/kubernetes/kube-proxy.conf";

/// The interval at which a watch checks whether its step is cancelled.
const STOP_INTERVAL: Duration = Duration::from_millis(50);
/// How many events of a watch may wait for its step.
const WAITING_EVENTS: usize = 64;

/// A client of the API server.
#[derive(Debug, Clone)]
pub struct Api {
    https: Https,
    base: String,
}

/// An event of a watch.
#[derive(Debug, Clone, Deserialize)]
pub struct WatchEvent {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The current object, or the last one before its deletion.
    pub object: Value,
}

impl Api {
    /// A client of the API server on this host.
    ///
    /// # Errors
    /// If its certificates cannot be read; only masters have them.
    pub fn local(host: &HostSystem) -> Result<Self, StepFailure> {
        Self::local_as(host, (paths::ADMIN_CERTIFICATE, paths::ADMIN_KEY))
    }

    /// A client of the master's own API server that may write the endpoints of the Service of the API servers, and nothing else. On a
    /// master that an older version set up, which wrote no identity for it, it has the one of kubeon.
    ///
    /// # Errors
    /// If the identity cannot be read.
    pub fn as_api_updater(host: &HostSystem) -> Result<Self, StepFailure> {
        if !host.root.at(paths::API_UPDATER_CERTIFICATE).exists() {
            return Self::local(host);
        }
        Self::local_as(host, (paths::API_UPDATER_CERTIFICATE, paths::API_UPDATER_KEY))
    }

    fn local_as(host: &HostSystem, (certificate, key): (&str, &str)) -> Result<Self, StepFailure> {
        let root = &host.root;
        let https = Https::open(&root.at(paths::API_CA), Some((&root.at(certificate), &root.at(key))))?;
        Ok(Self { https, base: host.api.clone() })
    }

    /// A client with the identity of the node, which every host has.
    ///
    /// # Errors
    /// If the identity or the address of the API server cannot be read.
    pub fn as_node(host: &HostSystem) -> Result<Self, StepFailure> {
        let root = &host.root;
        let identity = root.at(paths::KUBELET_OWN);
        let https = Https::open(&root.at(paths::API_CA), Some((&identity, &identity)))?;
        Ok(Self { https, base: server(root)? })
    }

    /// A client of an API server at any address.
    #[must_use]
    pub fn at(https: Https, base: String) -> Self {
        Self { https, base }
    }

    /// Sends a GET for a path.
    ///
    /// # Errors
    /// A short text with the cause, if the API server does not answer.
    pub fn get(&self, path: &str, timeout: Duration) -> Result<HttpResponse, String> {
        self.ask(path, timeout).map_err(|why| why.to_string())
    }

    /// The same, with an error that distinguishes a missing server from a slow one.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn ask(&self, path: &str, timeout: Duration) -> Result<HttpResponse, NoAnswer> {
        self.https.get(&format!("{}{path}", self.base), timeout)
    }

    /// Applies an object with server-side apply, as field manager `kubeon`.
    ///
    /// # Errors
    /// A short text with the cause, if the API server does not answer.
    pub fn apply(&self, object: &ApiObject, timeout: Duration) -> Result<HttpResponse, String> {
        let url = format!("{}{}?fieldManager=kubeon&force=true", self.base, object.path);
        let body = object.body.to_string();
        self.send(Method::Patch, &url, "application/apply-patch+yaml", &body, timeout)
    }

    /// Changes fields of an object with a merge patch, as field manager `kubeon`.
    ///
    /// # Errors
    /// A short text with the cause, if the API server does not answer.
    pub fn merge(&self, path: &str, body: &Value, timeout: Duration) -> Result<HttpResponse, String> {
        let url = format!("{}{path}?fieldManager=kubeon", self.base);
        let body = body.to_string();
        self.send(Method::Patch, &url, "application/merge-patch+json", &body, timeout)
    }

    /// Creates an object or a subresource, such as an eviction.
    ///
    /// # Errors
    /// A short text with the cause, if the API server does not answer.
    pub fn post(&self, path: &str, body: &Value, timeout: Duration) -> Result<HttpResponse, String> {
        let url = format!("{}{path}", self.base);
        self.send(Method::Post, &url, "application/json", &body.to_string(), timeout)
    }

    fn send(
        &self,
        method: Method,
        url: &str,
        kind: &str,
        body: &str,
        timeout: Duration,
    ) -> Result<HttpResponse, String> {
        self.https.send(method, url, kind, body.as_bytes(), timeout).map_err(|why| why.to_string())
    }

    /// Removes an object.
    ///
    /// # Errors
    /// A short text with the cause, if the API server does not answer.
    pub fn delete(&self, path: &str, timeout: Duration) -> Result<HttpResponse, String> {
        self.https.delete(&format!("{}{path}", self.base), timeout).map_err(|why| why.to_string())
    }

    /// Reads events until the server or `timeout` ends the watch (`false`), or `each` returns `true`
    /// (`true`). The first events are an `ADDED` for every existing object.
    ///
    /// # Errors
    /// A short text with the cause, if the watch fails.
    pub fn watch(
        &self,
        path: &str,
        query: &str,
        timeout: Duration,
        each: &mut dyn FnMut(&WatchEvent) -> bool,
    ) -> Result<bool, String> {
        let seconds = timeout.as_secs() + 1;
        let url = format!("{}{path}?watch=true&timeoutSeconds={seconds}{query}", self.base);
        let mut lines = self.https.lines(&url, timeout)?;
        loop {
            let mut line = Vec::new();
            match std::io::Read::take(&mut lines, LINE_LIMIT).read_until(b'\n', &mut line) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(error) if is_time_up(&error) => return Ok(false),
                Err(error) => return Err(plain(&error)),
            }
            let event: WatchEvent =
                serde_json::from_slice(&line).map_err(|error| format!("the watch is not JSON: {error}"))?;
            if event.kind == "ERROR" {
                return Err(message(&event.object.to_string()));
            }
            if each(&event) {
                return Ok(true);
            }
        }
    }

    /// The same for a step: `false` as soon as it is cancelled, too. A session whose engine is gone would hold its host until the server
    /// sends something. What still reads then ends at the time limit, or with the program.
    ///
    /// # Errors
    /// As for [`Api::watch`].
    pub fn watch_until(
        &self,
        stop: &AtomicBool,
        (path, query): (&str, &str),
        timeout: Duration,
        each: &mut dyn FnMut(&WatchEvent) -> bool,
    ) -> Result<bool, String> {
        let (sender, events) = sync_channel(WAITING_EVENTS);
        let (api, path, query) = (self.clone(), path.to_owned(), query.to_owned());
        thread::spawn(move || {
            let mut send = |event: &WatchEvent| sender.send(Ok(event.clone())).is_err();
            if let Err(why) = api.watch(&path, &query, timeout, &mut send) {
                // Nobody waits for the cause any more if this fails.
                let _ = sender.send(Err(why));
            }
        });
        while !stop.load(Ordering::Acquire) {
            match events.recv_timeout(STOP_INTERVAL) {
                Ok(event) => {
                    if each(&event?) {
                        return Ok(true);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
            }
        }
        Ok(false)
    }
}

/// The URL at which the programs of a host reach the API.
///
/// # Errors
/// If the configuration of kube-proxy cannot be read or names no URL.
pub fn server(root: &Root) -> Result<String, StepFailure> {
    let text = read_text(&root.at(KUBECONFIG))?.unwrap_or_default();
    let config: Value = serde_json::from_str(&text).unwrap_or_default();
    let server = config["clusters"][0]["cluster"]["server"].as_str().map(str::to_owned);
    server.ok_or_else(|| failed(format!("{KUBECONFIG} names no API server")))
}

/// The message of a `Status` body, or the first line of any other body.
#[must_use]
pub fn message(body: &str) -> String {
    let status = serde_json::from_str::<Value>(body).ok();
    let message = status.as_ref().and_then(|status| status["message"].as_str());
    clip(message.or_else(|| body.lines().next()).unwrap_or_default(), 300).to_owned()
}

/// Checks that a text is the path of an object, so that it cannot contain a query.
///
/// # Errors
/// If it is not.
pub fn check_path(path: &str) -> Result<(), StepFailure> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    if path.starts_with("/api") && path.chars().all(good) && !path.contains("..") {
        return Ok(());
    }
    Err(failed(format!("{path:?} is not the path of an API object")))
}
