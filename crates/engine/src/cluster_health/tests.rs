//! Tests of the health of clusters.

use async_trait::async_trait;
use kubeon_wire::{CertificateFact, Facts, NodeCertificates, StepFailure};

use super::*;

fn state(status: Status) -> StoredCluster {
    let mut spec = kubeon_plan::sim::cluster(&["10.0.0.1"], &["10.0.0.2", "10.0.0.3"]);
    for (host, name) in spec.masters.iter_mut().chain(&mut spec.workers).zip(["n1", "n2", "n3"]) {
        host.name = Some(name.parse().unwrap());
    }
    StoredCluster { status, ..StoredCluster::new(spec.name.clone(), spec) }
}

fn facts(ready: &[(&str, bool)]) -> ClusterFacts {
    let node =
        |ready: bool| NodeFact { ready, reason: "kubelet stopped posting".to_owned(), ..NodeFact::default() };
    ClusterFacts {
        api_ready: true,
        nodes: Some(ready.iter().map(|(name, ready)| ((*name).to_owned(), node(*ready))).collect()),
        ..ClusterFacts::default()
    }
}

fn running(observed: Result<ClusterFacts, ProbeFailure>) -> ClusterSummary {
    summary(&state(Status::Running), true, &MasterAnswers { cluster: observed, certificates: None }, 0)
}

#[test]
fn ready_only_when_every_node_is() {
    let ready = running(Ok(facts(&[("n1", true), ("n2", true), ("n3", true)])));
    assert_eq!((ready.health, ready.reason.as_str()), (ClusterHealth::Ready, ""));
    assert_eq!((ready.masters.to_string(), ready.workers.to_string()), ("1/1".into(), "2/2".into()));
    let degraded = running(Ok(facts(&[("n1", true), ("n2", false)])));
    assert_eq!(degraded.health, ClusterHealth::Degraded);
    assert_eq!(degraded.workers.to_string(), "0/2");
    assert_eq!(degraded.reason, "worker n2: kubelet stopped posting; 1 more");
}

#[test]
fn a_member_of_etcd_on_a_host_of_its_own_that_is_down_degrades_a_cluster() {
    let mut state = state(Status::Running);
    let with_etcd = |state: &StoredCluster, serves: [Option<bool>; 2]| {
        let members = ["n4", "n5"].map(str::to_owned).into_iter().zip(serves).collect();
        let nodes = facts(&[("n1", true), ("n2", true), ("n3", true)]);
        let cluster = Ok(ClusterFacts { etcd: EtcdFact::Members(members), ..nodes });
        let found = summary(state, true, &MasterAnswers { cluster, certificates: None }, 0);
        (found.health, found.reason)
    };
    let none = String::new();
    let down = [Some(true), Some(false)];
    assert_eq!(with_etcd(&state, down), (ClusterHealth::Ready, none.clone()), "its master is ready");
    state.spec.etcd_hosts = vec![HostSpec::at("10.0.0.4".parse().unwrap())];
    assert_eq!(with_etcd(&state, [Some(true), None]), (ClusterHealth::Ready, none), "it may serve");
    let degraded = (ClusterHealth::Degraded, "etcd n5: does not serve".to_owned());
    assert_eq!(with_etcd(&state, down), degraded);
}

#[test]
fn a_cluster_without_answer_is_unreachable_and_has_no_counts() {
    let summary = running(Err(ProbeFailure { reason: "no route".to_owned(), unreachable: true }));
    assert_eq!(
        (summary.health, summary.masters.to_string(), summary.reason.as_str()),
        (ClusterHealth::Unreachable, "?/1".into(), "no route")
    );
}

#[test]
fn a_cluster_with_unknown_state_is_not_unreachable() {
    let summary = running(Err(ProbeFailure::unknown("no complete answer")));
    assert_eq!(
        (summary.health, summary.masters.to_string(), summary.reason.as_str()),
        (ClusterHealth::Unknown, "?/1".into(), "no complete answer")
    );
}

#[test]
fn unlisted_nodes_do_not_degrade_a_cluster() {
    let summary = running(Ok(ClusterFacts { nodes: None, ..facts(&[]) }));
    assert_eq!((summary.health, summary.workers.to_string()), (ClusterHealth::Unknown, "?/2".into()));
    assert_eq!(summary.reason, "the API server did not list the nodes in time");
}

#[test]
fn an_incomplete_creation_is_not_probed_for_its_health() {
    let creating = summary(&state(Status::Creating), false, &ProbeFailure::unknown("").into(), 0);
    assert_eq!(creating.health, ClusterHealth::Creating);
}

/// The answers of masters.
struct Answers(BTreeMap<HostAddress, Result<ClusterFacts, StepFailure>>);

#[async_trait]
impl ProbeHost for Answers {
    async fn facts(&self, host: HostAddress) -> Result<Facts, StepFailure> {
        let answer = self.0[&host].clone();
        answer.map(|cluster| Facts { cluster: Some(cluster), ..Facts::default() })
    }
}

async fn first(
    answers: impl IntoIterator<Item = Result<ClusterFacts, StepFailure>>,
) -> Result<ClusterFacts, ProbeFailure> {
    let addresses = (1..).map(|i| HostAddress::from(std::net::Ipv4Addr::new(10, 0, 0, i)));
    let answers: BTreeMap<_, _> = addresses.zip(answers).collect();
    let masters: Vec<_> = answers.keys().copied().collect();
    first_answer(&Answers(answers), &masters).await.cluster
}

/// Masters that report only a certificate, which ends at the time.
struct Certificates(BTreeMap<HostAddress, i64>);

#[async_trait]
impl ProbeHost for Certificates {
    async fn facts(&self, host: HostAddress) -> Result<Facts, StepFailure> {
        let path = format!("/etc/kubernetes/pki/{host}.crt");
        let certificate = CertificateFact { path, not_before: 0, not_after: self.0[&host] };
        Ok(Facts { certificates: vec![certificate], ..Facts::default() })
    }
}

#[tokio::test]
async fn the_earliest_expiry_is_known_although_no_api_server_answers() {
    let masters: Vec<HostAddress> = vec!["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
    let hosts = Certificates([(masters[0], 900), (masters[1], 300)].into());
    let answers = first_answer(&hosts, &masters).await;
    assert!(answers.cluster.is_err());
    let listed = summary(&state(Status::Running), true, &answers, 250).certificates.unwrap();
    let earliest = CertificateExpiry {
        host: None,
        path: "/etc/kubernetes/pki/10.0.0.2.crt".to_owned(),
        renews_at: 200,
        expires_at: 300,
    };
    assert_eq!(listed, CertificateTimes { earliest, now: 250 });
}

/// Hosts of which one reports a certificate and the other one never answers.
struct Silent(Certificates);

#[async_trait]
impl ProbeHost for Silent {
    async fn facts(&self, host: HostAddress) -> Result<Facts, StepFailure> {
        if self.0.0.contains_key(&host) { self.0.facts(host).await } else { std::future::pending().await }
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_of_etcd_that_is_off_does_not_hide_the_certificates_of_the_others() {
    let hosts: [HostAddress; 3] = ["10.0.0.7", "10.0.0.8", "10.0.0.9"].map(|host| host.parse().unwrap());
    let probe = Silent(Certificates([(hosts[0], 900), (hosts[2], 300)].into()));
    let found = expiry_of(&probe, &hosts).await.unwrap();
    assert_eq!((found.expires_at, found.path.as_str()), (300, "/etc/kubernetes/pki/10.0.0.9.crt"));
    assert_eq!(expiry_of(&probe, &hosts[1..2]).await, None);
    assert_eq!(expiry_of(&probe, &[]).await, None);
}

#[tokio::test]
async fn the_answer_of_one_ready_master_has_the_certificates_of_all_nodes() {
    let mut cluster = facts(&[("n1", true), ("n2", true), ("n3", true)]);
    let worker = CertificateFact { path: "/leaf.crt".to_owned(), not_before: 0, not_after: 300 };
    let shown = NodeCertificates { first: Some(worker), kubelet: None };
    cluster.nodes.as_mut().unwrap().get_mut("n2").unwrap().certificates = shown;
    let masters: Vec<HostAddress> = vec!["10.0.0.1".parse().unwrap()];
    let hosts = Answers([(masters[0], Ok(cluster))].into());
    let answers = first_answer(&hosts, &masters).await;
    let listed = summary(&state(Status::Running), true, &answers, 250).certificates.unwrap();
    assert_eq!((listed.earliest.host.as_deref(), listed.earliest.expires_at), (Some("n2"), 300));
}

fn failed(category: Category) -> Result<ClusterFacts, StepFailure> {
    Err(StepFailure { category, cause: "no route".to_owned(), log: Vec::new() })
}

#[tokio::test]
async fn an_answer_with_nodes_is_preferred_to_an_answer_without() {
    let complete = facts(&[("n1", true)]);
    let partial = ClusterFacts { nodes: None, ..complete.clone() };
    let answers = [failed(Category::Unreachable), Ok(partial.clone()), Ok(complete.clone())];
    assert_eq!(first(answers).await, Ok(complete));
    assert_eq!(first([failed(Category::Unreachable), Ok(partial.clone())]).await, Ok(partial));
}

#[tokio::test]
async fn unreachable_means_that_no_master_can_be_reached() {
    let both = [failed(Category::Unreachable), failed(Category::Unreachable)];
    assert!(first(both).await.unwrap_err().unreachable);
    let one = [failed(Category::Unreachable), failed(Category::Denied)];
    assert!(!first(one).await.unwrap_err().unreachable);
}
