//! Compares what the masters of a cluster report. Nothing here reads or writes.

use std::collections::BTreeSet;
use std::fmt::Display;

use kubeon_api::{ClusterName, HostAddress, Version};
use kubeon_plan::{ClusterDeclaration, DesiredCluster};
use kubeon_store::Status;
use kubeon_wire::{Claim, ClusterFacts, EtcdFact, Facts};

use crate::error::EngineError;
use crate::remedy::EngineRemedy;

/// Why a cluster cannot be adopted: the subject and a text.
pub(super) type Reason = (String, String);

/// The refusal with its reasons: a subject and a text each.
pub(super) fn refusal<S: Display>(
    name: &ClusterName,
    reasons: impl IntoIterator<Item = (S, String)>,
) -> EngineError {
    let error = EngineError::refused(format!("{name} cannot be adopted"));
    reasons.into_iter().fold(error, |error, (subject, text)| error.row(subject.to_string(), text))
}

/// Refuses named workers: the declaration of a cluster of kubeon has all hosts.
pub(super) fn refuse_workers(name: &ClusterName, workers: &[HostAddress]) -> Result<(), EngineError> {
    if workers.is_empty() {
        return Ok(());
    }
    let text = "is not needed: the cluster holds the addresses of its workers";
    Err(refusal(name, workers.iter().map(|host| (*host, text.to_owned()))))
}

/// The claim of the masters, with the highest generation among them.
///
/// # Errors
/// Refuses a host that is not a master of the cluster, one whose API server is not ready, and masters that disagree.
pub(super) fn common_claim(
    name: &ClusterName,
    reports: &[(HostAddress, Facts)],
) -> Result<Claim, EngineError> {
    let reasons: Vec<_> =
        reports.iter().filter_map(|(host, facts)| Some((*host, unusable(name, facts)?))).collect();
    if !reasons.is_empty() {
        return Err(refusal(name, reasons));
    }
    let claims = || reports.iter().filter_map(|(host, facts)| Some((*host, facts.claim.as_ref()?)));
    let Some((_, first)) = claims().next() else {
        return Err(refusal(name, [("masters", "none is named".to_owned())]));
    };
    let differs = |claim: &Claim| (&claim.uid, claim.version) != (&first.uid, first.version);
    if claims().any(|(_, claim)| differs(claim)) {
        let text = |claim: &Claim| format!("identity {}, version {}", claim.uid, claim.version);
        let all = claims().map(|(host, claim)| (host, text(claim)));
        return Err(refusal(name, all).row("cause", "the masters disagree"));
    }
    let generation = claims().map(|(_, claim)| claim.generation).max().unwrap_or(first.generation);
    Ok(Claim { generation, ..first.clone() })
}

/// Why the cluster cannot be adopted from a host.
fn unusable(name: &ClusterName, facts: &Facts) -> Option<String> {
    let Some(claim) = &facts.claim else {
        let foreign = facts.foreign.join(", ");
        let found = if foreign.is_empty() { String::new() } else { format!(" (found {foreign})") };
        return Some(format!("belongs to no cluster of kubeon{found}"));
    };
    if claim.cluster != *name {
        return Some(format!("belongs to cluster {}", claim.cluster));
    }
    if !claim.role.is_master() {
        return Some("is a worker: name a master".to_owned());
    }
    match &facts.cluster {
        Some(cluster) if cluster.api_ready => None,
        Some(cluster) if cluster.api_unknown => Some("its API server did not answer in time".to_owned()),
        _ => Some("its API server is not ready".to_owned()),
    }
}

/// Compares the declaration with the claim of the masters and with the members of etcd.
///
/// # Errors
/// Refuses a declaration of another cluster, a named master that is not declared, and a cluster with an incomplete change of its
/// masters, version or keys.
pub(super) fn compare(
    name: &ClusterName,
    claim: &Claim,
    declaration: &ClusterDeclaration,
    named: &[HostAddress],
    cluster: &ClusterFacts,
) -> Result<(), EngineError> {
    let ClusterDeclaration { uid, also_trusted, trial, cluster: spec, .. } = declaration;
    let mut reasons = Vec::new();
    if (uid, &spec.name) != (&claim.uid, name) {
        let text =
            format!("is of {} with identity {uid}, the masters belong to identity {}", spec.name, claim.uid);
        reasons.push(("declaration", text));
    }
    if spec.version != claim.version {
        let text = format!(
            "a change of the version is not complete: {} and {} are in use",
            spec.version, claim.version
        );
        reasons.push(("version", text));
    }
    if let Some(trial) = trial {
        reasons.push(("version", format!("an upgrade is not complete: the control plane tries {trial}")));
    }
    if also_trusted.is_some() {
        let text = "their replacement is not complete: the masters do not hold all of them".to_owned();
        reasons.push(("keys", text));
    }
    for host in named.iter().filter(|host| spec.masters.iter().all(|master| master.address != **host)) {
        let masters: Vec<String> = spec.masters.iter().map(|master| master.address.to_string()).collect();
        reasons.push(("master", format!("{host} is not declared; declared are {}", masters.join(", "))));
    }
    reasons.extend(member_mismatch(spec, cluster).map(|text| ("etcd", text)));
    if reasons.is_empty() {
        return Ok(());
    }
    Err(refusal(name, reasons).remedy(EngineRemedy::ImportExport(name.clone())))
}

/// How the members of etcd differ from the declared hosts of etcd, which are the masters if it has none of its own.
fn member_mismatch(spec: &DesiredCluster, cluster: &ClusterFacts) -> Option<String> {
    let hosts = if spec.has_external_etcd() { &spec.etcd_hosts } else { &spec.masters };
    let EtcdFact::Members(members) = &cluster.etcd else {
        return Some("the member of the master did not report the members".to_owned());
    };
    let members: BTreeSet<&str> = members.keys().chain(&cluster.learners).map(String::as_str).collect();
    let declared: BTreeSet<&str> =
        hosts.iter().filter_map(|host| Some(host.name.as_ref()?.as_str())).collect();
    let list = |names: &BTreeSet<&str>| names.iter().copied().collect::<Vec<_>>().join(", ");
    (members != declared).then(|| {
        let (members, declared) = (list(&members), list(&declared));
        format!(
            "a change of the members of etcd is not complete: members are {members}, declared are {declared}"
        )
    })
}

/// The names of nodes that are not declared. Empty if the nodes were not reported.
pub(super) fn undeclared_nodes(spec: &DesiredCluster, cluster: &ClusterFacts) -> Vec<String> {
    let is_declared =
        |node: &str| spec.hosts().any(|host| host.name.as_ref().is_some_and(|name| name.as_str() == node));
    let nodes = cluster.nodes.iter().flat_map(|nodes| nodes.keys());
    nodes.filter(|node| !is_declared(node.as_str())).cloned().collect()
}

/// How far the cluster is, and its version: an upgrade is not complete while a kubelet is older than declared; then it is the oldest
/// version of a node. `nodes_at` is the declared version of the nodes, if it is older than that of the control plane.
pub(super) fn progress(
    spec: &DesiredCluster,
    nodes_at: Option<Version>,
    cluster: &ClusterFacts,
) -> (Status, Version) {
    let nodes = cluster.nodes.iter().flat_map(|nodes| nodes.values());
    let mut kubelets = nodes.filter_map(|node| node.kubelet.parse::<Version>().ok());
    if let Some(nodes_at) = nodes_at {
        let is_complete = kubelets.all(|kubelet| kubelet == nodes_at);
        return (if is_complete { Status::Running } else { Status::ChangingNodes }, spec.version);
    }
    match kubelets.min() {
        Some(oldest) if oldest < spec.version => (Status::Upgrading, oldest),
        _ => (Status::Running, spec.version),
    }
}

#[cfg(test)]
mod tests {
    use kubeon_api::{HostRole, KeyNumber};
    use kubeon_plan::sim;
    use kubeon_wire::NodeFact;

    use super::*;

    fn name() -> ClusterName {
        "demo".parse().unwrap()
    }

    fn host(last: u8) -> HostAddress {
        format!("10.0.0.{last}").parse().unwrap()
    }

    fn declaration() -> ClusterDeclaration {
        let mut cluster = sim::cluster(&["10.0.0.1"], &["10.0.0.2"]);
        cluster.masters[0].name = "h1".parse().ok();
        cluster.workers[0].name = "h2".parse().ok();
        let uid = "u1".to_owned();
        let (also_trusted, trial, nodes_at) = (None, None, None);
        ClusterDeclaration { uid, keys: KeyNumber::FIRST, also_trusted, trial, nodes_at, cluster }
    }

    fn cluster(members: &[&str], nodes: &[(&str, &str)]) -> ClusterFacts {
        let members = members.iter().map(|name| ((*name).to_owned(), Some(true)));
        let nodes = nodes.iter().map(|(name, kubelet)| {
            ((*name).to_owned(), NodeFact { kubelet: (*kubelet).to_owned(), ..NodeFact::default() })
        });
        ClusterFacts {
            api_ready: true,
            etcd: EtcdFact::Members(members.collect()),
            nodes: Some(nodes.collect()),
            ..ClusterFacts::default()
        }
    }

    fn claim() -> Claim {
        Claim {
            cluster: name(),
            uid: "u1".to_owned(),
            generation: 7,
            version: "v1.36.3".parse().unwrap(),
            role: HostRole::Master,
        }
    }

    fn master(change: impl FnOnce(&mut Facts)) -> Facts {
        let mut facts = sim::bare("h1");
        (facts.claim, facts.cluster) = (Some(claim()), Some(cluster(&["h1"], &[])));
        change(&mut facts);
        facts
    }

    fn reason(change: impl FnOnce(&mut Facts)) -> String {
        common_claim(&name(), &[(host(1), master(change))]).unwrap_err().rows[0].1.clone()
    }

    #[test]
    fn a_host_that_is_no_ready_master_of_the_cluster_is_refused() {
        assert_eq!(reason(|facts| facts.claim = None), "belongs to no cluster of kubeon");
        let kubeadm = |facts: &mut Facts| {
            (facts.claim, facts.foreign) = (None, vec!["/etc/kubernetes/manifests".to_owned()]);
        };
        assert_eq!(reason(kubeadm), "belongs to no cluster of kubeon (found /etc/kubernetes/manifests)");
        let other = Claim { cluster: "other".parse().unwrap(), ..claim() };
        assert_eq!(reason(|facts| facts.claim = Some(other)), "belongs to cluster other");
        let worker = Claim { role: HostRole::Worker, ..claim() };
        assert_eq!(reason(|facts| facts.claim = Some(worker)), "is a worker: name a master");
        assert_eq!(reason(|facts| facts.cluster = None), "its API server is not ready");
        let silent = ClusterFacts { api_unknown: true, ..ClusterFacts::default() };
        assert_eq!(reason(|facts| facts.cluster = Some(silent)), "its API server did not answer in time");
    }

    #[test]
    fn the_highest_generation_counts_and_masters_must_agree() {
        let with = |change: fn(&mut Claim)| master(|facts| facts.claim.iter_mut().for_each(change));
        let both = |second| [(host(1), master(|_| ())), (host(3), second)];
        let newer = both(with(|claim| claim.generation = 9));
        assert_eq!(common_claim(&name(), &newer).unwrap(), Claim { generation: 9, ..claim() });
        let stranger = both(with(|claim| "u2".clone_into(&mut claim.uid)));
        let error = common_claim(&name(), &stranger).unwrap_err().to_string();
        assert!(error.contains("the masters disagree") && error.contains("identity u2"), "{error}");
    }

    #[test]
    fn an_incomplete_change_is_refused() {
        let compare = |change: fn(&mut ClusterDeclaration), members: &[&str]| {
            let mut declaration = declaration();
            change(&mut declaration);
            super::compare(&name(), &claim(), &declaration, &[host(1)], &cluster(members, &[]))
        };
        compare(|_| (), &["h1"]).unwrap();
        type Change = fn(&mut ClusterDeclaration);
        let cases: [(Change, &[&str], &str); 6] = [
            (|declared| "u2".clone_into(&mut declared.uid), &["h1"], "identity u2"),
            (|declared| declared.cluster.version.patch = 9, &["h1"], "v1.36.9 and v1.36.3 are in use"),
            (|declared| declared.trial = Some(declared.cluster.version), &["h1"], "tries v1.36.3"),
            (|declared| declared.also_trusted = Some(KeyNumber::FIRST.next()), &["h1"], "is not complete"),
            (|declared| declared.cluster.masters.clear(), &["h1"], "10.0.0.1 is not declared"),
            (|_| (), &["h1", "h3"], "members are h1, h3, declared are h1"),
        ];
        for (change, members, words) in cases {
            let error = compare(change, members).unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
        }
    }

    #[test]
    fn nodes_tell_what_is_not_complete() {
        let spec = declaration().cluster;
        let nodes = |h2: &str, h9: Option<&str>| {
            let more = h9.map(|version| ("h9", version));
            let all: Vec<_> = [("h1", "v1.36.3"), ("h2", h2)].into_iter().chain(more).collect();
            cluster(&["h1"], &all)
        };
        let complete = nodes("v1.36.3", None);
        let progress = |nodes_at: Option<Version>, cluster: &ClusterFacts| progress(&spec, nodes_at, cluster);
        assert_eq!(progress(None, &complete), (Status::Running, spec.version));
        assert_eq!(undeclared_nodes(&spec, &complete), [""; 0]);
        let older = "v1.35.1".parse().unwrap();
        assert_eq!(progress(None, &nodes("v1.35.1", None)), (Status::Upgrading, older));
        let (behind, mixed) =
            (cluster(&["h1"], &[("h1", "v1.35.1"), ("h2", "v1.35.1")]), nodes("v1.35.1", None));
        assert_eq!(progress(Some(older), &behind), (Status::Running, spec.version));
        assert_eq!(progress(Some(older), &mixed), (Status::ChangingNodes, spec.version));
        assert_eq!(undeclared_nodes(&spec, &nodes("v1.36.3", Some("v1.36.3"))), ["h9"]);
    }
}
