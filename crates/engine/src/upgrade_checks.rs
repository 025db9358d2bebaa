//! What stands against an upgrade, by the reports of the masters: their health, kubelets that would be too old, certificates that
//! end meanwhile, and stored objects of APIs that the new version does not serve.

use std::collections::BTreeSet;

use kubeon_api::Version;
use kubeon_wire::{ClusterFacts, EtcdFact, Facts};
use serde_json::Value;

use crate::node_version::KUBELET_SKEW;
use crate::ready_master::ProbedHost;
use crate::removed_apis::RemovedApi;

/// The check of APIs that the new version does not serve.
pub const REMOVED_APIS: &str = "removed-apis";
/// The check of versions that do not work together.
const SKEW: &str = "skew";
/// The check of certificates that end soon.
const CERTIFICATES: &str = "certificates";
/// The check of masters and members of etcd.
const HEALTH: &str = "health";

/// The checks of an upgrade, each of which a user may ignore by its name.
pub const UPGRADE_CHECKS: [&str; 4] = [REMOVED_APIS, SKEW, CERTIFICATES, HEALTH];

/// Seconds for which certificates must be valid: longer than a run.
const RUN_SECONDS: i64 = 86_400;
/// What the names of the programs of Kubernetes begin with. They write with the version of the API that they know.
const KUBERNETES: [&str; 2] = ["kube-", "kubelet"];

/// A reason against an upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeFinding {
    /// The name of the check.
    pub check: &'static str,
    /// What it is about: a host, a node, a file or an object.
    pub subject: String,
    /// What is wrong with it; it follows the subject in a sentence.
    pub reason: String,
}

impl UpgradeFinding {
    fn new(check: &'static str, subject: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { check, subject: subject.into(), reason: reason.into() }
    }
}

/// Everything that the reports of the masters say against the version.
pub(crate) fn of_masters(masters: &[ProbedHost], wanted: Version) -> Vec<UpgradeFinding> {
    let mut found = health(masters);
    found.extend(skew(masters, wanted));
    found.extend(masters.iter().flat_map(certificates));
    found
}

/// The nodes that are not Ready, with their reasons. An upgrade leaves out what does not answer.
pub(crate) fn nodes_not_ready(masters: &[ProbedHost]) -> Vec<String> {
    let nodes = reports(masters).find_map(|report| report.nodes.as_ref());
    let waiting = nodes.into_iter().flatten().filter(|(_, node)| !node.ready);
    waiting.map(|(name, node)| format!("node {name} is not Ready: {}", node.reason)).collect()
}

/// The reports of the API servers that are ready.
fn reports(masters: &[ProbedHost]) -> impl Iterator<Item = &ClusterFacts> {
    let facts = masters.iter().filter_map(|master| master.facts.as_ref().ok());
    facts.filter_map(|facts| facts.cluster.as_ref()).filter(|report| report.api_ready)
}

fn health(masters: &[ProbedHost]) -> Vec<UpgradeFinding> {
    let trouble = |master: &ProbedHost| trouble_of(master.facts.as_ref().ok()?.cluster.as_ref()?);
    let hosts = masters.iter().filter_map(|master| {
        Some(UpgradeFinding::new(HEALTH, format!("master {}", master.name), trouble(master)?))
    });
    let silent: BTreeSet<&str> = reports(masters).flat_map(members_that_do_not_serve).collect();
    let members = silent
        .into_iter()
        .map(|name| UpgradeFinding::new(HEALTH, format!("etcd member {name}"), "does not serve"));
    hosts.chain(members).collect()
}

fn trouble_of(report: &ClusterFacts) -> Option<&'static str> {
    match (report.api_ready, report.api_unknown) {
        (true, _) if report.etcd == EtcdFact::Down => Some("has an etcd member that does not serve"),
        (true, _) => None,
        (false, true) => Some("has an API server that did not answer in time"),
        (false, false) => Some("has an API server that is not ready"),
    }
}

fn members_that_do_not_serve(report: &ClusterFacts) -> impl Iterator<Item = &str> {
    let members = if let EtcdFact::Members(members) = &report.etcd { Some(members) } else { None };
    let silent = members.into_iter().flatten().filter(|(_, serves)| **serves == Some(false));
    silent.map(|(name, _)| name.as_str())
}

/// API servers of several minor versions, and kubelets that are too old for the next version, or, on nodes that are not Ready, for
/// the wanted one: the upgrade may not reach them.
fn skew(masters: &[ProbedHost], wanted: Version) -> Vec<UpgradeFinding> {
    let versions = || reports(masters).filter_map(|report| report.version);
    let Some(oldest) = versions().min() else { return Vec::new() };
    let mut found = Vec::new();
    if let Some(newest) = versions().max().filter(|newest| newest.minor != oldest.minor) {
        let reason = format!("have the versions {oldest} and {newest}; complete that change first");
        found.push(UpgradeFinding::new(SKEW, "the API servers", reason));
    }
    let next = wanted.minor.min(oldest.minor + 1);
    let nodes = reports(masters).find_map(|report| report.nodes.as_ref());
    for (name, node) in nodes.into_iter().flatten() {
        let served = if node.ready { next } else { wanted.minor };
        let Ok(kubelet) = node.kubelet.parse::<Version>() else { continue };
        if kubelet.minor + KUBELET_SKEW < served {
            let oldest = served - KUBELET_SKEW;
            let reason = format!(
                "has kubelet {kubelet}; v{}.{served} works with v{}.{oldest} or newer",
                wanted.major, wanted.major
            );
            found.push(UpgradeFinding::new(SKEW, format!("node {name}"), reason));
        }
    }
    found
}

fn certificates(master: &ProbedHost) -> Vec<UpgradeFinding> {
    let Ok(facts) = &master.facts else { return Vec::new() };
    let ends = |not_after: i64| match not_after - facts.clock_seconds {
        ..=0 => Some("has ended".to_owned()),
        left @ ..RUN_SECONDS => Some(format!("ends in {} h", left / 3600)),
        _ => None,
    };
    let files = own_certificates(facts);
    let found = files.filter_map(|(path, not_after)| {
        let reason = format!("{}; kubeon create renews it", ends(not_after)?);
        Some(UpgradeFinding::new(CERTIFICATES, format!("{path} on {}", master.name), reason))
    });
    found.collect()
}

/// Path and end of each certificate.
fn own_certificates(facts: &Facts) -> impl Iterator<Item = (&str, i64)> {
    let all = facts.certificates.iter().chain(&facts.kubelet.own);
    all.map(|certificate| (certificate.path.as_str(), certificate.not_after))
}

/// The objects in a list that people or their programs write with an API that `wanted` does not serve.
pub(crate) fn stored(list: &Value, api: &RemovedApi, wanted: Version) -> Vec<UpgradeFinding> {
    let version = api.api_version();
    let items = list["items"].as_array().into_iter().flatten();
    let written = items.filter(|item| is_written_with(item, &version)).map(|item| {
        let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default();
        let place = match text("namespace") {
            "" => text("name").to_owned(),
            namespace => format!("{namespace}/{}", text("name")),
        };
        let reason = format!("is written with {version}, which {wanted} does not serve");
        UpgradeFinding::new(REMOVED_APIS, format!("{} {place}", api.resource()), reason)
    });
    written.collect()
}

fn is_written_with(item: &Value, version: &str) -> bool {
    let metadata = &item["metadata"];
    let is_kubernetes = |manager: &str| KUBERNETES.iter().any(|name| manager.starts_with(name));
    let mut managers = metadata["managedFields"].as_array().into_iter().flatten();
    let by_others = managers.any(|entry| {
        entry["apiVersion"] == version && !is_kubernetes(entry["manager"].as_str().unwrap_or_default())
    });
    let applied = metadata["annotations"]["kubectl.kubernetes.io/last-applied-configuration"].as_str();
    let applied = applied.and_then(|text| serde_json::from_str::<Value>(text).ok());
    by_others || applied.is_some_and(|applied| applied["apiVersion"] == version)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kubeon_wire::{CertificateFact, NodeFact};
    use serde_json::json;

    use super::*;
    use crate::removed_apis::removed_between;

    const NOW: i64 = 1_800_000_000;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    fn node(kubelet: &str, ready: bool) -> NodeFact {
        NodeFact { ready, kubelet: kubelet.to_owned(), reason: "silent".to_owned(), ..NodeFact::default() }
    }

    /// A master of v1.36 that works.
    fn master(name: &str, change: impl FnOnce(&mut Facts)) -> ProbedHost {
        let members =
            [("h1", Some(true)), ("h2", Some(true))].map(|(name, serves)| (name.to_owned(), serves));
        let cluster = ClusterFacts {
            api_ready: true,
            version: Some(version("v1.36.3")),
            nodes: Some(BTreeMap::from([("h4".to_owned(), node("v1.36.3", true))])),
            etcd: EtcdFact::Members(members.into()),
            ..ClusterFacts::default()
        };
        let mut facts = Facts { clock_seconds: NOW, cluster: Some(cluster), ..Facts::default() };
        change(&mut facts);
        ProbedHost { host: "10.0.0.1".parse().unwrap(), name: name.to_owned(), facts: Ok(facts) }
    }

    fn found(masters: &[ProbedHost], wanted: &str) -> Vec<String> {
        let found = of_masters(masters, version(wanted));
        found
            .into_iter()
            .map(|found| format!("{}: {} {}", found.check, found.subject, found.reason))
            .collect()
    }

    #[test]
    fn a_cluster_that_works_has_no_obstacle() {
        let masters = [master("h1", |_| {}), master("h2", |_| {})];
        assert_eq!(found(&masters, "v1.37.2"), Vec::<String>::new());
        assert_eq!(nodes_not_ready(&masters), Vec::<String>::new());
    }

    #[test]
    fn masters_and_members_that_do_not_work_are_named() {
        let members = [("h1", Some(true)), ("h4", Some(false)), ("h5", None)];
        let masters = [
            master("h1", |facts| {
                let members = members.map(|(name, serves)| (name.to_owned(), serves));
                facts.cluster.as_mut().unwrap().etcd = EtcdFact::Members(members.into());
            }),
            master("h2", |facts| facts.cluster.as_mut().unwrap().api_ready = false),
        ];
        assert_eq!(
            found(&masters, "v1.37.2"),
            [
                "health: master h2 has an API server that is not ready",
                "health: etcd member h4 does not serve",
            ]
        );
    }

    #[test]
    fn a_kubelet_may_be_three_minor_versions_older() {
        let with = |kubelet: &str, ready: bool| {
            [master("h1", |facts| {
                let nodes = facts.cluster.as_mut().unwrap().nodes.as_mut().unwrap();
                nodes.insert("h5".to_owned(), node(kubelet, ready));
            })]
        };
        assert_eq!(found(&with("v1.34.9", true), "v1.37.2"), Vec::<String>::new());
        assert_eq!(
            found(&with("v1.33.9", true), "v1.37.2"),
            ["skew: node h5 has kubelet v1.33.9; v1.37 works with v1.34 or newer"]
        );
        assert_eq!(
            found(&with("v1.34.9", true), "v1.38.0"),
            Vec::<String>::new(),
            "it changes to v1.37 first"
        );
        assert_eq!(
            found(&with("v1.34.9", false), "v1.38.0"),
            ["skew: node h5 has kubelet v1.34.9; v1.38 works with v1.35 or newer"]
        );
        assert_eq!(nodes_not_ready(&with("v1.36.3", false)), ["node h5 is not Ready: silent"]);
        let other = master("h2", |facts| facts.cluster.as_mut().unwrap().version = Some(version("v1.35.7")));
        assert_eq!(
            found(&[master("h1", |_| {}), other], "v1.37.2"),
            ["skew: the API servers have the versions v1.35.7 and v1.36.3; complete that change first"]
        );
    }

    #[test]
    fn certificates_outlive_the_run() {
        let certificate = |path: &str, hours: i64| CertificateFact {
            path: path.to_owned(),
            not_before: NOW - 1,
            not_after: NOW + hours * 3600,
        };
        let masters = [master("h1", |facts| {
            facts.certificates = vec![certificate("/a", 25), certificate("/b", 23), certificate("/c", 0)];
            facts.kubelet.own = Some(certificate("/d", 1));
        })];
        assert_eq!(
            found(&masters, "v1.36.4"),
            [
                "certificates: /b on h1 ends in 23 h; kubeon create renews it",
                "certificates: /c on h1 has ended; kubeon create renews it",
                "certificates: /d on h1 ends in 1 h; kubeon create renews it",
            ]
        );
    }

    #[test]
    fn objects_that_others_write_with_a_removed_api_are_found() {
        let wanted = version("v1.37.2");
        let mut removed = removed_between(version("v1.36.3"), wanted);
        let api = removed.find(|api| api.resource() == "servicecidrs").unwrap();
        let item = |name: &str, manager: &str, version: &str| json!({"metadata": {"name": name, "managedFields": [{"manager": manager, "apiVersion": version}]}});
        let old = "networking.k8s.io/v1beta1";
        let applied = json!({"apiVersion": old}).to_string();
        let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": applied});
        let list = json!({"items": [
            item("a", "kubectl-create", old), item("b", "kube-apiserver", old), item("c", "helm", "networking.k8s.io/v1"),
            {"metadata": {"name": "d", "namespace": "shop", "annotations": annotations}},
        ]});
        let found: Vec<_> = stored(&list, api, wanted).into_iter().map(|found| found.subject).collect();
        assert_eq!(found, ["servicecidrs a", "servicecidrs shop/d"]);
        assert!(stored(&Value::Null, api, wanted).is_empty());
    }
}
