//! The status of the API server and the etcd member on this master. A status that was not reported in time is
//! unknown, which is different from unhealthy.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use kubeon_api::Version;
use kubeon_wire::{ClusterFacts, EtcdFact, JournalEntry, NodeFact, ResultState};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::etcd_health::{ANSWER_TIMEOUT, after_election, is_healthy, member};
use super::external_etcd::{self, ExternalMembers};
use super::listed_node::NodePage;
use crate::api::Api;
use crate::cluster_record;
use crate::drift::DriftCheck;
use crate::host::HostSystem;
use crate::https::{HttpResponse, Https, Method, NoAnswer};
use crate::journal::Entry;
use crate::paths;
use crate::root::Root;

/// The time limit for the steps that the cluster records, from an API server that answered before: without them a plan
/// repeats steps.
const RECORD_TIMEOUT: Duration = Duration::from_secs(20);
/// The time limit for listing all nodes: thousands of nodes are some tens of MiB.
const NODES_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit of [`read`].
pub(super) const BOUND: Duration = Duration::from_secs(45);
/// Nodes in one answer, to limit its size: some MiB.
const PAGE: usize = 1000;

/// The reports of this master.
#[derive(Default)]
pub(super) struct ClusterReport {
    pub(super) facts: ClusterFacts,
    /// The steps that the cluster records; `None` if they were not read in time.
    pub(super) steps: Option<Vec<JournalEntry>>,
    /// Texts about the checks that did not finish in time.
    pub(super) unchecked: Vec<String>,
}

/// Reads the status of both, and the steps that the cluster records; `None` on a host that is not a master.
#[must_use]
pub(super) fn read(host: &HostSystem) -> Option<ClusterReport> {
    let root = &host.root;
    if !root.at(paths::ADMIN_CERTIFICATE).exists() && !root.at(paths::ETCD_CERTIFICATE).exists() {
        return None;
    }
    Some(thread::scope(|scope| {
        let etcd = scope.spawn(|| etcd_members(root, &host.etcd));
        let mut report = api(host);
        let listed = etcd.join().unwrap_or_default();
        report.facts.etcd = listed.fact;
        (report.facts.learners, report.facts.member_addresses) = (listed.learners, listed.addresses);
        report
    }))
}

fn api(host: &HostSystem) -> ClusterReport {
    let unknown = ClusterReport::default();
    let Ok(api) = Api::local(host) else { return unknown };
    let ready = match readiness(&api) {
        Ok(ready) => ready,
        Err(NoAnswer::NoServer(_)) => return unknown,
        Err(NoAnswer::Unknown(_)) => {
            let facts = ClusterFacts { api_unknown: true, ..ClusterFacts::default() };
            return ClusterReport { facts, ..unknown };
        }
    };
    let (version, nodes, recorded) = thread::scope(|scope| {
        let version = scope.spawn(|| api_version(&api));
        let recorded = scope.spawn(|| recorded_steps(host, &api));
        let nodes = node_report(&api);
        (version.join().unwrap_or_default(), nodes, recorded.join().unwrap_or_default())
    });
    let (nodes, mut steps) = nodes.map_or((None, None), |nodes| (Some(nodes.facts), Some(nodes.steps)));
    let (recorded, unchecked) =
        recorded.map_or((None, Vec::new()), |(steps, unchecked)| (Some(steps), unchecked));
    steps = steps.zip(recorded).map(|(nodes, cluster)| [nodes, cluster].concat());
    let facts = ClusterFacts { api_ready: ready.status == 200, version, nodes, ..ClusterFacts::default() };
    ClusterReport { facts, steps, unchecked }
}

/// The answer of `/readyz`.
fn readiness(api: &Api) -> Result<HttpResponse, NoAnswer> {
    after_election(|| api.ask("/readyz", ANSWER_TIMEOUT), |answer| answer.as_ref().is_ok_and(lacks_etcd))
}

/// Whether the API server is not ready because etcd does not serve it, in the words of `/readyz`.
fn lacks_etcd(ready: &HttpResponse) -> bool {
    ready.status != 200 && ready.body.lines().any(|line| line.starts_with("[-]etcd"))
}

/// The recorded steps about no single node, with the state of their results, and texts about the checks that did
/// not finish in time; `None` if they were not read in time.
fn recorded_steps(host: &HostSystem, api: &Api) -> Option<(Vec<JournalEntry>, Vec<String>)> {
    let object: Value = json(api, cluster_record::CLUSTER_OBJECT, RECORD_TIMEOUT)?;
    let entries = cluster_record::entries(&object);
    let drift = DriftCheck::read(host, &entries.iter().collect::<Vec<_>>());
    let steps = entries.iter().map(|entry| recorded(entry, drift.state_of(entry)));
    Some((steps.collect(), drift.unchecked()))
}

fn recorded(entry: &Entry, state: ResultState) -> JournalEntry {
    JournalEntry { id: entry.id.clone(), digest: entry.digest.clone(), state }
}

/// The nodes, and the steps that they record.
#[derive(Default)]
struct NodeReport {
    facts: BTreeMap<String, NodeFact>,
    steps: Vec<JournalEntry>,
}

/// An object of the API server; `None` if it is not read in time.
fn json<T: DeserializeOwned>(api: &Api, path: &str, timeout: Duration) -> Option<T> {
    let start = Instant::now();
    let answer = after_election(
        || api.get(path, timeout.checked_sub(start.elapsed())?).ok(),
        |answer| answer.as_ref().is_some_and(|answer| (500..600).contains(&answer.status)),
    )?;
    if answer.status == 200 { serde_json::from_str(&answer.body).ok() } else { None }
}

/// All nodes by name, read page by page; `None` if a page does not arrive in time.
pub(crate) fn nodes(api: &Api) -> Option<BTreeMap<String, NodeFact>> {
    node_report(api).map(|report| report.facts)
}

/// The same, with the steps that the nodes record.
fn node_report(api: &Api) -> Option<NodeReport> {
    let end = Instant::now() + NODES_TIMEOUT;
    let (mut nodes, mut next) = (NodeReport::default(), String::new());
    loop {
        let page = format!("/api/v1/nodes?limit={PAGE}{next}");
        let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        let list: NodePage = json(api, &page, left)?;
        for item in &list.items {
            nodes.facts.insert(item.name().to_owned(), item.fact());
            nodes.steps.extend(item.steps());
        }
        match list.next() {
            "" => return Some(nodes),
            token if token.chars().all(|c| c.is_ascii_alphanumeric() || "-_=".contains(c)) => {
                next = format!("&continue={token}");
            }
            _ => return None,
        }
    }
}

fn api_version(api: &Api) -> Option<Version> {
    let info: Value = json(api, "/version", ANSWER_TIMEOUT)?;
    version(info["gitVersion"].as_str()?)
}

/// The version without a build suffix, such as `+k3s1` in `v1.36.3+k3s1`.
fn version(text: &str) -> Option<Version> {
    text.split(['+', '-']).next()?.parse().ok()
}

/// The status of the etcd member on this host; on a master whose etcd has hosts of its own, of the members that its API server
/// uses.
pub(crate) fn etcd(root: &Root, base: &str) -> EtcdFact {
    etcd_members(root, base).fact
}

/// What the member of this host reports.
#[derive(Default)]
struct EtcdReport {
    /// Whether it serves, and the members with a vote.
    fact: EtcdFact,
    /// The names of the members without a vote.
    learners: BTreeSet<String>,
    /// The addresses at which the members with a vote reach each other, by name.
    addresses: BTreeMap<String, Ipv4Addr>,
}

impl From<EtcdFact> for EtcdReport {
    fn from(fact: EtcdFact) -> Self {
        Self { fact, ..Self::default() }
    }
}

fn etcd_members(root: &Root, base: &str) -> EtcdReport {
    if let Some(ExternalMembers { health, learners }) = external_etcd::members(root) {
        return EtcdReport { fact: health, learners, ..EtcdReport::default() };
    }
    let identity = (root.at(paths::ETCD_CERTIFICATE), root.at(paths::ETCD_KEY));
    let Ok(https) = Https::open(&root.at(paths::ETCD_CA), Some((&identity.0, &identity.1))) else {
        return EtcdFact::Unknown.into();
    };
    // Every member returns the list, also without a quorum.
    let url = format!("{base}/v3/cluster/member/list");
    match https.send(Method::Post, &url, "application/json", b"{}", ANSWER_TIMEOUT) {
        Ok(answer) => members(&https, &answer.body).unwrap_or_default(),
        Err(NoAnswer::NoServer(_)) => EtcdFact::Down.into(),
        Err(NoAnswer::Unknown(_)) => EtcdFact::Unknown.into(),
    }
}

fn members(https: &Https, list: &str) -> Option<EtcdReport> {
    let list: Value = serde_json::from_str(list).ok()?;
    let (learners, voters): (Vec<&Value>, Vec<&Value>) =
        list["members"].as_array()?.iter().partition(|member| member["isLearner"] == true);
    let addresses = voters.iter().filter_map(|voter| Some((member(voter).0, peer_address(voter)?))).collect();
    let members: Vec<(String, Option<String>)> = voters.into_iter().map(member).collect();
    let healthy: Vec<Option<bool>> = thread::scope(|scope| {
        let ask = |url: &Option<String>| url.as_ref().map_or(Some(false), |url| is_healthy(https, url));
        let checks: Vec<_> = members.iter().map(|(_, url)| scope.spawn(move || ask(url))).collect();
        checks.into_iter().map(|thread| thread.join().unwrap_or(None)).collect()
    });
    let voters = members.into_iter().map(|(name, _)| name).zip(healthy).collect();
    let learners = learners.into_iter().map(|learner| member(learner).0).collect();
    Some(EtcdReport { fact: EtcdFact::Members(voters), learners, addresses })
}

/// The address at which other members reach a member.
fn peer_address(member: &Value) -> Option<Ipv4Addr> {
    let url = member["peerURLs"].as_array()?.first()?.as_str()?;
    url.strip_prefix("https://")?.rsplit_once(':')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_no_suffix() {
        assert_eq!(version("v1.36.3+k3s1"), "v1.36.3".parse().ok());
    }

    #[test]
    fn only_an_api_server_without_etcd_is_asked_again() {
        let answer = |status, body: &str| HttpResponse { status, body: body.to_owned() };
        assert!(lacks_etcd(&answer(
            500,
            "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n"
        )));
        assert!(!lacks_etcd(&answer(500, "[+]etcd ok\n[-]poststarthook/rbac failed: reason withheld\n")));
        assert!(!lacks_etcd(&answer(200, "ok")));
    }

    #[test]
    fn a_member_that_never_started_is_named_by_its_peer_address() {
        let added = serde_json::json!({"ID": "1", "peerURLs": ["https://10.0.0.2:2380"]});
        assert_eq!(member(&added), ("https://10.0.0.2:2380".to_owned(), None));
        assert_eq!(peer_address(&added), "10.0.0.2".parse().ok());
    }
}
