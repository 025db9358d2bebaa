//! Which steps interrupt a node, and which nodes work.

use std::collections::BTreeMap;

use kubeon_api::HostName;
use kubeon_wire::{
    ClusterFacts, EtcdFact, Facts, JournalEntry, NodeFact, Op, ResultState, lacks_only_network,
};

use super::api_stop;
use crate::context::records;
use crate::desired::{control, etcd, join, network, verify};
use crate::output::Step;
use crate::stage_name::StageName;

/// The stages whose services a node needs.
const SERVING: [StageName; 4] = [etcd::STAGE, control::STAGE, join::STAGE, network::STAGE];

/// Whether the step changes what runs on a host: it starts, stops or reloads a service, selects the version that the next start of a
/// program uses, or writes keys that a running API server uses at once.
pub(super) fn takes_effect(step: &Step) -> bool {
    SERVING.contains(&step.stage)
        && (matches!(step.op, Op::Service { .. } | Op::Links { .. } | Op::Reload { .. })
            || control::is_keys(&step.id)
            || api_stop::is_stop(&step.id)
            || join::is_identity(&step.id))
}

/// Whether the step interrupts what runs on a host: it takes effect, the host executed it before, and what it started
/// still runs.
pub(crate) fn interrupts(step: &Step, facts: &Facts) -> bool {
    if api_stop::is_stop(&step.id) {
        return true;
    }
    // What stops a kubelet interrupts it if the kubelet was started before.
    let kubelet = step.id.host().filter(|_| join::is_identity(&step.id)).map(join::kubelet_of);
    let id = kubelet.as_ref().unwrap_or(&step.id).to_string();
    let runs = |entry: &JournalEntry| entry.id == id && !matches!(entry.state, ResultState::Stopped(_));
    // A reload cuts no connection.
    let reloads = matches!(step.op, Op::Reload { .. });
    takes_effect(step) && !reloads && facts.journal.iter().any(runs)
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
    let Some(nodes) = reports.find_map(|report| report.nodes.as_ref()) else { return NodeState::Works };
    match nodes.get(name.as_str()) {
        None => NodeState::Absent,
        Some(node) if !node.ready && !awaits_network(name, node, facts, nodes) => NodeState::NotReady,
        Some(_) => NodeState::Works,
    }
}

/// Whether a node does what it can, because no node has a network of pods yet: its owner installs it. Its control plane and its
/// kubelet are interrupted in order too.
fn awaits_network(
    name: &HostName,
    node: &NodeFact,
    facts: &Facts,
    nodes: &BTreeMap<String, NodeFact>,
) -> bool {
    lacks_only_network(&node.reason)
        && !records(&facts.journal, &verify::names_id(name))
        && !nodes.values().any(|node| node.ready)
}
