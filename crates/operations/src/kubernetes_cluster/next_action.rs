//! Which operation a `KubernetesCluster` asks for.

use std::sync::Arc;

use kubeon_api::kubernetes_cluster::{DeclaredCluster, DeclaredNode, DeletionPolicy, NodeList};
use kubeon_api::{
    ClusterOperation, HostAddress, KubernetesCluster, KubernetesClusterSpec, Operation, Phase, labels,
    upgrade_way,
};

use super::applied::{Difference, ListDifference, applied, difference, with_current_logins, without_secrets};
use super::cluster_action::ClusterAction;
use super::declared_hosts::{scaled, with_all_hosts, with_declared_workers};
use super::history;
use super::object_access::{has_finalizer, namespace, running_version};
use crate::condition::PAUSED;
use crate::settings::OperatorSettings;

/// The next action for a `KubernetesCluster`.
#[derive(Debug, Clone, PartialEq)]
pub enum NextAction {
    /// Nothing: the last operation failed and no retry was requested, or there is nothing to take down.
    Nothing,
    /// Nothing: the applied spec is the declared spec.
    Declared,
    /// An operation.
    Operation(Box<DesiredOperation>),
    /// An annotation requests something that is already done; the new value of the annotation reports that.
    Answer(Operation),
    /// Remove the finalizer and leave the hosts as they are; the text says why.
    Release(&'static str),
    /// An action is blocked.
    Blocked {
        /// The reason in CamelCase.
        word: &'static str,
        /// For a person.
        text: String,
    },
    /// The declared change is not possible, and no part of it is applied.
    Refused(String),
}

/// Whether an operation needs an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// It is applied at once.
    NotNeeded,
    /// It only plans.
    Plan,
    /// It applies the plan of this operation.
    Of(String),
}

/// An operation that should run.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredOperation {
    /// Its action.
    pub action: ClusterAction,
    /// The spec that is applied after a success, without secrets.
    pub spec: KubernetesClusterSpec,
    /// The hosts that are added or removed.
    pub hosts: Vec<HostAddress>,
    /// For a person.
    pub why: String,
    /// Whether it needs an approval.
    pub approval: Approval,
}

impl DesiredOperation {
    /// An operation that needs no approval.
    fn new(action: ClusterAction, spec: KubernetesClusterSpec, hosts: Vec<HostAddress>, why: String) -> Self {
        Self { action, spec, hosts, why, approval: Approval::NotNeeded }
    }
}

/// The next action, from the object, the applied spec, and the results of its operations in their order.
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
        return NextAction::Blocked { word: "NotWatched", text };
    }
    if object.spec.paused {
        return NextAction::Blocked {
            word: PAUSED,
            text: "spec.paused is true: nothing is changed".to_owned(),
        };
    }
    if deleting {
        return terminate(object, mine);
    }
    match applied(object) {
        Err(text) => NextAction::Refused(text),
        Ok(None) => create(object, mine),
        Ok(Some(before)) => change(settings, object, &before.cluster, mine),
    }
}

fn requested(object: &KubernetesCluster) -> Option<Operation> {
    object.metadata.annotations.as_ref()?.get(labels::OPERATION)?.parse().ok()
}

fn failed(object: &KubernetesCluster) -> bool {
    object.status.as_ref().and_then(|status| status.phase) == Some(Phase::Failed)
}

/// Whether the last operation failed and no retry was requested since: by one of these words, by another
/// spec, or by an annotation that may let the next operation continue. A retry whose plan waits for its approval was requested.
fn waits_for_retry(object: &KubernetesCluster, mine: &[Arc<ClusterOperation>], words: &[Operation]) -> bool {
    let observed = object.status.as_ref().and_then(|status| status.observed_generation);
    let requested_again = requested(object).is_some_and(|word| words.contains(&word));
    failed(object)
        && !requested_again
        && observed >= object.metadata.generation
        && !history::permits_retry(object, mine)
        && !history::has_open_plan(mine)
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
        let text = format!("annotation {name} protects the cluster; remove the annotation to continue");
        return NextAction::Blocked { word: "Protected", text };
    }
    let words = [Operation::Terminating];
    if requested(object) == Some(Operation::TerminateFailed) && waits_for_retry(object, mine, &words) {
        let reason = object.status.as_ref().and_then(|status| status.reason.clone()).unwrap_or_default();
        let text = format!(
            "taking it down failed: {reason}\nset annotation {}=terminating to try again, or spec.deletionPolicy=Retain to leave the hosts",
            labels::OPERATION
        );
        return NextAction::Blocked { word: "TeardownFailed", text };
    }
    // The hosts have the last applied spec, and possibly parts of a failed operation.
    let spec = match applied(object) {
        Ok(Some(before)) => with_all_hosts(object, &before.cluster),
        _ => without_secrets(&object.spec),
    };
    let hosts = addresses(&spec.cluster.node_list);
    let why = "the KubernetesCluster was deleted".to_owned();
    NextAction::Operation(Box::new(DesiredOperation::new(ClusterAction::Terminate, spec, hosts, why)))
}

fn create(object: &KubernetesCluster, mine: &[Arc<ClusterOperation>]) -> NextAction {
    if waits_for_retry(object, mine, &[Operation::Creating]) {
        return NextAction::Nothing;
    }
    let spec = without_secrets(&object.spec);
    let hosts = addresses(&spec.cluster.node_list);
    let masters = spec.cluster.master_list.len();
    let why = format!("it was declared: {masters} master(s), {} worker(s)", hosts.len());
    NextAction::Operation(Box::new(DesiredOperation::new(ClusterAction::Create, spec, hosts, why)))
}

fn change(
    settings: &OperatorSettings,
    object: &KubernetesCluster,
    before: &DeclaredCluster,
    mine: &[Arc<ClusterOperation>],
) -> NextAction {
    let runs = running_version(object);
    let difference = difference(before, &object.spec.cluster, runs);
    if let Some(text) = refused(&difference, before, &object.spec.cluster) {
        return NextAction::Refused(text);
    }
    if matches!(requested(object), Some(Operation::Rollbacking | Operation::RollbackFailed))
        && difference.version
    {
        return rollback(object, before, &difference, mine);
    }
    // Hosts cannot change before an upgrade that has begun is complete.
    let is_upgrading = matches!(requested(object), Some(Operation::Updating | Operation::UpdateFailed));
    if difference.version && is_upgrading {
        return update(settings, object, before, mine);
    }
    let lists = [&difference.masters, &difference.workers, &difference.etcd];
    let action = if lists.iter().any(|list| !list.added.is_empty()) {
        ClusterAction::ScaleUp
    } else if lists.iter().any(|list| !list.removed.is_empty()) {
        ClusterAction::ScaleDown
    } else if difference.version {
        return update(settings, object, before, mine);
    } else if !difference.settings.is_empty() {
        return configure(object, before, &difference.settings, mine);
    } else if failed(object) {
        return undo(object, before, mine);
    } else {
        return answer(object, before);
    };
    if waits_for_retry(object, mine, &[action.word()]) {
        return NextAction::Nothing;
    }
    NextAction::Operation(Box::new(scale(object, before, &difference, action)))
}

/// Hosts are added first, and then those that are no longer declared are removed by another operation. Masters and hosts of etcd
/// are added and removed at once.
fn scale(
    object: &KubernetesCluster,
    before: &DeclaredCluster,
    difference: &Difference,
    action: ClusterAction,
) -> DesiredOperation {
    let Difference { masters, workers, etcd, .. } = difference;
    let up = action == ClusterAction::ScaleUp;
    let (with_masters, with_etcd) = (masters.changes_at_once(up), etcd.changes_at_once(up));
    let listed = |name: &str, change: &ListDifference, removes: bool| {
        let added =
            (up && !change.added.is_empty()).then(|| format!("+{}", listed(&addresses(&change.added))));
        let removed = (removes && !change.removed.is_empty())
            .then(|| format!("-{}", self::listed(&addresses(&change.removed))));
        let both: Vec<String> = [added, removed].into_iter().flatten().collect();
        (!both.is_empty()).then(|| format!("{name}: {}", both.join(" ")))
    };
    let texts = [
        listed("masterList", masters, with_masters),
        listed("etcdList", etcd, with_etcd),
        listed("nodeList", workers, !up),
    ];
    let why = texts.into_iter().flatten().collect::<Vec<_>>().join("; ");
    let changed_masters = masters.hosts().filter(|_| with_masters);
    let changed_etcd = etcd.hosts().filter(|_| with_etcd);
    let changed_workers = if up { &workers.added } else { &workers.removed };
    let hosts = changed_masters.chain(changed_etcd).chain(addresses(changed_workers)).collect();
    DesiredOperation::new(action, scaled(object, before, difference, up), hosts, why)
}

/// The next version on the way to the declared one.
fn update(
    settings: &OperatorSettings,
    object: &KubernetesCluster,
    before: &DeclaredCluster,
    mine: &[Arc<ClusterOperation>],
) -> NextAction {
    let field = "spec.cluster.kubeVersion";
    let (runs, wanted) = (before.kube_version.or(running_version(object)), object.spec.cluster.kube_version);
    let (runs, wanted) = match (runs, wanted) {
        (Some(runs), Some(wanted)) => (runs, wanted),
        (Some(runs), None) => {
            return NextAction::Refused(format!("{field}: cannot be left out any more; declare {runs}"));
        }
        (None, _) => {
            return NextAction::Refused(format!("{field}: it is not known yet which version runs"));
        }
    };
    let next = match upgrade_way(runs, wanted, &settings.versions) {
        Ok(way) => way[0],
        Err(no_way) => return NextAction::Refused(format!("{field}: {wanted} {no_way}")),
    };
    if waits_for_retry(object, mine, &[Operation::Updating]) {
        return NextAction::Nothing;
    }
    let mut spec = without_secrets(&object.spec);
    spec.cluster = DeclaredCluster { kube_version: Some(next), ..with_current_logins(before, &spec.cluster) };
    let more = if next == wanted { String::new() } else { format!(", on the way to {wanted}") };
    let why = format!("kubeVersion: {runs} becomes {next}{more}");
    NextAction::Operation(Box::new(DesiredOperation::new(ClusterAction::Update, spec, Vec::new(), why)))
}

/// The way back to a snapshot of an older version. Everything else stays as it was applied.
fn rollback(
    object: &KubernetesCluster,
    before: &DeclaredCluster,
    difference: &Difference,
    mine: &[Arc<ClusterOperation>],
) -> NextAction {
    let field = "spec.cluster.kubeVersion";
    let (runs, wanted) = (before.kube_version.or(running_version(object)), object.spec.cluster.kube_version);
    let (Some(runs), Some(wanted)) = (runs, wanted) else {
        return NextAction::Refused(format!("{field}: declare the version of the snapshot"));
    };
    if wanted >= runs {
        return NextAction::Refused(format!("{field}: {wanted} is not older than {runs}; use updating"));
    }
    if !difference.is_version_alone() {
        let text = "rollbacking changes spec.cluster.kubeVersion alone; restore the other fields".to_owned();
        return NextAction::Refused(text);
    }
    if waits_for_retry(object, mine, &[Operation::Rollbacking]) {
        return NextAction::Nothing;
    }
    let snapshot = object.spec.snapshots.as_ref().and_then(|snapshots| snapshots.restore_from.as_deref());
    let mut spec = without_secrets(&object.spec);
    spec.cluster =
        DeclaredCluster { kube_version: Some(wanted), ..with_current_logins(before, &spec.cluster) };
    let why = format!("kubeVersion: {runs} returns to {wanted} and {}", snapshot.unwrap_or("no snapshot"));
    NextAction::Operation(Box::new(DesiredOperation::new(ClusterAction::Rollback, spec, Vec::new(), why)))
}

/// The declared settings, labels and taints on the applied hosts and version.
fn configure(
    object: &KubernetesCluster,
    before: &DeclaredCluster,
    changed: &[String],
    mine: &[Arc<ClusterOperation>],
) -> NextAction {
    if waits_for_retry(object, mine, &[Operation::Updating]) {
        return NextAction::Nothing;
    }
    let mut spec = without_secrets(&object.spec);
    let now = spec.cluster.by_address();
    let as_declared = |list: &NodeList| {
        let nodes = list.iter().map(|node| now.get(&node.ip).unwrap_or(node).clone());
        NodeList::try_from(nodes.collect::<Vec<_>>()).unwrap_or_else(|_| list.clone())
    };
    spec.cluster = DeclaredCluster {
        master_list: as_declared(&before.master_list),
        node_list: as_declared(&before.node_list),
        etcd_list: as_declared(&before.etcd_list),
        kube_version: before.kube_version,
        ..spec.cluster
    };
    let why = format!("changed: {}", changed.join(", "));
    NextAction::Operation(Box::new(DesiredOperation::new(ClusterAction::Update, spec, Vec::new(), why)))
}

/// The declared spec equals the applied spec, but an operation failed in between, so a host may have joined
/// or left only in part. Only the engine's state knows which, so an operation restores the declared state.
/// Only its success shows that the hosts are up to date.
fn undo(object: &KubernetesCluster, before: &DeclaredCluster, mine: &[Arc<ClusterOperation>]) -> NextAction {
    let words = [
        Operation::Creating,
        Operation::ScalingUp,
        Operation::ScalingDown,
        Operation::Updating,
        Operation::Renewing,
        Operation::Repairing,
    ];
    if waits_for_retry(object, mine, &words) {
        return NextAction::Nothing;
    }
    let action = match requested(object) {
        Some(Operation::Renewing | Operation::RenewFailed) => ClusterAction::Renew,
        Some(
            Operation::Updating
            | Operation::UpdateFailed
            | Operation::RollbackFailed
            | Operation::Repairing
            | Operation::RepairFailed,
        ) => ClusterAction::Repair,
        Some(Operation::ScalingDown | Operation::ScaleUpFailed) => ClusterAction::ScaleDown,
        _ => ClusterAction::ScaleUp,
    };
    let hosts = history::hosts_of_failed(mine);
    let which = if hosts.is_empty() { String::new() } else { format!(" ({})", listed(&hosts)) };
    let why = format!("nodeList is the applied list again: the failed changes{which} are undone");
    let spec = with_declared_workers(object, before);
    NextAction::Operation(Box::new(DesiredOperation::new(action, spec, hosts, why)))
}

fn refused(difference: &Difference, before: &DeclaredCluster, wanted: &DeclaredCluster) -> Option<String> {
    if !difference.refused.is_empty() {
        return Some(format!(
            "cannot be changed yet: {}; restore the old value",
            difference.refused.join(", ")
        ));
    }
    if !difference.workers.removed.is_empty() && wanted.node_list.is_empty() {
        return Some(
            "spec.cluster.nodeList: the last worker cannot be removed; delete the cluster instead".to_owned(),
        );
    }
    let holds_etcd = |node: &&DeclaredNode| before.etcd_list.iter().any(|other| other.ip == node.ip);
    if let Some(held) = difference.workers.removed.iter().find(holds_etcd) {
        return Some(format!("spec.cluster.nodeList: {} holds etcd and cannot be removed", held.ip));
    }
    if difference.masters.removed.len() == before.master_list.len() {
        return Some("spec.cluster.masterList: one master of the cluster must stay".to_owned());
    }
    if !difference.etcd.removed.is_empty() && difference.etcd.removed.len() == before.etcd_list.len() {
        return Some("spec.cluster.etcdList: one host of etcd must stay".to_owned());
    }
    let moved = moved_host(difference, before)?;
    Some(format!("spec.cluster: {moved} has another role in the cluster; remove it first, then add it again"))
}

/// A host that is added to one list and was in another one.
fn moved_host(difference: &Difference, before: &DeclaredCluster) -> Option<HostAddress> {
    let Difference { masters, workers, etcd, .. } = difference;
    let was_in = |list: &NodeList, nodes: &[DeclaredNode]| {
        nodes.iter().map(|node| node.ip).find(|ip| list.iter().any(|before| before.ip == *ip))
    };
    let to_etcd =
        || was_in(&before.node_list, &etcd.added).or_else(|| was_in(&before.master_list, &etcd.added));
    let from_etcd = || {
        let nodes = [&masters.added, &workers.added];
        nodes.into_iter().find_map(|nodes| was_in(&before.etcd_list, nodes))
    };
    was_in(&before.node_list, &masters.added)
        .or_else(|| was_in(&before.master_list, &workers.added))
        .or_else(to_etcd)
        .or_else(|| from_etcd().filter(|_| before.etcd_has_own_hosts()))
}

/// Nothing differs. A change that an annotation requests is reported as finished; skipped hosts are tried
/// again. Contract B, cases 23 and 31.
fn answer(object: &KubernetesCluster, before: &DeclaredCluster) -> NextAction {
    let missing = history::missing_hosts(object);
    match requested(object) {
        Some(Operation::Creating | Operation::ScalingUp) if !missing.is_empty() => {
            let why = format!("nodeList: {} was left out", listed(&missing));
            let spec = with_declared_workers(object, before);
            NextAction::Operation(Box::new(DesiredOperation::new(ClusterAction::ScaleUp, spec, missing, why)))
        }
        Some(Operation::Creating | Operation::CreateFailed) => NextAction::Answer(Operation::CreateFinished),
        Some(Operation::ScalingUp | Operation::ScaleUpFailed) => {
            NextAction::Answer(Operation::ScaleUpFinished)
        }
        Some(Operation::ScalingDown | Operation::ScaleDownFailed) => {
            NextAction::Answer(Operation::ScaleDownFinished)
        }
        Some(Operation::Updating | Operation::UpdateFailed) => NextAction::Answer(Operation::UpdateFinished),
        Some(Operation::Rollbacking) => NextAction::Answer(Operation::RollbackFinished),
        Some(Operation::Renewing) => again(object, before, ClusterAction::Renew, "renewing was requested"),
        Some(Operation::Repairing) => again(object, before, ClusterAction::Repair, "repairing was requested"),
        Some(Operation::Snapshotting) => {
            again(object, before, ClusterAction::Snapshot, "snapshotting was requested")
        }
        _ => NextAction::Declared,
    }
}

/// An operation on a cluster whose declaration has not changed.
fn again(
    object: &KubernetesCluster,
    before: &DeclaredCluster,
    action: ClusterAction,
    why: &str,
) -> NextAction {
    let spec = with_declared_workers(object, before);
    NextAction::Operation(Box::new(DesiredOperation::new(action, spec, Vec::new(), why.to_owned())))
}

/// An action that nobody requested, on a cluster whose declaration has not changed; `None` before the cluster was created.
pub(super) fn by_itself(object: &KubernetesCluster, action: ClusterAction, why: &str) -> Option<NextAction> {
    let before = applied(object).ok()??;
    Some(again(object, &before.cluster, action, why))
}
