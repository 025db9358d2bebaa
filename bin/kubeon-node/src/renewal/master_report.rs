//! Reports in the cluster what only a master sees: when its first certificate ends, which members of etcd do not serve, and what
//! differs on it from the steps that it recorded.

use std::time::Duration;

use kubeon_api::clip;
use kubeon_wire::{
    CertificateFact, Claim, EtcdFact, HostDrift, MASTER_REPORTS, MasterReport, StepFailure, renewal_overdue,
};
use serde_json::json;

use super::lock;
use super::report::RenewalReport;
use crate::api::{Api, message};
use crate::drift::changed_results;
use crate::durable::read_text;
use crate::facts::{certificates, cluster};
use crate::failure::failed;
use crate::host::HostSystem;
use crate::journal::{self, Entry};
use crate::paths;
use crate::root::Root;

const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most differences that a report names.
const MOST_NAMED: usize = 5;
/// The most bytes of one of them.
const LONGEST_TEXT: usize = 200;

/// Writes the report of this master. An API server that does not answer is not a failure: the next run writes it.
pub(super) fn publish(host: &HostSystem, claim: &Claim, now: i64, report: &mut RenewalReport) {
    let Ok(api) = Api::local(host) else { return };
    let published = node_name(&host.root).and_then(|name| match name {
        Some(name) => {
            let drift = drift_of(host, claim).unwrap_or_else(|failure| {
                report.failures.push(failure);
                None
            });
            write(&api, &name, &MasterReport { drift, ..master_report(host, &name, now)? })
        }
        None => Ok(()),
    });
    report.failures.extend(published.err());
}

/// The name of this node; `None` before the host has joined.
pub(super) fn node_name(root: &Root) -> Result<Option<String>, StepFailure> {
    let text = read_text(&root.at(paths::KUBELET_OWN))?;
    let subject = text.and_then(|text| certificates::common_name(&text));
    Ok(subject.and_then(|subject| subject.strip_prefix("system:node:").map(str::to_owned)))
}

fn master_report(host: &HostSystem, name: &str, now: i64) -> Result<MasterReport, StepFailure> {
    let mut found = certificates::all(&host.root)?;
    found.extend(certificates::kubelet(&host.root).own);
    let is_overdue = |found: &&CertificateFact| now >= renewal_overdue(found.not_before, found.not_after);
    Ok(MasterReport {
        at: now,
        first_end: found.iter().map(|found| found.not_after).min(),
        overdue: found.iter().filter(is_overdue).map(|found| found.path.clone()).collect(),
        members_down: members_down(cluster::etcd(&host.root, &host.etcd), name),
        drift: None,
    })
}

/// What differs from the journal; `None` while another program changes the host: the journal has a step only after its end.
fn drift_of(host: &HostSystem, claim: &Claim) -> Result<Option<HostDrift>, StepFailure> {
    let Ok(_lock) = lock::take(&host.root, claim)? else { return Ok(None) };
    let (mut entries, mut texts): (Vec<Entry>, Vec<String>) = (Vec::new(), Vec::new());
    for entry in journal::all(&host.root)? {
        match entry {
            Ok(entry) => entries.push(entry),
            Err(id) => texts.push(format!("the record of step {id} cannot be read")),
        }
    }
    texts.extend(changed_results(host, &entries));
    let count = u32::try_from(texts.len()).unwrap_or(u32::MAX);
    let clipped = |text: &String| clip(text, LONGEST_TEXT).to_owned();
    Ok(Some(HostDrift { count, first: texts.iter().take(MOST_NAMED).map(clipped).collect() }))
}

fn members_down(etcd: EtcdFact, name: &str) -> Vec<String> {
    match etcd {
        EtcdFact::Unknown => Vec::new(),
        EtcdFact::Down => vec![name.to_owned()],
        EtcdFact::Members(members) => {
            members.into_iter().filter(|(_, healthy)| *healthy == Some(false)).map(|(name, _)| name).collect()
        }
    }
}

/// Writes the key of this node; the keys of other masters stay.
fn write(api: &Api, name: &str, report: &MasterReport) -> Result<(), StepFailure> {
    let text = serde_json::to_string(report).map_err(|error| failed(error.to_string()))?;
    let data = json!({ "data": { name: text } });
    let path = format!("{CONFIG_MAPS}/{MASTER_REPORTS}");
    let Ok(mut answer) = api.merge(&path, &data, TIMEOUT) else { return Ok(()) };
    if answer.status == 404 {
        let mut map = data;
        map["apiVersion"] = json!("v1");
        map["kind"] = json!("ConfigMap");
        map["metadata"] = json!({ "name": MASTER_REPORTS });
        let Ok(created) = api.post(CONFIG_MAPS, &map, TIMEOUT) else { return Ok(()) };
        answer = created;
    }
    // Another master may have created it at the same time; the next run adds this one.
    if matches!(answer.status, 200 | 201 | 409) || answer.status >= 500 {
        return Ok(());
    }
    let why = message(&answer.body);
    Err(failed(format!("cannot write ConfigMap kube-system/{MASTER_REPORTS}: {} {why}", answer.status)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;
    use crate::testing::Bench;
    use crate::testing_api::{self, Reply};

    /// The beginning of 2026, in seconds since 1970.
    const BEGIN: i64 = 1_767_225_600;

    /// The kubelet's certificate of the node h1, valid for one day.
    fn kubelet_certificate() -> String {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:h1");
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 1, 2);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn claim() -> Claim {
        Claim {
            cluster: "demo".parse().unwrap(),
            uid: "u1".to_owned(),
            generation: 3,
            version: "v1.36.3".parse().unwrap(),
            role: kubeon_api::HostRole::Master,
        }
    }

    /// The failures of a run and the body of the last write. `status` answers the first write.
    fn published(status: u16) -> (Vec<StepFailure>, Value) {
        let mut bench = Bench::new();
        bench.write(paths::KUBELET_OWN, &kubelet_certificate());
        let requests = testing_api::serve(&mut bench, move |method, _, _| {
            Reply::Json(if method == "PATCH" { status } else { 201 }, r#"{"message": "no"}"#.to_owned())
        });
        let mut report = RenewalReport::default();
        publish(&bench.host, &claim(), BEGIN + 23 * 3600, &mut report);
        let requests = requests.lock();
        let body =
            requests.last().map(|(_, _, body)| serde_json::from_str(body).unwrap()).unwrap_or_default();
        (report.failures, body)
    }

    #[test]
    fn a_master_writes_when_its_first_certificate_ends() {
        let (failures, changed) = published(200);
        assert!(failures.is_empty() && changed.get("metadata").is_none(), "{failures:?} {changed}");
        let (failures, created) = published(404);
        assert!(failures.is_empty(), "{failures:?}");
        assert_eq!(created["metadata"]["name"], "kubeon-masters");
        let report: MasterReport = serde_json::from_str(created["data"]["h1"].as_str().unwrap()).unwrap();
        assert_eq!(report.overdue, [paths::KUBELET_OWN], "after five sixths of its day");
        assert_eq!(report.first_end, Some(report.at + 3600));
        assert_eq!(report.drift, Some(HostDrift::default()), "nothing was recorded");
        let (failures, _) = published(403);
        assert!(
            failures[0].cause.contains("cannot write ConfigMap kube-system/kubeon-masters: 403 no"),
            "{failures:?}"
        );
        assert!(published(503).0.is_empty(), "the next run writes it");
    }

    #[test]
    fn a_host_that_is_no_master_writes_nothing() {
        let mut report = RenewalReport::default();
        publish(&Bench::new().host, &claim(), 0, &mut report);
        assert!(report.failures.is_empty() && report.notes.is_empty());
    }

    #[test]
    fn a_report_names_a_few_of_the_files_that_changed() {
        let bench = Bench::new();
        let mark = |number: usize| {
            bench.write(&format!("/etc/f{number}"), "changed");
            let path = format!("/etc/f{number}");
            journal::Mark::File { path, sha256: String::new(), mode: 0o644 }
        };
        let entry = Entry { id: "x/y@h1".into(), digest: "d".into(), marks: (0..7).map(mark).collect() };
        let root = &bench.host.root;
        journal::remember(root, &entry).unwrap();
        let drift = drift_of(&bench.host, &claim()).unwrap().unwrap();
        assert_eq!((drift.count, drift.first.len()), (7, MOST_NAMED));
        assert!(drift.first[0].starts_with("/etc/f0 "), "{drift:?}");
        let lock = crate::fence::Lock::take(root, "u1", 3, Duration::ZERO).unwrap();
        assert_eq!(drift_of(&bench.host, &claim()).unwrap(), None, "another program changes the host");
        drop(lock);
        std::fs::write(root.at(paths::JOURNAL).join("x__z@h1.json"), "{").unwrap();
        let drift = drift_of(&bench.host, &claim()).unwrap().unwrap();
        assert_eq!((drift.count, drift.first[0].as_str()), (8, "the record of step x/z@h1 cannot be read"));
    }

    #[test]
    fn only_members_that_certainly_do_not_serve_are_down() {
        assert_eq!(members_down(EtcdFact::Unknown, "h1"), [""; 0]);
        assert_eq!(members_down(EtcdFact::Down, "h1"), ["h1"]);
        let all = [("h1", Some(true)), ("h2", Some(false)), ("h3", None)];
        let members: BTreeMap<_, _> = all.into_iter().map(|(name, up)| (name.to_owned(), up)).collect();
        assert_eq!(members_down(EtcdFact::Members(members), "h1"), ["h2"]);
    }
}
