//! Decides whether a host that could not be observed may wait, or whether it prevents a plan.
//!
//! A host that belongs to the running cluster waits. It prevents a plan if the change concerns the host itself,
//! if etcd would have no quorum without it, or if
//! its SSH key is not trusted.

use kubeon_api::{HostName, HostRole, Refusal, Remedy};
use kubeon_wire::{Facts, NodeFact};

use crate::context::records;
use crate::input::{HostSpec, Intent, Observation, ObservationFailure, Snapshot};
use crate::node_name::node_name;
use crate::output::UnreachableHost;
use crate::quorum::{Members, member_id};

/// The waiting host. `why` says why it could not be observed.
///
/// # Errors
/// The refusal if the host prevents a plan.
pub(crate) fn assess(
    intent: &Intent,
    snapshot: &Snapshot,
    spec: &HostSpec,
    role: &HostRole,
    why: &str,
    failure: ObservationFailure,
) -> Result<UnreachableHost, Refusal> {
    match failure {
        ObservationFailure::UnknownHostKey => return Err(unknown_host_key(spec, why)),
        ObservationFailure::HostKeyMismatch => return Err(host_key_mismatch(spec, role, why)),
        ObservationFailure::NoAnswer | ObservationFailure::LoginRefused => {}
    }
    if intent.moved_hosts.contains(&spec.address) {
        return Err(Refusal::host(
            spec.address,
            format!("{why}; the host must answer at its new address first"),
        ));
    }
    let cluster = RunningCluster::of(intent, snapshot);
    let name = cluster.name(spec);
    let waits = |name| {
        let why = why.to_owned();
        Ok(UnreachableHost { address: spec.address, name, role: role.clone(), why })
    };
    if *role != HostRole::Master && *role != intent.spec.member_role() {
        let belongs = name.as_ref().is_some_and(|name| cluster.node(name).is_some());
        return match name.filter(|_| belongs && !intent.returns(spec.address)) {
            Some(name) => waits(name),
            None => {
                let reason = format!("{why}; bring it back, or go on without it");
                Err(Refusal::host(spec.address, reason).with(Remedy::SkipHost(spec.address)))
            }
        };
    }
    let members = cluster.members();
    let is_new = intent.joining_masters.contains(&spec.address) || intent.joins_etcd(spec.address);
    let reason = if is_new || !cluster.has_member() {
        let host = if role.is_master() { "a master" } else { "a host of etcd" };
        format!("{why}; {host} cannot be left out: bring it back or name another")
    } else if *role == intent.spec.member_role() && !members.can_have_quorum() {
        let (available, total) = (members.available(), members.total());
        format!(
            "{why}; etcd has no quorum without it ({available} of {total} members can serve): bring it back"
        )
    } else if let Some(name) = name {
        return waits(name);
    } else {
        format!("{why}; the name of its node is not known: bring it back")
    };
    Err(Refusal::host(spec.address, reason))
}

/// Refuses a host whose SSH key is not known.
pub(crate) fn unknown_host_key(spec: &HostSpec, why: &str) -> Refusal {
    Refusal::host(spec.address, why).with(Remedy::TrustHostKey(spec.address))
}

/// Refuses a host whose SSH key is not the pinned key: the host may be down and another machine may answer.
fn host_key_mismatch(spec: &HostSpec, role: &HostRole, why: &str) -> Refusal {
    let refusal = Refusal::host(spec.address, why);
    if *role == HostRole::Worker { refusal.with(Remedy::SkipHost(spec.address)) } else { refusal }
}

/// The masters and the hosts of etcd, as far as they were observed.
struct RunningCluster<'a> {
    masters: Vec<(HostName, &'a Facts)>,
    members: Vec<(HostName, &'a Facts)>,
    /// The addresses of the other hosts of etcd.
    unobserved: Vec<String>,
}

impl<'a> RunningCluster<'a> {
    fn of(intent: &Intent, snapshot: &'a Snapshot) -> Self {
        let observed = |spec: &HostSpec| snapshot.hosts.get(&spec.address).and_then(Observation::fresh);
        // A host of another cluster is refused elsewhere.
        let own = |facts: &&Facts| facts.claim.as_ref().is_none_or(|claim| claim.uid == intent.uid);
        let named = |spec: &HostSpec| {
            let facts = observed(spec).filter(own)?;
            Some((node_name(spec, facts).ok()?, facts))
        };
        let members = intent.spec.member_hosts();
        let unobserved = members.iter().filter(|spec| observed(spec).is_none());
        Self {
            masters: intent.spec.masters.iter().filter_map(named).collect(),
            members: members.iter().filter_map(named).collect(),
            unobserved: unobserved.map(|spec| spec.address.to_string()).collect(),
        }
    }

    /// Whether a member of etcd started before. Only hosts of this cluster have a journal.
    fn has_member(&self) -> bool {
        self.members.iter().any(|(name, facts)| records(&facts.journal, &member_id(name)))
    }

    fn members(&self) -> Members<'_> {
        let observed = self.members.iter().map(|(name, facts)| (name, *facts));
        Members::of(observed, self.unobserved.iter().map(String::as_str))
    }

    /// The nodes that an API server reports.
    fn nodes(&self) -> impl Iterator<Item = (&'a String, &'a NodeFact)> {
        let reports = self.masters.iter().filter_map(|(_, facts)| facts.cluster.as_ref());
        let nodes = reports.filter(|report| report.api_ready).find_map(|report| report.nodes.as_ref());
        nodes.into_iter().flatten()
    }

    fn node(&self, name: &HostName) -> Option<&'a NodeFact> {
        self.nodes().find(|(node, _)| *node == name.as_str()).map(|(_, node)| node)
    }

    /// The name of the node of a host: as stored, or as the cluster reports it for the address.
    fn name(&self, spec: &HostSpec) -> Option<HostName> {
        let reported = || {
            let mut nodes = self.nodes();
            nodes.find(|(_, node)| node.addresses.contains(&spec.cluster_address().ip()))?.0.parse().ok()
        };
        spec.name.clone().or_else(reported)
    }
}
