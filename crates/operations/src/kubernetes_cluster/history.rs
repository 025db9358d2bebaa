//! What operations that ended tell: which hosts they may have touched, which they did without, and what a person may type so
//! that the next one gets further.

use std::sync::Arc;

use kubeon_api::kubeonkube::OperationResult;
use kubeon_api::{ClusterOperation, HostAddress, KubernetesCluster, Remedy, labels};

use crate::names::{DERIVED_NAMESPACE_LABEL, HOSTS_ANNOTATION};
use crate::order;

/// The checks that say whether a host can be looked at.
const SIGHT: [&str; 2] = ["reach", "login"];
/// The most hosts that one command names; the next operation reports the rest.
const MOST_NAMED: usize = 64;

fn annotation<'a>(
    annotations: Option<&'a std::collections::BTreeMap<String, String>>,
    key: &str,
) -> Option<&'a str> {
    annotations?.get(key).map(|text| text.trim()).filter(|text| !text.is_empty())
}

/// What the object says about how its operations are done.
pub(super) fn said<'a>(object: &'a KubernetesCluster, key: &str) -> Option<&'a str> {
    annotation(object.metadata.annotations.as_ref(), key)
}

/// The annotations by which a person lets the next operation get further.
pub(super) const LENIENT: [&str; 2] = [labels::IGNORE_CHECKS, labels::WITHOUT];

/// The operations that ended last; more than one where that was within one second.
fn last(mine: &[Arc<ClusterOperation>]) -> impl Iterator<Item = &Arc<ClusterOperation>> {
    let when = |one: &ClusterOperation| {
        let end = one.status.as_ref().and_then(|status| status.end_time.as_ref()).map(|time| time.0);
        (end, one.metadata.creation_timestamp.as_ref().map(|time| time.0))
    };
    let ended = || mine.iter().filter(|one| order::ended(one));
    let newest = ended().map(|one| when(one)).max();
    ended().filter(move |one| Some(when(one)) == newest)
}

/// Whether something was said since the last operation ended that may let another one pass.
pub(super) fn permits_retry(object: &KubernetesCluster, mine: &[Arc<ClusterOperation>]) -> bool {
    let knew = |one: &Arc<ClusterOperation>| {
        let then = one.metadata.annotations.as_ref();
        LENIENT.iter().all(|key| said(object, key).is_none_or(|now| annotation(then, key) == Some(now)))
    };
    let mut last = last(mine).peekable();
    last.peek().is_some() && !last.any(knew)
}

/// The hosts that operations were about that failed since the last one that went well.
pub(super) fn touched(mine: &[Arc<ClusterOperation>]) -> Vec<HostAddress> {
    let failed = mine.iter().rev().filter(|one| order::ended(one)).take_while(|one| {
        one.status.as_ref().and_then(|status| status.status) == Some(OperationResult::Failed)
    });
    let listed = failed.filter_map(|one| annotation(one.metadata.annotations.as_ref(), HOSTS_ANNOTATION));
    let mut hosts: Vec<HostAddress> =
        listed.flat_map(|hosts| hosts.split(',').filter_map(|host| host.parse().ok())).collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

/// The hosts that an operation did without because they did not answer.
pub(super) fn left_out(operation: &ClusterOperation) -> Vec<HostAddress> {
    let findings = operation.status.iter().flat_map(|status| &status.findings);
    let silent = findings.filter(|it| it.ignored && SIGHT.contains(&it.check.as_str()));
    silent.filter_map(|it| it.host.parse().ok()).collect()
}

/// Whether the object runs without a host that was left out.
pub(super) fn lacks(object: &KubernetesCluster) -> Vec<HostAddress> {
    let nodes = object.status.iter().flat_map(|status| &status.nodes);
    nodes.filter(|node| node.ready == Some(false)).map(|node| node.ip).collect()
}

/// Hosts that stand in a derived operation's way and may be left out, and what to type so that they are.
pub(crate) struct WayOut {
    pub hosts: Vec<HostAddress>,
    pub command: String,
}

/// The hosts that may be left out, as the refusals of the operation name them.
pub(crate) fn way_out(operation: &ClusterOperation) -> Option<WayOut> {
    let namespace = operation.metadata.labels.as_ref()?.get(DERIVED_NAMESPACE_LABEL)?;
    let agreed = annotation(operation.metadata.annotations.as_ref(), labels::WITHOUT);
    let agreed: Vec<&str> = agreed.unwrap_or_default().split(',').map(str::trim).collect();
    let agreed: Vec<&str> = agreed.into_iter().filter(|name| !name.is_empty()).collect();
    let refusals = operation.status.iter().flat_map(|status| &status.refusals);
    let named = refusals.filter_map(|refusal| match &refusal.remedy {
        Some(Remedy::SkipHost(host)) => Some(*host),
        _ => None,
    });
    let mut hosts: Vec<HostAddress> =
        named.filter(|host| !agreed.contains(&host.to_string().as_str())).collect();
    hosts.sort();
    hosts.dedup();
    hosts.truncate(MOST_NAMED);
    if hosts.is_empty() {
        return None;
    }
    let overwrite = if agreed.is_empty() { "" } else { "--overwrite " };
    let all: Vec<String> =
        agreed.iter().map(|name| (*name).to_owned()).chain(hosts.iter().map(ToString::to_string)).collect();
    let command = format!(
        "kubectl -n {namespace} annotate {overwrite}ecs {} {}={}",
        operation.spec.cluster,
        labels::WITHOUT,
        all.join(",")
    );
    Some(WayOut { hosts, command })
}

/// The words of a failure as people who declare clusters read them: with what they can type.
pub(crate) fn told(operation: &ClusterOperation, words: &str) -> String {
    match way_out(operation) {
        Some(way) if !words.contains(&way.command) => {
            crate::condition::clipped_before(words, &format!("\nto go on without: {}", way.command))
        }
        _ => crate::condition::clipped(words),
    }
}
