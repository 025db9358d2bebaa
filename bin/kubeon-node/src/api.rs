//! This host's own API server, as kubeon's administrator.

use std::io::BufRead;
use std::time::Duration;

use kubeon_wire::{ApiObject, StepFailure};
use serde::Deserialize;
use serde_json::Value;

use crate::failure::{failed, plain};
use crate::host::HostSystem;
use crate::https::{HttpResponse, Https, Method, is_time_up};
use crate::paths;

/// A line of a watch longer than this is not an object that the API server would keep.
const LINE_LIMIT: u64 = 16 << 20;

/// The API server.
#[derive(Debug)]
pub struct Api {
    https: Https,
    base: String,
}

/// Something a watch tells.
#[derive(Debug, Deserialize)]
pub struct WatchEvent {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The object as it is now, or was last.
    pub object: Value,
}

impl Api {
    /// The API server on this host.
    ///
    /// # Errors
    /// When its certificates cannot be read; only masters have them.
    pub fn local(host: &HostSystem) -> Result<Self, StepFailure> {
        let root = &host.root;
        let identity = (root.at(paths::ADMIN_CERTIFICATE), root.at(paths::ADMIN_KEY));
        let https = Https::open(&root.at(paths::API_CA), Some((&identity.0, &identity.1)))?;
        Ok(Self { https, base: host.api.clone() })
    }

    /// Reads a path.
    ///
    /// # Errors
    /// Why there was no answer, in a few words.
    pub fn get(&self, path: &str, timeout: Duration) -> Result<HttpResponse, String> {
        self.https.get(&format!("{}{path}", self.base), timeout).map_err(|why| why.to_string())
    }

    /// Applies an object on the server's side, as field manager `kubeon`.
    ///
    /// # Errors
    /// Why there was no answer, in a few words.
    pub fn apply(&self, object: &ApiObject, timeout: Duration) -> Result<HttpResponse, String> {
        let url = format!("{}{}?fieldManager=kubeon&force=true", self.base, object.path);
        let body = object.body.to_string();
        self.send(Method::Patch, &url, "application/apply-patch+yaml", &body, timeout)
    }

    /// Changes some fields of an object, as field manager `kubeon`.
    ///
    /// # Errors
    /// Why there was no answer, in a few words.
    pub fn merge(&self, path: &str, body: &Value, timeout: Duration) -> Result<HttpResponse, String> {
        let url = format!("{}{path}?fieldManager=kubeon", self.base);
        let body = body.to_string();
        self.send(Method::Patch, &url, "application/merge-patch+json", &body, timeout)
    }

    /// Makes an object, or asks for something on one.
    ///
    /// # Errors
    /// Why there was no answer, in a few words.
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
    /// Why there was no answer, in a few words.
    pub fn delete(&self, path: &str, timeout: Duration) -> Result<HttpResponse, String> {
        self.https.delete(&format!("{}{path}", self.base), timeout).map_err(|why| why.to_string())
    }

    /// Reads events until the server or `timeout` ends the watch, or `each` has seen enough and says `true`.
    /// Starts with an `ADDED` for every object there is.
    ///
    /// # Errors
    /// Why it broke, in a few words.
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
}

/// What the server says of a refusal, or the first line of what it says.
#[must_use]
pub fn message(body: &str) -> String {
    let status = serde_json::from_str::<Value>(body).ok();
    let told = status.as_ref().and_then(|status| status["message"].as_str());
    told.or_else(|| body.lines().next()).unwrap_or_default().chars().take(300).collect()
}

/// Refuses what is not the path of an object, which could otherwise carry a query of its own.
///
/// # Errors
/// When it is not.
pub fn check_path(path: &str) -> Result<(), StepFailure> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    if path.starts_with("/api") && path.chars().all(good) && !path.contains("..") {
        return Ok(());
    }
    Err(failed(format!("{path:?} is not the path of an API object")))
}
