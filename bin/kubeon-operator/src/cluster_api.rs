//! The API servers of one business cluster.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::Ipv4Addr;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::jiff::Timestamp;
use kubeon_api::clip;
use kubeon_api::kubernetes_cluster::DeclaredCluster;
use kubeon_link_kube::{
    MasterReport, ObservedNode, ObserverClient, ObserverConnection, ObserverCredential, ObserverError,
    ObserverKubeconfig,
};
use kubeon_operations::{ENDS_SOON, ObservedCertificates, ObservedDrift, ObservedHealth, ObservedVersions};

/// Seconds after which the report of a master no longer counts: six of its periods.
const REPORT_LIFE: i64 = 3600;
/// The most differences that are named.
const MOST_NAMED: usize = 5;
/// The most bytes of one of them: the tenant may write the reports.
const LONGEST_TEXT: usize = 300;

/// Why the health is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HealthError {
    /// No API server answers.
    Unreachable(String),
    /// An API server answers, and either it or the kubeconfig does not accept the certificate or token of the other.
    Refused(String),
    /// The credential cannot be used.
    Unusable(String),
    /// The runner has not written the credential yet.
    NoCredential,
}

impl From<ObserverError> for HealthError {
    fn from(error: ObserverError) -> Self {
        match &error {
            ObserverError::Unreachable { .. } => Self::Unreachable(error.to_string()),
            ObserverError::Refused { .. } | ObserverError::Untrusted { .. } => {
                Self::Refused(error.to_string())
            }
            ObserverError::Kubeconfig(_) => Self::Unusable(error.to_string()),
        }
    }
}

/// The API servers of a business cluster, with a connection to the one that answered last.
pub(crate) struct ClusterApi {
    credential: ObserverCredential,
    servers: Vec<String>,
    connection: Option<ObserverConnection>,
    version: u64,
}

impl ClusterApi {
    /// The API servers in a kubeconfig that are masters of the declared cluster. The tenant may write the kubeconfig, and must
    /// not learn by it which other addresses answer.
    pub(crate) async fn new(
        text: &str,
        declared: &DeclaredCluster,
        version: u64,
    ) -> Result<Self, HealthError> {
        let kubeconfig = ObserverKubeconfig::parse(text)?;
        let servers = masters_in(kubeconfig.servers(), declared);
        let Some(server) = servers.first() else {
            let why = "no server in the kubeconfig of the observer is a master of the cluster";
            return Err(HealthError::Unusable(why.to_owned()));
        };
        let credential = kubeconfig.credential(server).await?;
        Ok(Self { credential, servers, connection: None, version })
    }

    /// The version of the Secret with the kubeconfig.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The health of the cluster: one server is asked; when it does not answer, all are.
    pub(crate) async fn health(&mut self) -> Result<ObservedHealth, HealthError> {
        let mut client = match self.ready_client().await {
            Some(client) => client,
            None => self.first_ready().await?,
        };
        let (nodes, reports) = (client.nodes().await?, client.master_reports().await?);
        self.connection = client.into_connection();
        let renewal_due = self.credential.renewal_due(Timestamp::now().as_second());
        Ok(health_of(nodes, reports, renewal_due, Timestamp::now()))
    }

    /// The connection of the previous attempt, if its server is ready.
    async fn ready_client(&mut self) -> Option<ObserverClient> {
        let mut client = self.connection.take()?.into_client().await.ok()?;
        client.check_ready().await.ok().map(|()| client)
    }

    /// The server that answers first. A server that refuses the credential says more than one that does not answer.
    async fn first_ready(&self) -> Result<ObserverClient, HealthError> {
        let attempts = self.servers.iter().map(|server| async move {
            let mut client = self.credential.connect(server).await?.into_client().await?;
            client.check_ready().await?;
            Ok::<_, ObserverError>(client)
        });
        let mut attempts: FuturesUnordered<_> = attempts.collect();
        let mut why = HealthError::NoCredential;
        while let Some(attempt) = attempts.next().await {
            match attempt {
                Ok(client) => return Ok(client),
                Err(_) if matches!(why, HealthError::Refused(_)) => {}
                Err(error) => why = error.into(),
            }
        }
        Err(why)
    }
}

fn health_of(
    nodes: Vec<ObservedNode>,
    reports: BTreeMap<String, MasterReport>,
    renewal_due: bool,
    now: Timestamp,
) -> ObservedHealth {
    let all = nodes.len();
    let versions = versions_of(&nodes);
    let not_ready = nodes.into_iter().filter(|node| !node.is_ready).map(|node| node.name).collect();
    let is_recent = |report: &MasterReport| now.as_second().saturating_sub(report.at) < REPORT_LIFE;
    let recent: Vec<_> = reports.into_iter().filter(|(_, report)| is_recent(report)).collect();
    let down: BTreeSet<String> = recent.iter().flat_map(|(_, report)| report.members_down.clone()).collect();
    ObservedHealth::Serving {
        nodes: all,
        not_ready,
        members_down: down.into_iter().collect(),
        versions,
        certificates: certificates_of(&recent, now),
        drift: drift_of(&recent),
        renewal_due,
    }
}

/// The most common version, and the nodes with another one. Of two equally common ones the first in the alphabet counts.
fn versions_of(nodes: &[ObservedNode]) -> ObservedVersions {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for node in nodes {
        *counts.entry(&node.version).or_default() += 1;
    }
    let most = counts.into_iter().rev().max_by_key(|(_, count)| *count).map_or("", |(version, _)| version);
    let others = nodes.iter().filter(|node| node.version != most);
    let mut others: Vec<String> = others.map(|node| format!("{} {}", node.name, node.version)).collect();
    others.sort();
    ObservedVersions { most: most.to_owned(), others }
}

fn certificates_of(reports: &[(String, MasterReport)], now: Timestamp) -> Option<ObservedCertificates> {
    let first_end = reports.iter().filter_map(|(_, report)| report.first_end).min()?;
    let first_end = Timestamp::from_second(first_end).ok()?;
    let overdue = reports
        .iter()
        .flat_map(|(node, report)| report.overdue.iter().map(move |path| format!("{node}: {path}")))
        .collect();
    let ends_soon = first_end.duration_since(now) < ENDS_SOON;
    Some(ObservedCertificates { first_end, ends_soon, overdue })
}

/// What differs on the masters. Not known while no difference is reported and a master did not check.
fn drift_of(reports: &[(String, MasterReport)]) -> Option<ObservedDrift> {
    let mut drift = ObservedDrift::default();
    let mut is_complete = !reports.is_empty();
    for (node, report) in reports {
        let Some(found) = &report.drift else {
            is_complete = false;
            continue;
        };
        drift.count += u64::from(found.count);
        let texts = found.first.iter().map(|text| format!("{node}: {text}"));
        let named = texts.take(MOST_NAMED).map(|text| clip(&text, LONGEST_TEXT).to_owned());
        drift.named.extend(named);
    }
    drift.named.sort();
    drift.named.truncate(MOST_NAMED);
    (is_complete || drift.count > 0).then_some(drift)
}

/// The URLs whose addresses are those of declared masters.
fn masters_in(servers: &[String], declared: &DeclaredCluster) -> Vec<String> {
    let masters: HashSet<Ipv4Addr> = declared
        .master_list
        .iter()
        .flat_map(|master| [Some(master.ip), master.internal_address])
        .flatten()
        .map(|address| address.ip())
        .collect();
    let is_master = |server: &&String| address_in(server).is_some_and(|address| masters.contains(&address));
    servers.iter().filter(is_master).cloned().collect()
}

/// The IPv4 address in a URL such as `https://10.0.0.1:6443`.
fn address_in(server: &str) -> Option<Ipv4Addr> {
    let authority = server.strip_prefix("https://")?;
    let (address, port) = authority.split_once(':')?;
    port.parse::<u16>().ok()?;
    address.parse().ok()
}

#[cfg(test)]
mod tests {
    use kubeon_link_kube::HostDrift;

    use super::*;

    fn declared() -> DeclaredCluster {
        let masters =
            serde_json::json!({"masterList": [{"ip": "10.0.0.1", "internalAddress": "192.168.0.1"}]});
        serde_json::from_value(masters).unwrap()
    }

    #[tokio::test]
    async fn only_masters_of_the_declared_cluster_are_asked() {
        let masters = |servers: &[&str]| {
            let servers: Vec<String> = servers.iter().map(|&server| server.to_owned()).collect();
            masters_in(&servers, &declared())
        };
        let found = masters(&[
            "https://10.0.0.1:6443",
            "https://192.168.0.1:6443",
            "https://169.254.169.254:80",
            "https://10.0.0.9:6443",
        ]);
        assert_eq!(found, ["https://10.0.0.1:6443", "https://192.168.0.1:6443"]);
        for foreign in [
            "https://10.0.0.9:6443",
            "http://10.0.0.1:6443",
            "https://10.0.0.1:6443/x",
            "https://10.0.0.1:6443@10.0.0.9:1",
        ] {
            assert_eq!(masters(&[foreign]), [""; 0], "{foreign}");
        }
        let text = "users:\n- name: u\n  user: {token: t}\nclusters:\n- name: c\n  cluster: \
            {server: 'https://10.0.0.9:6443', certificate-authority-data: YQ==}\n";
        let error = ClusterApi::new(text, &declared(), 7).await.err();
        assert!(
            matches!(&error, Some(HealthError::Unusable(why)) if why.contains("is a master")),
            "{error:?}"
        );
    }

    #[test]
    fn nodes_and_recent_reports_make_the_health() {
        let node = |name: &str, is_ready, version: &str| ObservedNode {
            name: name.to_owned(),
            is_ready,
            version: version.to_owned(),
        };
        let report = |at, first_end, overdue: &[&str], members_down: &[&str]| {
            let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
            let (overdue, members_down) = (owned(overdue), owned(members_down));
            MasterReport { at, first_end, overdue, members_down, drift: None }
        };
        let reports = [
            ("h1", report(9000, Some(50_000), &[], &["h3"])),
            ("h2", report(9500, Some(40_000), &["/a.crt"], &["h3"])),
            ("h3", report(1000, Some(100), &["/b.crt"], &["h1"])),
        ];
        let reports = reports.map(|(name, report)| (name.to_owned(), report)).into();
        let now = Timestamp::from_second(10_000).unwrap();
        let nodes = vec![node("a", true, "v1.36.3"), node("b", false, "v1.36.3"), node("c", true, "v1.35.4")];
        let health = health_of(nodes, reports, true, now);
        let certificates = ObservedCertificates {
            first_end: Timestamp::from_second(40_000).unwrap(),
            ends_soon: true,
            overdue: vec!["h2: /a.crt".to_owned()],
        };
        let expected = ObservedHealth::Serving {
            nodes: 3,
            not_ready: vec!["b".to_owned()],
            members_down: vec!["h3".to_owned()],
            versions: ObservedVersions { most: "v1.36.3".to_owned(), others: vec!["c v1.35.4".to_owned()] },
            certificates: Some(certificates),
            drift: None,
            renewal_due: true,
        };
        assert_eq!(health, expected, "the report of h3 is too old");
        let ObservedHealth::Serving { certificates, .. } = health_of(Vec::new(), BTreeMap::new(), false, now)
        else {
            panic!("it serves")
        };
        assert_eq!(certificates, None);
    }

    #[test]
    fn a_certificate_that_ends_within_two_weeks_ends_soon() {
        let now = Timestamp::from_second(10_000).unwrap();
        let ends_soon = |first_end| {
            let report = MasterReport { first_end: Some(first_end), ..MasterReport::default() };
            certificates_of(&[("h1".to_owned(), report)], now).unwrap().ends_soon
        };
        let end = 10_000 + 14 * 86_400;
        assert!(ends_soon(end - 1) && ends_soon(5) && !ends_soon(end));
    }

    #[test]
    fn drift_is_known_when_every_master_checked_or_one_found_some() {
        let report = |drift| MasterReport { drift, ..MasterReport::default() };
        let found = |count, first: &[&str]| {
            Some(HostDrift { count, first: first.iter().map(|&text| text.to_owned()).collect() })
        };
        let of = |reports: &[Option<HostDrift>]| {
            let named =
                reports.iter().enumerate().map(|(at, drift)| (format!("h{at}"), report(drift.clone())));
            drift_of(&named.collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[None, found(0, &[])]), None, "h0 may be different");
        assert_eq!(of(&[found(0, &[]), found(0, &[])]), Some(ObservedDrift::default()));
        let drift = of(&[found(1, &["/a was changed"]), None, found(9, &["b"; 9])]).unwrap();
        assert_eq!((drift.count, drift.named.len()), (10, MOST_NAMED));
        assert_eq!(drift.named[..2], ["h0: /a was changed", "h2: b"]);
        let long = of(&[found(1, &["x".repeat(9999).as_str()])]).unwrap();
        assert_eq!(long.named[0].len(), LONGEST_TEXT);
    }
}
