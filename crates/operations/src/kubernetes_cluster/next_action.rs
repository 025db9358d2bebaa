//! Which operation a `KubernetesCluster` asks for.

use std::sync::Arc;

use kubeon_api::kubernetes_cluster::{DeclaredCluster, DeclaredNode, DeletionPolicy, NodeList};
use kubeon_api::{
    ClusterOperation, HostAddress, KubernetesCluster, KubernetesClusterSpec, Operation, Phase, labels,
};

use super::applied::{Difference, applied, difference, with_current_logins, without_secrets};
use super::cluster_action::ClusterAction;
use super::history;
use super::object_access::{has_finalizer, namespace, version_that_runs};
use crate::settings::OperatorSettings;

/// What is wanted now.
#[derive(Debug, Clone, PartialEq)]
pub enum NextAction {
    /// Nothing: the last operation failed and nobody asked for another try, or there is nothing to take down.
    Nothing,
    /// Nothing: what was applied is what is declared.
    Declared,
    /// An operation.
    Operation(Box<DesiredOperation>),
    /// An annotation asks for something that is done already; the new value of the annotation says so.
    Answer(Operation),
    /// The finalizer is taken away, the hosts stay; the text says why.
    Release(&'static str),
    /// Something is wanted, and something is in its way.
    Held {
        /// One word in CamelCase.
        word: &'static str,
        /// For a person.
        text: String,
    },
    /// What was declared cannot be done; nothing of it is.
    Refused(String),
}

/// An operation that is wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredOperation {
    /// What it does.
    pub action: ClusterAction,
    /// The spec that will have been applied, without secrets.
    pub spec: KubernetesClusterSpec,
    /// The workers that it is about.
    pub hosts: Vec<HostAddress>,
    /// For a person.
    pub why: String,
}

/// What the object asks for, given what was applied and how its operations, in their order, went.
#[must_use]
pub fn next_action(
    settings: &OperatorSettings,
    object: &KubernetesCluster,
    mine: &[Arc<ClusterOperation>],
) -> NextAction {
    let deleting = object.metadata.deletion_timestamp.is_some();
    if deleting && !has_finalizer(object) {
        return NextAction::Nothing;
    }
    if deleting && object.spec.deletion_policy == Some(DeletionPolicy::Retain) {
        return NextAction::Release("spec.deletionPolicy is Retain: the hosts stay as they are");
    }
    if !settings.watches(namespace(object)) {
        let name = namespace(object);
        let text = format!("namespace {name} is not watched by the operator (--watch-namespace {name})");
        return NextAction::Held { word: "NotWatched", text };
    }
    if object.spec.paused {
        return NextAction::Held {
            word: "Paused",
            text: "spec.paused is true: nothing is changed".to_owned(),
        };
    }
    if deleting {
        return terminate(object, mine);
    }
    match applied(object) {
        Err(text) => NextAction::Refused(text),
        Ok(None) => create(object, mine),
        Ok(Some(before)) => change(object, &before.cluster, mine),
    }
}

fn requested(object: &KubernetesCluster) -> Option<Operation> {
    object.metadata.annotations.as_ref()?.get(labels::OPERATION)?.parse().ok()
}

fn failed(object: &KubernetesCluster) -> bool {
    object.status.as_ref().and_then(|status| status.phase) == Some(Phase::Failed)
}

/// Whether the last operation failed and nobody asked for another try since, with one of these words, by another
/// declaration, or by what may let it get further.
fn rests(object: &KubernetesCluster, mine: &[Arc<ClusterOperation>], words: &[Operation]) -> bool {
    let seen = object.status.as_ref().and_then(|status| status.observed_generation);
    let asked = requested(object).is_some_and(|word| words.contains(&word));
    failed(object) && !asked && seen >= object.metadata.generation && !history::permits_retry(object, mine)
}

fn addresses(nodes: &[DeclaredNode]) -> Vec<HostAddress> {
    nodes.iter().map(|node| node.ip).collect()
}

fn listed(addresses: &[HostAddress]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn terminate(object: &KubernetesCluster, mine: &[Arc<ClusterOperation>]) -> NextAction {
    let annotations = object.metadata.annotations.as_ref();
    let protection = labels::DELETION_PROTECTIONS.into_iter().find(|name| {
        annotations.and_then(|all| all.get(*name)).is_some_and(|value| value == labels::PROTECTED)
    });
    if let Some(name) = protection {
        let text = format!("annotation {name} protects it; take it away to go on");
        return NextAction::Held { word: "Protected", text };
    }
    let words = [Operation::Terminating];
    if requested(object) == Some(Operation::TerminateFailed) && rests(object, mine, &words) {
        let reason = object.status.as_ref().and_then(|status| status.reason.clone()).unwrap_or_default();
        let text = format!(
            "taking it down failed: {reason}\nset annotation {}=terminating to try again, or spec.deletionPolicy=Retain to leave the hosts",
            labels::OPERATION
        );
        return NextAction::Held { word: "TeardownFailed", text };
    }
    // The hosts have what was applied last, and perhaps parts of an operation that failed.
    let spec = match applied(object) {
        Ok(Some(before)) => with_all(object, &before.cluster),
        _ => without_secrets(&object.spec),
    };
    let hosts = addresses(&spec.cluster.node_list);
    let why = "it was deleted".to_owned();
    NextAction::Operation(Box::new(DesiredOperation { action: ClusterAction::Terminate, spec, hosts, why }))
}

fn create(object: &KubernetesCluster, mine: &[Arc<ClusterOperation>]) -> NextAction {
    if rests(object, mine, &[Operation::Creating]) {
        return NextAction::Nothing;
    }
    let spec = without_secrets(&object.spec);
    let hosts = addresses(&spec.cluster.node_list);
    let masters = spec.cluster.master_list.len();
    let why = format!("it was declared: {masters} master(s), {} worker(s)", hosts.len());
    NextAction::Operation(Box::new(DesiredOperation { action: ClusterAction::Create, spec, hosts, why }))
}

fn change(
    object: &KubernetesCluster,
    before: &DeclaredCluster,
    mine: &[Arc<ClusterOperation>],
) -> NextAction {
    let difference = difference(before, &object.spec.cluster, version_that_runs(object));
    if let Some(text) = refused(&difference, &object.spec.cluster) {
        return NextAction::Refused(text);
    }
    let Difference { added, removed, .. } = difference;
    let (action, nodes) = if !added.is_empty() {
        (ClusterAction::ScaleUp, added)
    } else if !removed.is_empty() {
        (ClusterAction::ScaleDown, removed)
    } else if failed(object) {
        return take_back(object, before, mine);
    } else {
        return answer(object, before);
    };
    if rests(object, mine, &[action.word()]) {
        return NextAction::Nothing;
    }
    // What is to go as well goes afterwards, by an operation of its own.
    let (spec, sign) = if action == ClusterAction::ScaleUp {
        (with_all(object, before), '+')
    } else {
        (as_declared(object, before), '-')
    };
    let hosts = addresses(&nodes);
    let why = format!("nodeList: {sign}{}", listed(&hosts));
    NextAction::Operation(Box::new(DesiredOperation { action, spec, hosts, why }))
}

/// Nothing differs from what was applied, but an operation failed since: a host may have half joined, or be half way out.
/// Only the engine's state knows which, so an operation brings the hosts to what is declared; only its success says that
/// they are.
fn take_back(
    object: &KubernetesCluster,
    before: &DeclaredCluster,
    mine: &[Arc<ClusterOperation>],
) -> NextAction {
    let words = [Operation::Creating, Operation::ScalingUp, Operation::ScalingDown];
    if rests(object, mine, &words) {
        return NextAction::Nothing;
    }
    let action = match requested(object) {
        Some(Operation::ScalingDown | Operation::ScaleUpFailed) => ClusterAction::ScaleDown,
        _ => ClusterAction::ScaleUp,
    };
    let hosts = history::touched(mine);
    let which = if hosts.is_empty() { String::new() } else { format!(" ({})", listed(&hosts)) };
    let why = format!("nodeList is what was applied again: what failed since{which} is undone");
    let spec = as_declared(object, before);
    NextAction::Operation(Box::new(DesiredOperation { action, spec, hosts, why }))
}

/// The spec that was applied, with the declared workers.
fn as_declared(object: &KubernetesCluster, before: &DeclaredCluster) -> KubernetesClusterSpec {
    let mut spec = without_secrets(&object.spec);
    let node_list = spec.cluster.node_list.clone();
    spec.cluster = DeclaredCluster { node_list, ..with_current_logins(before, &spec.cluster) };
    spec
}

/// The spec that was applied, with its own workers and the declared ones.
fn with_all(object: &KubernetesCluster, before: &DeclaredCluster) -> KubernetesClusterSpec {
    let mut spec = without_secrets(&object.spec);
    let applied = with_current_logins(before, &spec.cluster);
    let known = |node: &DeclaredNode| applied.node_list.iter().any(|old| old.ip == node.ip);
    let new = spec.cluster.node_list.iter().filter(|node| !known(node));
    let nodes: Vec<DeclaredNode> = applied.node_list.iter().chain(new).cloned().collect();
    let node_list = NodeList::try_from(nodes).unwrap_or_else(|_| applied.node_list.clone());
    spec.cluster = DeclaredCluster { node_list, ..applied };
    spec
}

fn refused(difference: &Difference, wanted: &DeclaredCluster) -> Option<String> {
    if !difference.refused.is_empty() {
        return Some(format!(
            "cannot be changed yet: {}; put back what it was",
            difference.refused.join(", ")
        ));
    }
    if !difference.removed.is_empty() && wanted.node_list.is_empty() {
        return Some(
            "spec.cluster.nodeList: the last worker cannot be removed; delete the cluster instead".to_owned(),
        );
    }
    let other = |node: &DeclaredNode| {
        wanted.master_list.iter().chain(wanted.etcd_list.iter()).any(|other| other.ip == node.ip)
    };
    let held = difference.removed.iter().find(|node| other(node))?;
    Some(format!("spec.cluster.nodeList: {} is a master or holds etcd and cannot be removed", held.ip))
}

/// Nothing differs. A change that an annotation asks for is answered as finished; a host that was skipped is tried again.
/// Contract B, cases 23 and 31.
fn answer(object: &KubernetesCluster, before: &DeclaredCluster) -> NextAction {
    let lacking = history::lacks(object);
    match requested(object) {
        Some(Operation::Creating | Operation::ScalingUp) if !lacking.is_empty() => {
            let why = format!("nodeList: {} was left out", listed(&lacking));
            let spec = as_declared(object, before);
            NextAction::Operation(Box::new(DesiredOperation {
                action: ClusterAction::ScaleUp,
                spec,
                hosts: lacking,
                why,
            }))
        }
        Some(Operation::Creating | Operation::CreateFailed) => NextAction::Answer(Operation::CreateFinished),
        Some(Operation::ScalingUp | Operation::ScaleUpFailed) => {
            NextAction::Answer(Operation::ScaleUpFinished)
        }
        Some(Operation::ScalingDown | Operation::ScaleDownFailed) => {
            NextAction::Answer(Operation::ScaleDownFinished)
        }
        _ => NextAction::Declared,
    }
}
