//! Shows on the node of this host which of its certificates end first, so that one master knows them for all hosts, also for
//! those that are off.

use std::time::Duration;

use kubeon_wire::{NodeCertificates, StepFailure};
use serde_json::{Value, json};

use super::master_report::node_name;
use super::report::RenewalReport;
use crate::api::{Api, message};
use crate::facts::certificates;
use crate::facts::node_certificates::ANNOTATION;
use crate::failure::failed;
use crate::host::HostSystem;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Writes the annotation if it differs. An API server that does not answer is not a failure: the next run writes it.
pub(super) fn publish(host: &HostSystem, report: &mut RenewalReport) {
    match write(host) {
        Ok(note) => report.notes.extend(note),
        Err(failure) => report.failures.push(failure),
    }
}

/// Returns a note if the API server refuses the annotation.
fn write(host: &HostSystem) -> Result<Option<String>, StepFailure> {
    let root = &host.root;
    let Some(name) = node_name(root)? else { return Ok(None) };
    // A host that joins cannot reach the API yet.
    let Ok(api) = Api::as_node(host) else { return Ok(None) };
    let found = NodeCertificates::new(&certificates::all(root)?, &certificates::kubelet(root));
    let text = serde_json::to_string(&found).map_err(|error| failed(error.to_string()))?;
    let path = format!("/api/v1/nodes/{name}");
    // While the kubelet's certificate has expired, or before the node exists, there is nothing to write to.
    let answer = api.get(&path, TIMEOUT).ok().filter(|answer| answer.status == 200);
    let node = answer.and_then(|answer| serde_json::from_str::<Value>(&answer.body).ok());
    let Some(node) = node else { return Ok(None) };
    if node["metadata"]["annotations"][ANNOTATION] == text.as_str() {
        return Ok(None);
    }
    let body = json!({ "metadata": { "annotations": { ANNOTATION: text } } });
    let Ok(answer) = api.merge(&path, &body, TIMEOUT) else { return Ok(None) };
    let is_refused = (400..500).contains(&answer.status) && answer.status != 404;
    let note = || format!("cannot write {ANNOTATION} to node {name}: {}", message(&answer.body));
    Ok(is_refused.then(note))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::paths;
    use crate::testing::Bench;
    use crate::testing_api::{self, Reply, Requests};

    /// The host of the node h1, and an API server that stores the node or refuses its change with a status.
    fn host(refusal: Option<u16>) -> (Bench, Requests) {
        let mut bench = Bench::new();
        let stored = Arc::new(Mutex::new(json!({ "metadata": { "name": "h1" } })));
        let requests = Arc::new(Mutex::new(None::<Requests>));
        let shared = Arc::clone(&requests);
        let served = testing_api::serve(&mut bench, move |method, _, number| {
            if method != "PATCH" {
                return Reply::Json(200, stored.lock().to_string());
            }
            if let Some(status) = refusal {
                return Reply::Json(status, r#"{"message": "no"}"#.to_owned());
            }
            let body = shared.lock().as_ref().map(|all| all.lock()[number].2.clone()).unwrap_or_default();
            *stored.lock() = serde_json::from_str(&body).unwrap();
            Reply::Json(200, body)
        });
        *requests.lock() = Some(Arc::clone(&served));
        let identity = bench.read(paths::ADMIN_CERTIFICATE) + &bench.read(paths::ADMIN_KEY);
        bench.write(paths::KUBELET_OWN, &identity);
        let server = json!({ "clusters": [{ "cluster": { "server": bench.host.api } }] });
        bench.write("/etc/kubernetes/kube-proxy.conf", &server.to_string());
        (bench, served)
    }

    fn run(bench: &Bench) -> RenewalReport {
        let mut report = RenewalReport::default();
        publish(&bench.host, &mut report);
        report
    }

    fn methods(requests: &Requests) -> Vec<String> {
        requests.lock().iter().map(|(method, path, _)| format!("{method} {path}")).collect()
    }

    #[test]
    fn a_node_shows_its_certificates_and_is_written_only_when_they_change() {
        let (bench, requests) = host(None);
        let (read, write) = ("GET /api/v1/nodes/h1", "PATCH /api/v1/nodes/h1?fieldManager=kubeon");
        for _ in 0..2 {
            let report = run(&bench);
            assert!(report.notes.is_empty() && report.failures.is_empty(), "{report:?}");
        }
        assert_eq!(methods(&requests), [read, write, read]);
        let body: Value = serde_json::from_str(&requests.lock()[1].2).unwrap();
        let text = body["metadata"]["annotations"][ANNOTATION].as_str().unwrap();
        let shown: NodeCertificates = serde_json::from_str(text).unwrap();
        let all = certificates::all(&bench.host.root).unwrap();
        assert_eq!(shown, NodeCertificates::new(&all, &certificates::kubelet(&bench.host.root)));
        assert!(shown.first.is_some() && shown.kubelet.is_some(), "{shown:?}");
    }

    #[test]
    fn a_refused_annotation_is_noted_and_no_failure() {
        let (bench, _requests) = host(Some(403));
        let report = run(&bench);
        assert_eq!(report.notes, ["cannot write kubeon.io/certificates to node h1: no"]);
        assert!(report.failures.is_empty(), "{report:?}");
        let (bench, _requests) = host(Some(503));
        assert!(run(&bench).notes.is_empty(), "the next run writes it");
    }

    #[test]
    fn a_host_without_a_node_writes_nothing() {
        let report = run(&Bench::new());
        assert!(report.notes.is_empty() && report.failures.is_empty(), "{report:?}");
    }
}
