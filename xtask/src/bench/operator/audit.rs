//! Counts requests from the API server's audit log. The log names the account of each request, and no proxy
//! influences the measurement.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

/// The number of requests by kind, such as `patch clusters/status`.
pub(super) type Counts = BTreeMap<String, usize>;

/// One request.
#[derive(Debug, Clone)]
pub(super) struct AuditedRequest {
    pub(super) verb: String,
    /// The resource and subresource, such as `clusters/status`.
    pub(super) resource: String,
    pub(super) name: String,
    pub(super) at: Timestamp,
}

impl AuditedRequest {
    /// Whether it belongs to leader election.
    pub(super) fn is_lease(&self) -> bool {
        self.resource == "leases"
    }

    /// Whether it changes an object other than a lease or event.
    pub(super) fn is_write(&self) -> bool {
        let changes =
            matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection");
        changes && !self.is_lease() && self.resource != "events" && !self.resource.ends_with("reviews")
    }
}

/// Counts requests by kind.
pub(super) fn counts(requests: &[AuditedRequest]) -> Counts {
    let mut counts = Counts::new();
    for request in requests {
        *counts.entry(format!("{} {}", request.verb, request.resource)).or_default() += 1;
    }
    counts
}

/// A policy that logs only the requests of these users: a watch at its start, other requests when they are
/// answered.
pub(super) fn policy(users: &[String]) -> String {
    let users = users.join("', '");
    format!(
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n\
         - {{ level: Metadata, users: ['{users}'] }}\n- {{ level: None }}\n"
    )
}

/// The log, read while it grows.
#[derive(Debug)]
pub(super) struct Audit {
    path: PathBuf,
    offset: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    uri: String,
    object_ref: Option<Object>,
    request_received_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct Object {
    resource: Option<String>,
    subresource: Option<String>,
    name: Option<String>,
}

impl Audit {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), offset: 0 }
    }

    /// The requests since the last call. An incomplete line is read by the next call.
    pub(super) fn take(&mut self) -> Result<Vec<AuditedRequest>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let complete = text.rfind('\n').map_or("", |end| &text[..=end]);
        self.offset += complete.len() as u64;
        let requests = complete.lines().map(read).collect::<Result<Vec<_>>>()?;
        Ok(requests.into_iter().flatten().collect())
    }
}

fn read(line: &str) -> Result<Option<AuditedRequest>> {
    let line: Line = serde_json::from_str(line).context("cannot parse a line of the audit log")?;
    let counted = if line.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
    if line.stage != counted && line.stage != "Panic" {
        return Ok(None);
    }
    let path = line.uri.split('?').next().unwrap_or_default().to_owned();
    let object = line.object_ref.unwrap_or(Object { resource: Some(path), subresource: None, name: None });
    let resource = object.resource.unwrap_or_default();
    let resource = match object.subresource {
        Some(subresource) => format!("{resource}/{subresource}"),
        None => resource,
    };
    let name = object.name.unwrap_or_default();
    Ok(Some(AuditedRequest { verb: line.verb, resource, name, at: line.request_received_timestamp }))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn line(stage: &str, verb: &str, resource: &str) -> String {
        format!(
            r#"{{"stage":"{stage}","verb":"{verb}","requestURI":"/x?y","objectRef":{{"resource":"{resource}","name":"n"}},"requestReceivedTimestamp":"2026-01-01T00:00:00.123456Z"}}"#
        )
    }

    #[test]
    fn counts_every_request_once() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut audit = Audit::new(file.path());
        writeln!(file, "{}", line("ResponseStarted", "watch", "jobs")).unwrap();
        writeln!(file, "{}", line("ResponseComplete", "watch", "jobs")).unwrap();
        writeln!(file, "{}", line("ResponseComplete", "create", "jobs")).unwrap();
        let half = line("ResponseComplete", "update", "leases");
        write!(file, "{}", &half[..20]).unwrap();
        let first = audit.take().unwrap();
        assert_eq!(counts(&first), Counts::from([("create jobs".into(), 1), ("watch jobs".into(), 1)]));
        assert_eq!(first.iter().filter(|request| request.is_write()).count(), 1);
        writeln!(file, "{}", &half[20..]).unwrap();
        let second = audit.take().unwrap();
        assert!(second[0].is_lease() && !second[0].is_write());
    }
}
