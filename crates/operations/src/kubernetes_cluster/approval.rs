//! Changes that are applied only after a person approved their plan: `spec.plan`.
//!
//! ```text
//!   change ─► operation with spec.plan ─► plan in a ConfigMap ─► kubeon.io/approve ─► operation with spec.approves
//!      ▲                                                                                      │
//!      └──────────────────────────── it failed: plan again ───────────────────────────────────┘
//! ```

use std::sync::Arc;

use kubeon_api::kubeonkube::OperationResult;
use kubeon_api::{ClusterOperation, KubernetesCluster, Phase, canonical_json, labels};
use serde_json::{Value, json};

use super::cluster_action::ClusterAction;
use super::health_conditions::status_write;
use super::next_action::{Approval, DesiredOperation, NextAction};
use super::object_access::{namespace, object_name, object_notice};
use super::{applied, history, status};
use crate::operation::{at, name};
use crate::order;
use crate::view::View;
use crate::write::ClusterChanges;

/// The reason of the condition Progressing while a plan waits.
const WAITS: &str = "WaitsForApproval";

/// Replaces a change that needs an approval by its plan, until that is approved.
pub(super) fn required(
    object: &KubernetesCluster,
    mine: &[Arc<ClusterOperation>],
    wanted: NextAction,
) -> NextAction {
    let NextAction::Operation(mut desired) = wanted else { return wanted };
    if !needs_approval(object, desired.action) {
        return NextAction::Operation(desired);
    }
    let Some(planned) = plan_of(mine, &desired).map(|operation| name(operation).to_owned()) else {
        desired.why = format!("a plan for: {}", desired.why);
        desired.approval = Approval::Plan;
        return NextAction::Operation(desired);
    };
    if history::annotation_of(object, labels::APPROVE) == Some(planned.as_str()) {
        desired.approval = Approval::Of(planned);
        return NextAction::Operation(desired);
    }
    NextAction::Blocked { word: WAITS, text: waits(object, &planned) }
}

/// Who deletes an object or returns it to a snapshot has decided; snapshots and renewals change nothing that a plan shows. A
/// cluster out of a snapshot is declared with it.
fn needs_approval(object: &KubernetesCluster, action: ClusterAction) -> bool {
    let restores = object.spec.snapshots.as_ref().is_some_and(|snapshots| snapshots.restore_from.is_some());
    object.spec.plan
        && match action {
            ClusterAction::Create => !restores,
            ClusterAction::ScaleUp
            | ClusterAction::ScaleDown
            | ClusterAction::Update
            | ClusterAction::Repair => true,
            ClusterAction::Rollback
            | ClusterAction::Renew
            | ClusterAction::Snapshot
            | ClusterAction::Terminate => false,
        }
}

/// The last successful plan of a change that was not applied since, whether with success or not.
fn plan_of<'o>(
    mine: &'o [Arc<ClusterOperation>],
    desired: &DesiredOperation,
) -> Option<&'o ClusterOperation> {
    let last = mine.iter().rev().find(|operation| order::ended(operation))?;
    let spec = last.metadata.annotations.as_ref()?.get(labels::APPLIED_SPEC)?;
    // An operator with other fields of the spec may have written it.
    let planned: Value = serde_json::from_str(spec).ok()?;
    let is_same_spec = canonical_json(&planned) == canonical_json(&json!(desired.spec));
    let is_same = ClusterAction::of(last) == Some(desired.action) && is_same_spec;
    (history::has_open_plan(mine) && is_same).then_some(last.as_ref())
}

fn waits(object: &KubernetesCluster, operation: &str) -> String {
    let (ns, cluster) = (namespace(object), object_name(object));
    format!(
        "the plan of {operation} waits for approval; read the log of its Job, then: \
         kubectl -n {ns} annotate --overwrite ecs {cluster} {}={operation}",
        labels::APPROVE
    )
}

/// After a plan was made: the cluster is as it was before.
pub(super) fn planned(
    s: &View<'_>,
    object: &KubernetesCluster,
    mine: &[Arc<ClusterOperation>],
    operation: &ClusterOperation,
) -> ClusterChanges {
    let mut new = object.status.clone().unwrap_or_default();
    let before = mine.iter().rev().find(|other| order::ended(other) && !other.spec.plan);
    let had_failed = before.is_some_and(|other| history::result(other) == Some(OperationResult::Failed));
    let exists = matches!(applied::applied(object), Ok(Some(_)));
    new.phase = Some(match (had_failed, exists) {
        (true, _) => Phase::Failed,
        (false, true) => Phase::Running,
        (false, false) => Phase::Prechecking,
    });
    new.last_transition_time = Some(at(s.now));
    new.operation = None;
    new.step = None;
    let text = waits(object, name(operation));
    new.reason = Some(text.clone());
    status::waits(&mut new, WAITS, &text, s.now);
    let mut notices = status::precheck_notices(object, operation);
    notices.push(object_notice(object, false, "Planned", text));
    let write = status_write(s, object, new, "the plan is made");
    ClusterChanges { stages: vec![write.into_iter().collect()], notices, wake: None }
}
