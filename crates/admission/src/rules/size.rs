//! What is declared must fit into annotations: there the operator keeps what was applied, and an operation what it is made
//! for. Whoever is told so by the API server would be told it after the hosts were changed.

use std::fmt::Display;

use kube::core::DynamicObject;
use kubeon_api::kubernetes_cluster::DeclaredCluster;
use kubeon_api::labels::APPLIED_SPEC;

use super::{Stood, Wanted};
use crate::verdict::Verdict;

/// Bytes that an API server takes of all annotations of an object, names included.
const MOST: usize = 256 * 1024;
/// Bytes of these for what is short: the operator's other annotations, and what stands around the cluster's fields.
const ROOM: usize = 8 * 1024;

pub(super) fn judge(
    wanted: &Wanted<'_>,
    object: &DynamicObject,
    before: Option<(&Stood, &DynamicObject)>,
    verdict: &mut Verdict,
) {
    let (declared, beside) = (declaration(wanted.cluster), others(object));
    let had = before.map_or(0, |(stood, old)| declaration(&stood.declared) + others(old));
    // One that is too large already may become smaller.
    if declared + beside > (MOST - ROOM).max(had) {
        let reason = format!(
            "the declaration has {declared} bytes and is kept in an annotation, beside others of {beside} bytes; {MOST} is \
             the most that an object's annotations have together: leave out names and labels that can be done without, \
             or kubectl's own copy (kubectl apply --server-side)"
        );
        return verdict.deny(wanted.field("nodeList"), reason);
    }
    let named = named(wanted.cluster, before.map(|(stood, _)| &stood.declared));
    if declared + named > MOST - ROOM {
        let reason = format!(
            "the declaration has {declared} bytes and the addresses of new workers {named}; an operation carries both in \
             annotations, of which {MOST} bytes is the most: add the workers in several steps"
        );
        verdict.deny(wanted.field("nodeList"), reason);
    }
}

/// Bytes of a cluster's fields as text. What cannot be written as text is refused elsewhere.
fn declaration(cluster: &DeclaredCluster) -> usize {
    serde_json::to_string(cluster).map_or(0, |text| text.len())
}

/// Bytes of all annotations but the one that is written anew.
fn others(object: &DynamicObject) -> usize {
    let all = object.metadata.annotations.iter().flatten().filter(|(name, _)| *name != APPLIED_SPEC);
    all.map(|(name, text)| name.len() + text.len()).sum()
}

/// Bytes with which an operation names the workers that are new: once, and where there were others once more in its reason.
fn named(wanted: &DeclaredCluster, before: Option<&DeclaredCluster>) -> usize {
    let length = |address: &dyn Display| address.to_string().len() + 1;
    let Some(before) = before else { return wanted.node_list.iter().map(|node| length(&node.ip)).sum() };
    let stands: std::collections::BTreeSet<_> = before.node_list.iter().map(|node| node.ip).collect();
    let new = wanted.node_list.iter().filter(|node| !stands.contains(&node.ip));
    2 * new.map(|node| length(&node.ip)).sum::<usize>()
}
