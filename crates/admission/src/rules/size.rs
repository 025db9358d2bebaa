//! The declared cluster must not be larger than annotations may be: the operator stores the applied spec there, and an operation the spec
//! that it was created for. Without this rule the API server would refuse the write after the hosts were changed.

use std::collections::BTreeSet;

use kube::core::DynamicObject;
use kubeon_api::kubernetes_cluster::{DeclaredCluster, DeclaredNode};
use kubeon_api::labels::APPLIED_SPEC;
use serde::Serialize;

use super::desired::{Desired, Existing};
use crate::verdict::AdmissionVerdict;

/// The most bytes of all annotations of an object, names included.
const MOST: usize = 256 * 1024;
/// Bytes that are reserved for the operator's other annotations and for the fields around the cluster.
const ROOM: usize = 8 * 1024;

pub(super) fn judge(
    desired: &Desired<'_>,
    object: &DynamicObject,
    before: Option<(&Existing, &DynamicObject)>,
    verdict: &mut AdmissionVerdict,
) {
    let (declared, beside) = (text(desired.cluster), others(object));
    let had = before.map_or(0, |(existing, old)| text(&existing.declared) + others(old));
    // A declaration that is already too large may become smaller.
    if declared + beside > (MOST - ROOM).max(had) {
        let reason = format!(
            "the declaration has {declared} bytes and is kept in an annotation, beside others of {beside} bytes; {MOST} is \
             the most that an object's annotations have together: leave out names and labels that can be done without, \
             or kubectl's own copy (kubectl apply --server-side)"
        );
        return verdict.deny(desired.field("nodeList"), reason);
    }
    let size = annotation_size(desired.cluster, before.and_then(|(existing, _)| existing.built.as_ref()));
    let had = before.map_or(0, |(existing, _)| annotation_size(&existing.declared, existing.built.as_ref()));
    if size > (MOST - ROOM).max(had) {
        let reason = format!(
            "an operation carries the declaration and the addresses of the workers that it is about, {size} bytes in its \
             annotations, of which {MOST} bytes is the most: add or remove the workers in several steps"
        );
        verdict.deny(desired.field("nodeList"), reason);
    }
}

/// The bytes of the JSON text. Another rule denies a part that cannot be serialized.
fn text(part: &impl Serialize) -> usize {
    serde_json::to_string(part).map_or(0, |text| text.len())
}

/// Bytes of all annotations except the one that is replaced.
fn others(object: &DynamicObject) -> usize {
    let all = object.metadata.annotations.iter().flatten().filter(|(name, _)| *name != APPLIED_SPEC);
    all.map(|(name, text)| name.len() + text.len()).sum()
}

/// Bytes in the annotations of the largest operation that a declaration leads to: the declaration, and the addresses of the
/// workers that the operation is about. The addresses count twice when a cluster exists, since the reason repeats them.
/// Workers are added before others are removed, so for a while all of them are declared.
fn annotation_size(desired: &DeclaredCluster, built: Option<&DeclaredCluster>) -> usize {
    let declared = text(desired);
    let Some(built) = built else { return declared + named(desired.node_list.iter()) };
    let (new, removed) = (beside(desired, built), beside(built, desired));
    if new.is_empty() {
        return declared + 2 * named(removed.into_iter());
    }
    let remaining: usize = removed.iter().map(|node| text(node) + 1).sum();
    declared + (remaining + 2 * named(new.into_iter())).max(2 * named(removed.into_iter()))
}

/// Workers of one cluster that the other does not have.
fn beside<'c>(cluster: &'c DeclaredCluster, other: &DeclaredCluster) -> Vec<&'c DeclaredNode> {
    let others: BTreeSet<_> = other.node_list.iter().map(|node| node.ip).collect();
    cluster.node_list.iter().filter(|node| !others.contains(&node.ip)).collect()
}

/// Bytes of their addresses, one after the other.
fn named<'c>(nodes: impl Iterator<Item = &'c DeclaredNode>) -> usize {
    nodes.map(|node| node.ip.to_string().len() + 1).sum()
}
