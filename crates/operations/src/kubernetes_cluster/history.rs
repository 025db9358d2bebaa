//! Facts from ended operations: the hosts that they may have changed, the hosts that they skipped, and the
//! command with which a user lets the next operation continue.

use std::sync::Arc;

use kubeon_api::kubeonkube::OperationResult;
use kubeon_api::{
    ClusterOperation, HostAddress, KubernetesCluster, KubernetesClusterSpec, Remedy, Version, labels,
};

use super::cluster_action::ClusterAction;
use crate::names::{DERIVED_NAMESPACE_LABEL, HOSTS_ANNOTATION};
use crate::order;

/// The checks that fail when a host cannot be inspected.
const REACH_CHECKS: [&str; 2] = ["reach", "login"];
/// The most hosts in one command; the next operation reports the others.
const MOST_NAMED: usize = 64;

fn annotation<'a>(
    annotations: Option<&'a std::collections::BTreeMap<String, String>>,
    key: &str,
) -> Option<&'a str> {
    annotations?.get(key).map(|text| text.trim()).filter(|text| !text.is_empty())
}

/// An annotation of the object that changes how its operations run; `None` when it is empty.
pub(super) fn annotation_of<'a>(object: &'a KubernetesCluster, key: &str) -> Option<&'a str> {
    annotation(object.metadata.annotations.as_ref(), key)
}

/// The annotations with which a user lets the next operation continue.
pub(super) const LENIENT: [&str; 2] = [labels::IGNORE_CHECKS, labels::WITHOUT];

/// How an operation ended.
pub(super) fn result(operation: &ClusterOperation) -> Option<OperationResult> {
    operation.status.as_ref().and_then(|status| status.status)
}

/// Whether the last operation made a plan, which waits for its approval. `mine` is in the order of time.
pub(super) fn has_open_plan(mine: &[Arc<ClusterOperation>]) -> bool {
    let last = mine.iter().rev().find(|operation| order::ended(operation));
    last.is_some_and(|operation| operation.spec.plan && result(operation) == Some(OperationResult::Succeeded))
}

/// The operations that ended last; several when they ended within one second.
fn last(mine: &[Arc<ClusterOperation>]) -> impl Iterator<Item = &Arc<ClusterOperation>> {
    let when = |operation: &ClusterOperation| {
        let end = operation.status.as_ref().and_then(|status| status.end_time.as_ref()).map(|time| time.0);
        (end, operation.metadata.creation_timestamp.as_ref().map(|time| time.0))
    };
    let ended = || mine.iter().filter(|operation| order::ended(operation));
    let newest = ended().map(|operation| when(operation)).max();
    ended().filter(move |operation| Some(when(operation)) == newest)
}

/// Whether a user changed an annotation since the last operation ended, so that another attempt may succeed.
pub(super) fn permits_retry(object: &KubernetesCluster, mine: &[Arc<ClusterOperation>]) -> bool {
    let had_same_annotations = |operation: &Arc<ClusterOperation>| {
        let then = operation.metadata.annotations.as_ref();
        LENIENT
            .iter()
            .all(|key| annotation_of(object, key).is_none_or(|now| annotation(then, key) == Some(now)))
    };
    let mut last = last(mine).peekable();
    last.peek().is_some() && !last.any(had_same_annotations)
}

/// The operations that failed since the last one that changed the cluster with success, newest first.
fn failed_since_success(mine: &[Arc<ClusterOperation>]) -> impl Iterator<Item = &Arc<ClusterOperation>> {
    let changes_hosts = |operation: &Arc<ClusterOperation>| {
        !operation.spec.plan && ClusterAction::of(operation) != Some(ClusterAction::Snapshot)
    };
    mine.iter()
        .rev()
        .filter(move |operation| order::ended(operation) && changes_hosts(operation))
        .take_while(|operation| result(operation) == Some(OperationResult::Failed))
}

/// The hosts of the operations that failed since the last successful one.
pub(super) fn hosts_of_failed(mine: &[Arc<ClusterOperation>]) -> Vec<HostAddress> {
    let listed = failed_since_success(mine)
        .filter_map(|operation| annotation(operation.metadata.annotations.as_ref(), HOSTS_ANNOTATION));
    let mut hosts: Vec<HostAddress> =
        listed.flat_map(|hosts| hosts.split(',').filter_map(|host| host.parse().ok())).collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

/// The declared version of an operation that changes the version or settings.
pub(super) fn version_of_update(operation: &ClusterOperation) -> Option<Version> {
    let text = annotation(operation.metadata.annotations.as_ref(), labels::APPLIED_SPEC)?;
    let is_update = ClusterAction::of(operation) == Some(ClusterAction::Update);
    let spec: KubernetesClusterSpec = serde_json::from_str(text).ok().filter(|_| is_update)?;
    spec.cluster.kube_version
}

/// The version of the last upgrade from `before`, if it failed and no operation succeeded since: the cluster may already be changing
/// to it.
pub(super) fn version_of_failed_upgrade(mine: &[Arc<ClusterOperation>], before: Version) -> Option<Version> {
    failed_since_success(mine)
        .filter_map(|operation| version_of_update(operation))
        .find(|version| *version != before)
}

/// The hosts that an operation skipped because they did not answer.
pub(super) fn skipped_hosts(operation: &ClusterOperation) -> Vec<HostAddress> {
    let findings = operation.status.iter().flat_map(|status| &status.findings);
    let unreachable =
        findings.filter(|finding| finding.ignored && REACH_CHECKS.contains(&finding.check.as_str()));
    unreachable.filter_map(|finding| finding.host.parse().ok()).collect()
}

/// The hosts that are not part of the running cluster because they were skipped.
pub(super) fn missing_hosts(object: &KubernetesCluster) -> Vec<HostAddress> {
    let nodes = object.status.iter().flat_map(|status| &status.nodes);
    nodes.filter(|node| node.ready == Some(false)).map(|node| node.ip).collect()
}

/// Unreachable hosts that a derived operation may skip, and the command for that.
pub(crate) struct SkipProposal {
    pub hosts: Vec<HostAddress>,
    pub command: String,
}

/// The proposal from the refusals of the operation; `None` when no host may be skipped.
pub(crate) fn skip_proposal(operation: &ClusterOperation) -> Option<SkipProposal> {
    let namespace = operation.metadata.labels.as_ref()?.get(DERIVED_NAMESPACE_LABEL)?;
    let already_skipped = annotation(operation.metadata.annotations.as_ref(), labels::WITHOUT);
    let already_skipped: Vec<&str> = already_skipped.unwrap_or_default().split(',').map(str::trim).collect();
    let already_skipped: Vec<&str> = already_skipped.into_iter().filter(|name| !name.is_empty()).collect();
    let refusals = operation.status.iter().flat_map(|status| &status.refusals);
    let named = refusals.filter_map(|refusal| match &refusal.remedy {
        Some(Remedy::SkipHost(host)) => Some(*host),
        _ => None,
    });
    let mut hosts: Vec<HostAddress> =
        named.filter(|host| !already_skipped.contains(&host.to_string().as_str())).collect();
    hosts.sort();
    hosts.dedup();
    hosts.truncate(MOST_NAMED);
    if hosts.is_empty() {
        return None;
    }
    let overwrite = if already_skipped.is_empty() { "" } else { "--overwrite " };
    let all: Vec<String> = already_skipped
        .iter()
        .map(|name| (*name).to_owned())
        .chain(hosts.iter().map(ToString::to_string))
        .collect();
    let command = format!(
        "kubectl -n {namespace} annotate {overwrite}ecs {} {}={}",
        operation.spec.cluster,
        labels::WITHOUT,
        all.join(",")
    );
    Some(SkipProposal { hosts, command })
}

/// The message of a failure, with the command to continue if there is one.
pub(crate) fn failure_text(operation: &ClusterOperation, message: &str) -> String {
    match skip_proposal(operation) {
        Some(proposal) => {
            crate::condition::clipped_before(message, &format!("\nto go on without: {}", proposal.command))
        }
        None => crate::condition::clipped(message),
    }
}
