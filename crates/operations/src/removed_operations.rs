//! Operations that the limit of the history removed. Their Cluster records them before they are deleted. An operation with the
//! same name and spec is not executed again: a tool that installs from Git creates every object that is missing. Nor is one that
//! was restored from a backup without its status.

use std::sync::Arc;

use kubeon_api::kubeonkube::{ClusterStatus, OperationResult, RemovedOperation};
use kubeon_api::{Cluster, ClusterOperation};

use crate::names::COMPLETED_LABEL;
use crate::operation::name;
use crate::order;
use crate::view::View;

/// The longest list of removed operations in a status.
const MOST_RECORDED: usize = 128;

fn entries(cluster: Option<&Cluster>) -> &[RemovedOperation] {
    cluster.and_then(|cluster| cluster.status.as_ref()).map_or(&[][..], |status| status.removed.as_slice())
}

/// The entry of an operation that ended.
fn entry(operation: &ClusterOperation) -> Option<RemovedOperation> {
    let result = operation.status.as_ref()?.status?;
    Some(RemovedOperation { name: name(operation).to_owned(), digest: operation.spec.whole_digest(), result })
}

/// The recorded operations, with those that exceed the limit of the history now.
pub(crate) fn recorded(
    s: &View<'_>,
    before: &ClusterStatus,
    operations: &[Arc<ClusterOperation>],
) -> Vec<RemovedOperation> {
    let mut all = before.removed.clone();
    let excess = order::excess(operations, s.settings.history_limit);
    // Oldest first, and never so many that one of them would be dropped before its operation is deleted.
    for operation in excess.iter().rev().take(MOST_RECORDED) {
        if !all.iter().any(|known| is_of(known, operation)) {
            all.retain(|other| other.name != name(operation));
            all.extend(entry(operation));
        }
    }
    all.drain(..all.len().saturating_sub(MOST_RECORDED));
    all
}

/// Whether the entry is that of this operation, which ended. An operator with another digest may have written it.
fn is_of(entry: &RemovedOperation, operation: &ClusterOperation) -> bool {
    let result = operation.status.as_ref().and_then(|status| status.status);
    entry.name == name(operation)
        && Some(entry.result) == result
        && operation.spec.has_whole_digest(&entry.digest)
}

/// Whether the operation may be deleted: its Cluster has recorded it, or does not exist.
pub(crate) fn is_recorded(cluster: Option<&Cluster>, operation: &ClusterOperation) -> bool {
    cluster.is_none() || entries(cluster).iter().any(|entry| is_of(entry, operation))
}

/// How the operation ended before it was removed, if it is a new object with the name and spec of a removed one.
pub(crate) fn repeated(cluster: Option<&Cluster>, operation: &ClusterOperation) -> Option<OperationResult> {
    let has_started = operation.status.as_ref().is_some_and(|status| status.job_ref.is_some());
    let found = entries(cluster).iter().find(|entry| entry.name == name(operation))?;
    (!has_started && operation.spec.has_whole_digest(&found.digest)).then_some(found.result)
}

/// Whether the operation ended and lost its status: it has the label of an operation that ended, which is written after the
/// status. A restore from a backup without status makes such an operation.
pub(crate) fn has_lost_status(operation: &ClusterOperation) -> bool {
    let labels = operation.metadata.labels.as_ref();
    let is_done = labels.and_then(|labels| labels.get(COMPLETED_LABEL)).is_some_and(|value| value == "done");
    let status = operation.status.as_ref();
    is_done && status.is_none_or(|status| status.status.is_none() && status.job_ref.is_none())
}
