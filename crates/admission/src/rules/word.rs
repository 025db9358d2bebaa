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
        (Operation::Rollbacking, _) => {
            verdict.deny(field, format!("{word} is not possible yet"));
        }
        (
            Operation::ScalingUp
            | Operation::ScalingDown
            | Operation::Updating
            | Operation::Renewing
            | Operation::Repairing
            | Operation::Snapshotting,
            None,
        ) => {
            verdict.deny(field, format!("{word} needs a cluster, and this one was never made; use creating"));
        }
        (Operation::ScalingUp, Some(built)) => scaling(desired, built, Operation::ScalingUp, verdict),
        (Operation::ScalingDown, Some(built)) => scaling(desired, built, Operation::ScalingDown, verdict),
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
