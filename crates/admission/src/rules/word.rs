//! The operation that a client requests in the annotation must fit the spec. A policy decides who may write
//! which word in which phase.

use kubeon_api::Operation;
use kubeon_api::kubernetes_cluster::DeclaredCluster;
use kubeon_api::labels::OPERATION;

use super::desired::{Desired, Existing};
use super::fixed::ips;
use crate::verdict::AdmissionVerdict;

pub(super) fn judge(desired: &Desired<'_>, existing: &Existing, verdict: &mut AdmissionVerdict) {
    let Some(word) = desired.word else { return };
    let field = format!("metadata.annotations[{OPERATION}]");
    match (word, &existing.built) {
        (
            Operation::ScalingUp
            | Operation::ScalingDown
            | Operation::Updating
            | Operation::Rollbacking
            | Operation::Renewing
            | Operation::Repairing
            | Operation::Snapshotting,
            None,
        ) => {
            verdict.deny(field, format!("{word} needs a cluster, and this one was never made; use creating"));
        }
        (Operation::ScalingUp, Some(built)) => scaling(desired, built, Operation::ScalingUp, verdict),
        (Operation::ScalingDown, Some(built)) => scaling(desired, built, Operation::ScalingDown, verdict),
        (Operation::Rollbacking, Some(built)) => rollback(desired, existing, built, verdict),
        (Operation::Snapshotting, Some(_)) if desired.snapshots.is_none() => {
            verdict.deny("spec.snapshots", format!("{word} needs a folder and its credentials"));
        }
        // Contract B, 2.3: clients write the word, then delete the object. The word alone starts nothing.
        (Operation::Terminating, _) if !desired.is_being_deleted => verdict.warn(format!(
            "{field}: {word} takes effect with: kubectl -n {} delete ecs {}; nothing is done until then",
            desired.name.namespace, desired.name.name
        )),
        _ => {}
    }
}

/// The cluster returns to a snapshot of an older version, and nothing else of it changes.
fn rollback(
    desired: &Desired<'_>,
    existing: &Existing,
    built: &DeclaredCluster,
    verdict: &mut AdmissionVerdict,
) {
    if desired.snapshots.is_none_or(|snapshots| snapshots.restore_from.is_none()) {
        verdict.deny(
            "spec.snapshots.restoreFrom",
            "rollbacking needs the snapshot to which the cluster returns",
        );
    }
    let (now, runs) = (desired.cluster.kube_version, built.kube_version.or(existing.version));
    if now.zip(runs).is_none_or(|(now, runs)| now >= runs) {
        let runs = runs.map_or_else(|| "the one that runs".to_owned(), |version| version.to_string());
        let reason = format!("rollbacking returns to a version before {runs}: declare that of the snapshot");
        verdict.deny(desired.field("kubeVersion"), reason);
    }
    let changes = desired.cluster.changes(built, existing.version);
    let others: Vec<&str> = changes.fields.iter().copied().filter(|name| *name != "kubeVersion").collect();
    if !others.is_empty() || ips(&desired.cluster.node_list) != ips(&built.node_list) {
        verdict
            .deny(desired.root, "rollbacking changes kubeVersion alone; change the other fields afterwards");
    }
}

/// Contract B, cases 20 to 24: up only adds, down only removes; the same list is no change.
fn scaling(desired: &Desired<'_>, built: &DeclaredCluster, word: Operation, verdict: &mut AdmissionVerdict) {
    let (now, before) = (ips(&desired.cluster.node_list), ips(&built.node_list));
    let up = word == Operation::ScalingUp;
    let wrong: Vec<String> =
        if up { before.difference(&now) } else { now.difference(&before) }.map(ToString::to_string).collect();
    if !wrong.is_empty() {
        let reason = if up {
            format!(
                "scaling-up keeps every node, but {} would be removed; use scaling-down for that",
                wrong.join(", ")
            )
        } else {
            format!("scaling-down adds no node, but {} is new; use scaling-up for that", wrong.join(", "))
        };
        verdict.deny(desired.field("nodeList"), reason);
    } else if now == before {
        verdict
            .warn(format!("{}: equals the list of the cluster; nothing is done", desired.field("nodeList")));
    }
}
