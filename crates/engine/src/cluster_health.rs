//! The health of the stored clusters. The masters of all clusters are probed in parallel, with a short time
//! limit.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures::StreamExt as _;
use kubeon_api::{ClusterName, HostAddress, HostRole, Version};
use kubeon_plan::{DesiredCluster, HostSpec};
use kubeon_ports::{Clock as _, ProbeHost};
use kubeon_store::Status;
use kubeon_wire::{Category, CertificateExpiry, ClusterFacts, EtcdFact, Facts, NodeFact};

use crate::cluster_nodes::{MAX_CONCURRENT, NodeAccess};
use crate::contact::ContactPurpose;
use crate::endpoint;
use crate::engine::{Engine, MachineClock, StoredCluster};
use crate::error::EngineError;
use crate::login_merge::merge_remembered;

/// Time limit for probing a cluster. Login and probe take two seconds on a busy machine, five more if an API server
/// does not answer, and seven more if a member of etcd on a host of its own does not.
const PROBE_TIMEOUT: Duration = Duration::from_secs(12);

/// Time limit for the certificates of hosts of etcd that are no nodes. One that does not answer must not delay the others.
const ETCD_PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The health of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterHealth {
    /// Its state on this machine cannot be read.
    Damaged,
    /// Its removal is not complete.
    Destroying,
    /// Its creation is not complete.
    Creating,
    /// Its upgrade, or a change of the version of its nodes, is not complete.
    Upgrading,
    /// Every master was tried, and none can be reached.
    Unreachable,
    /// No complete answer arrived. The cluster may be healthy.
    Unknown,
    /// The API server and every node are ready.
    Ready,
    /// The API server or a node is not ready.
    Degraded,
}

/// The number of ready nodes and of all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeCount {
    /// Ready nodes; `None` if no master answered.
    pub ready: Option<usize>,
    /// All nodes.
    pub all: usize,
}

impl fmt::Display for NodeCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ready {
            Some(ready) => write!(f, "{ready}/{}", self.all),
            None => write!(f, "?/{}", self.all),
        }
    }
}

/// A stored cluster with its health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSummary {
    /// The name.
    pub name: ClusterName,
    /// Whether it is the chosen cluster.
    pub current: bool,
    /// The version; `None` if the state cannot be read.
    pub version: Option<Version>,
    /// The version of its nodes, if it is older.
    pub nodes_at: Option<Version>,
    /// The masters.
    pub masters: NodeCount,
    /// The workers.
    pub workers: NodeCount,
    /// The health.
    pub health: ClusterHealth,
    /// Why it is not ready; empty if it is, or if no reason is known.
    pub reason: String,
    /// The URL of the API; empty if the state cannot be read.
    pub api: String,
    /// Seconds since it was created.
    pub age_seconds: i64,
    /// The UID; empty if the state cannot be read.
    pub uid: String,
    /// The certificate that ends first, of the masters and hosts of etcd that answered and of the nodes that the masters list;
    /// `None` if none is known.
    pub certificates: Option<CertificateTimes>,
}

/// When the certificates of a cluster end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateTimes {
    /// The certificate that ends first.
    pub earliest: CertificateExpiry,
    /// The time for which the other values hold, in seconds since 1970.
    pub now: i64,
}

/// The answers of the masters of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MasterAnswers {
    cluster: Result<ClusterFacts, ProbeFailure>,
    /// The certificate that ends first, of all masters and hosts of etcd that answered and of the nodes that the masters list.
    certificates: Option<CertificateExpiry>,
}

impl From<ProbeFailure> for MasterAnswers {
    fn from(failure: ProbeFailure) -> Self {
        Self { cluster: Err(failure), certificates: None }
    }
}

/// The reason why the state of a cluster is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProbeFailure {
    reason: String,
    /// Every master was tried, and none can be reached. If false, the cluster may be healthy.
    unreachable: bool,
}

impl ProbeFailure {
    fn unknown(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), unreachable: false }
    }
}

/// The stored clusters with their health. A cluster whose state cannot be read is listed too.
///
/// # Errors
/// When the list of clusters cannot be read.
pub async fn stored_clusters(
    engine: &Engine<'_>,
    access: &NodeAccess,
) -> Result<Vec<ClusterSummary>, EngineError> {
    let names = engine.stored_names()?;
    // A choice that cannot be read marks no cluster.
    let current = engine.store.current().ok().flatten();
    let summary = |name: ClusterName| {
        let is_current = current.as_ref() == Some(&name);
        async move { probed_summary(engine, access, name, is_current).await }
    };
    Ok(futures::stream::iter(names).map(summary).buffered(MAX_CONCURRENT).collect().await)
}

async fn probed_summary(
    engine: &Engine<'_>,
    access: &NodeAccess,
    name: ClusterName,
    current: bool,
) -> ClusterSummary {
    match engine.load(&name) {
        Ok(state) => {
            let observed = probe(engine, access, &state).await;
            summary(&state, current, &observed, MachineClock.now_seconds())
        }
        Err(error) => damaged(name, current, engine.output.one_line(&error)),
    }
}

fn damaged(name: ClusterName, current: bool, reason: String) -> ClusterSummary {
    let none = NodeCount { ready: None, all: 0 };
    ClusterSummary {
        name,
        current,
        version: None,
        nodes_at: None,
        masters: none,
        workers: none,
        health: ClusterHealth::Damaged,
        reason,
        api: String::new(),
        age_seconds: 0,
        uid: String::new(),
        certificates: None,
    }
}

/// The facts from the first master that answers, or the reason why none answered.
async fn probe(engine: &Engine<'_>, access: &NodeAccess, state: &StoredCluster) -> MasterAnswers {
    let addresses = |hosts: &[HostSpec]| hosts.iter().map(|host| host.address).collect::<Vec<_>>();
    let (masters, etcd_hosts) = (addresses(&state.spec.masters), addresses(&state.spec.etcd_hosts));
    let probe = async {
        let hosts = masters.iter().chain(&etcd_hosts).copied();
        let requests = merge_remembered(hosts, &state.spec.masters, &access.logins, &state.logins);
        let logins = engine.logins(&requests).map_err(|error| ProbeFailure::unknown(error.title))?;
        let purpose = ContactPurpose::QuickProbe(PROBE_TIMEOUT);
        let contact = engine.contact(&state.name, logins, &access.host_keys, purpose).await;
        let contact = contact.map_err(|error| ProbeFailure::unknown(error.title))?;
        let (answers, of_etcd) =
            tokio::join!(first_answer(&contact.hosts, &masters), expiry_of(&contact.hosts, &etcd_hosts));
        let certificates = earliest(answers.certificates, of_etcd);
        Ok::<_, ProbeFailure>(MasterAnswers { certificates, ..answers })
    };
    match tokio::time::timeout(PROBE_TIMEOUT, probe).await {
        Ok(answers) => answers.unwrap_or_else(MasterAnswers::from),
        Err(_) => {
            let seconds = PROBE_TIMEOUT.as_secs();
            ProbeFailure::unknown(format!("no master answered completely within {seconds} s")).into()
        }
    }
}

/// Probes all masters at once. Returns the first answer with a ready API server and its nodes, else the first
/// answer.
async fn first_answer(hosts: &dyn ProbeHost, masters: &[HostAddress]) -> MasterAnswers {
    let mut answers = futures::stream::iter(masters.iter().copied())
        .map(|master| async move { hosts.facts(master).await })
        .buffer_unordered(masters.len().max(1));
    let mut partial = None;
    let mut certificates: Option<CertificateExpiry> = None;
    let mut failure = ProbeFailure { reason: "no master answered".to_owned(), unreachable: true };
    let mut is_first_reason = true;
    while let Some(answer) = answers.next().await {
        let known = answer.as_ref().ok().and_then(Facts::earliest_expiry);
        certificates = earliest(certificates, known);
        let (reason, unreachable) = match answer.map(|facts| facts.cluster) {
            Ok(Some(cluster)) if cluster.api_ready && cluster.nodes.is_some() => {
                return MasterAnswers { cluster: Ok(cluster), certificates };
            }
            // If etcd answers, only the API server does not answer.
            Ok(Some(cluster)) if cluster.api_ready || matches!(cluster.etcd, EtcdFact::Members(_)) => {
                let ready = cluster.api_ready;
                partial =
                    partial.filter(|before: &ClusterFacts| before.api_ready || !ready).or(Some(cluster));
                continue;
            }
            Ok(_) => ("the API server does not answer".to_owned(), true),
            Err(failure) => (failure.cause, failure.category == Category::Unreachable),
        };
        failure.unreachable &= unreachable;
        if std::mem::take(&mut is_first_reason) {
            failure.reason = reason;
        }
    }
    MasterAnswers { cluster: partial.ok_or(failure), certificates }
}

/// The certificate that ends first, of the hosts that answer in time. Hosts of etcd that are no nodes show theirs nowhere else.
async fn expiry_of(hosts: &dyn ProbeHost, etcd_hosts: &[HostAddress]) -> Option<CertificateExpiry> {
    let mut answers = futures::stream::iter(etcd_hosts.iter().copied())
        .map(|host| async move { hosts.facts(host).await })
        .buffer_unordered(etcd_hosts.len().max(1));
    let mut found = None;
    let all = async {
        while let Some(answer) = answers.next().await {
            found = earliest(found.take(), answer.ok().and_then(|facts| facts.earliest_expiry()));
        }
    };
    // The answers until then count.
    let _ = tokio::time::timeout(ETCD_PROBE_TIMEOUT, all).await;
    found
}

fn earliest(one: Option<CertificateExpiry>, other: Option<CertificateExpiry>) -> Option<CertificateExpiry> {
    one.into_iter().chain(other).min_by_key(|known| known.expires_at)
}

fn summary(state: &StoredCluster, current: bool, answers: &MasterAnswers, now: i64) -> ClusterSummary {
    let (spec, observed) = (&state.spec, &answers.cluster);
    let nodes = observed.as_ref().ok().and_then(|facts| facts.nodes.as_ref());
    let count = |hosts: &[HostSpec]| NodeCount {
        ready: nodes
            .map(|nodes| hosts.iter().filter(|host| node(nodes, host).is_some_and(|n| n.ready)).count()),
        all: hosts.len(),
    };
    let (masters, workers) = (count(&spec.masters), count(&spec.workers));
    let all_ready = [masters, workers].iter().all(|count| count.ready == Some(count.all))
        && observed.as_ref().is_ok_and(|facts| members_down(spec, facts).next().is_none());
    ClusterSummary {
        name: state.name.clone(),
        current,
        version: Some(state.version.unwrap_or(spec.version)),
        nodes_at: state.nodes_at,
        masters,
        workers,
        health: health(state.status, observed, all_ready),
        reason: reason(spec, observed),
        api: endpoint::api(spec),
        age_seconds: now - state.created_at.as_second(),
        uid: state.uid.clone(),
        certificates: answers.certificates.clone().map(|earliest| CertificateTimes { earliest, now }),
    }
}

fn health(status: Status, observed: &Result<ClusterFacts, ProbeFailure>, all_ready: bool) -> ClusterHealth {
    match (status, observed) {
        (Status::Destroying, _) => ClusterHealth::Destroying,
        (Status::Creating, _) => ClusterHealth::Creating,
        (Status::Upgrading | Status::ChangingNodes, _) => ClusterHealth::Upgrading,
        (Status::Running, Err(ProbeFailure { unreachable: true, .. })) => ClusterHealth::Unreachable,
        (Status::Running, Err(_)) => ClusterHealth::Unknown,
        (Status::Running, Ok(facts)) if all_ready && facts.api_ready => ClusterHealth::Ready,
        (Status::Running, Ok(facts)) if facts.api_ready && facts.nodes.is_none() => ClusterHealth::Unknown,
        (Status::Running, Ok(facts)) if facts.api_unknown => ClusterHealth::Unknown,
        (Status::Running, Ok(_)) => ClusterHealth::Degraded,
    }
}

fn reason(spec: &DesiredCluster, observed: &Result<ClusterFacts, ProbeFailure>) -> String {
    match observed {
        Err(failure) => failure.reason.clone(),
        Ok(facts @ ClusterFacts { nodes: Some(nodes), .. }) => unhealthy_hosts(spec, nodes, facts),
        Ok(facts) if facts.api_ready => "the API server did not list the nodes in time".to_owned(),
        Ok(facts) if facts.api_unknown => "the API server did not answer in time".to_owned(),
        Ok(_) => "the API server is not ready".to_owned(),
    }
}

fn node<'a>(nodes: &'a BTreeMap<String, NodeFact>, host: &HostSpec) -> Option<&'a NodeFact> {
    let by_name = host.name.as_ref().and_then(|name| nodes.get(name.as_str()));
    by_name.or_else(|| nodes.values().find(|node| node.addresses.contains(&host.cluster_address().ip())))
}

/// The members of etcd on hosts of their own that do not serve. The node of a master shows that of a stacked one.
fn members_down<'a>(
    spec: &DesiredCluster,
    facts: &'a ClusterFacts,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let members = match &facts.etcd {
        EtcdFact::Members(members) if spec.has_external_etcd() => Some(members),
        _ => None,
    };
    members.into_iter().flatten().filter(|(_, serves)| **serves == Some(false)).map(|(name, _)| name.as_str())
}

/// The first unhealthy host, and the number of other unhealthy hosts.
fn unhealthy_hosts(
    spec: &DesiredCluster,
    nodes: &BTreeMap<String, NodeFact>,
    facts: &ClusterFacts,
) -> String {
    let masters = spec.masters.len();
    let unhealthy: Vec<String> = spec
        .nodes()
        .enumerate()
        .filter_map(|(i, host)| {
            let role = HostRole::of(i < masters);
            let name = host.name.as_ref().map_or_else(|| host.address.to_string(), ToString::to_string);
            match node(nodes, host) {
                Some(node) if node.ready => None,
                Some(node) if node.reason.is_empty() => Some(format!("{role} {name}: not ready")),
                Some(node) => Some(format!("{role} {name}: {}", node.reason)),
                None => Some(format!("{role} {name}: not in the cluster")),
            }
        })
        .chain(members_down(spec, facts).map(|name| format!("etcd {name}: does not serve")))
        .collect();
    match unhealthy.as_slice() {
        [] => String::new(),
        [host] => host.clone(),
        [first, rest @ ..] => format!("{first}; {} more", rest.len()),
    }
}

#[cfg(test)]
mod tests;
