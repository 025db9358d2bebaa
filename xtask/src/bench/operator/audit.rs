//! Requests, counted by the API server's audit log: it names the account that asked, and nothing stands in the way of
//! what is measured.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

/// How many requests of each kind: `patch clusters/status`.
pub(super) type Counts = BTreeMap<String, usize>;

/// One request.
#[derive(Debug, Clone)]
pub(super) struct AuditedRequest {
    pub(super) verb: String,
    /// Such as `clusters/status`.
    pub(super) resource: String,
    pub(super) name: String,
    pub(super) at: Timestamp,
}

impl AuditedRequest {
    /// Whether it belongs to the election of a leader.
    pub(super) fn is_lease(&self) -> bool {
        self.resource == "leases"
    }

    /// Whether it changes something, leases and events not counted.
    pub(super) fn is_write(&self) -> bool {
        let changes =
            matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection");
        changes && !self.is_lease() && self.resource != "events" && !self.resource.ends_with("reviews")
    }
}

/// Requests by kind.
pub(super) fn counts(requests: &[AuditedRequest]) -> Counts {
    let mut counts = Counts::new();
    for request in requests {
        *counts.entry(format!("{} {}", request.verb, request.resource)).or_default() += 1;
    }
    counts
}

/// A policy that logs these users' requests when they are answered, a watch when it begins, and nobody else's.
pub(super) fn policy(users: &[String]) -> String {
    let users = users.join("', '");
    format!(
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n\
         - {{ level: Metadata, users: ['{users}'] }}\n- {{ level: None }}\n"
    )
}

/// The log, read as it grows.
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

    /// The requests since the last call. A line that is being written is left for the next.
    pub(super) fn take(&mut self) -> Result<Vec<AuditedRequest>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        self.offset += whole.len() as u64;
        let requests = whole.lines().map(read).collect::<Result<Vec<_>>>()?;
        Ok(requests.into_iter().flatten().collect())
    }
}

fn read(line: &str) -> Result<Option<AuditedRequest>> {
    let line: Line = serde_json::from_str(line).context("a line of the audit log is not understood")?;
    let counted = if line.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
    if line.stage != counted && line.stage != "Panic" {
        return Ok(None);
    }
    let path = line.uri.split('?').next().unwrap_or_default().to_owned();
    let object = line.object_ref.unwrap_or(Object { resource: Some(path), subresource: None, name: None });
    let resource = object.resource.unwrap_or_default();
    let resource = match object.subresource {
        Some(below) => format!("{resource}/{below}"),
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
