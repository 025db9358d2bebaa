//! Which steps interrupt a node, and which nodes work.

use kubeon_api::HostName;
use kubeon_wire::{ClusterFacts, EtcdFact, Facts, Op};

use crate::context::records;
use crate::desired::{control, join};
use crate::output::Step;
use crate::stage_name::StageName;

/// Whether the step changes what runs on a host: it starts a service, selects the version that the next start of a
/// program uses, or writes keys that a running API server uses at once.
pub(super) fn takes_effect(step: &Step) -> bool {
    let serves =
        matches!(step.stage, StageName::Etcd | StageName::Control | StageName::Join | StageName::Network);
    serves && (matches!(step.op, Op::Service { .. } | Op::Links { .. }) || control::is_keys(&step.id))
}

/// Whether the step interrupts what runs on a host: it takes effect, and the host executed it before.
pub(crate) fn interrupts(step: &Step, facts: &Facts) -> bool {
    takes_effect(step) && records(&facts.journal, &step.id)
}

/// What is known of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeState {
    /// The host runs no node yet.
    Absent,
    /// The cluster reports that the node is not Ready, or the host that its API server or etcd member does not serve.
    NotReady,
    /// The node is Ready, or its state was not reported.
    Works,
}

/// The state of the node of a host, from the facts of the host and from reports of API servers.
pub(crate) fn node_state<'f>(
    name: &HostName,
    facts: &Facts,
    reports: impl IntoIterator<Item = &'f ClusterFacts>,
) -> NodeState {
    if !records(&facts.journal, &join::kubelet_of(name)) {
        return NodeState::Absent;
    }
    // What others need of such a master is its repair: it waits for nobody.
    if facts
        .cluster
        .as_ref()
        .is_some_and(|own| own.etcd == EtcdFact::Down || !own.api_ready && !own.api_unknown)
    {
        return NodeState::NotReady;
    }
    let mut reports = reports.into_iter().filter(|report| report.api_ready);
    match reports.find_map(|report| report.nodes.as_ref()).map(|nodes| nodes.get(name.as_str())) {
        Some(None) => NodeState::Absent,
        Some(Some(node)) if !node.ready => NodeState::NotReady,
        Some(Some(_)) | None => NodeState::Works,
    }
}
