//! The operation that is derived from a `KubernetesCluster`.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubeon_api::kubeonkube::{Action, ActionType, ClusterOperationSpec};
use kubeon_api::kubernetes_cluster::TimeoutMins;
use kubeon_api::{ClusterOperation, KubernetesCluster, Operation, Phase, canonical_json, labels};
use serde_json::json;

use super::cluster_action::ClusterAction;
use super::health_conditions::{show_health, status_write};
use super::history::LENIENT;
use super::next_action::{Approval, DesiredOperation};
use super::object_access::{namespace, object_name, object_notice};
use super::{history, status};
use crate::condition::STEP_FAILED;
use crate::names::{self, DERIVED_NAMESPACE_LABEL, DERIVED_UID_LABEL, HOSTS_ANNOTATION, WHY_ANNOTATION};
use crate::operation::{at, name};
use crate::view::View;
use crate::write::{Change, ClusterChanges, ObjectKind, ObjectRef, Write};

/// The name of the derived operation. It is the same each time it is computed for one change.
pub(super) fn name_of(object: &KubernetesCluster, desired: &DesiredOperation) -> String {
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    let since =
        object.status.as_ref().and_then(|status| status.last_transition_time.as_ref()).map(|time| time.0);
    let mut content = canonical_json(&json!(desired.spec));
    match &desired.approval {
        Approval::NotNeeded => {}
        Approval::Plan => content.push_str("\nplan"),
        Approval::Of(plan) => content.push_str(&format!("\napproves={plan}")),
    }
    for (key, text) in LENIENT.iter().filter_map(|key| Some((key, history::annotation_of(object, key)?))) {
        content.push_str(&format!("\n{key}={text}"));
    }
    let of = (namespace(object), object_name(object), uid);
    names::derived_operation(of, desired.action.as_str(), &content, since)
}

/// Creates the operation, then claims the cluster for it.
pub(super) fn begin(
    s: &View<'_>,
    object: &KubernetesCluster,
    desired: &DesiredOperation,
    mine: &[Arc<ClusterOperation>],
) -> ClusterChanges {
    let operation = name_of(object, desired);
    let mut changes = ClusterChanges::default();
    let operation_write = Write {
        why: desired.why.clone(),
        target: ObjectRef::new(ObjectKind::Operation, "", &operation),
        change: Change::Create(operation_object(s, object, desired, &operation).into()),
        operation: None,
    };
    let exists = mine.iter().any(|existing| name(existing) == operation);
    changes.stages.push(if exists { Vec::new() } else { vec![operation_write] });
    let mut new = object.status.clone().unwrap_or_default();
    let phase = match desired.action {
        ClusterAction::Terminate => Phase::Terminating,
        ClusterAction::Snapshot => Phase::Snapshotting,
        ClusterAction::Create
        | ClusterAction::ScaleUp
        | ClusterAction::ScaleDown
        | ClusterAction::Update
        | ClusterAction::Rollback
        | ClusterAction::Renew
        | ClusterAction::Repair => Phase::Prechecking,
    };
    new.phase = Some(phase);
    new.reason = None;
    new.step = None;
    new.operation = Some(operation.clone());
    new.job_name = None;
    new.last_transition_time = Some(at(s.now));
    new.observed_generation = object.metadata.generation;
    // Remove the failed steps of an earlier operation: the same step may fail again.
    new.conditions.retain(|condition| condition.type_ != STEP_FAILED);
    status::progressing(&mut new, phase, &desired.why, s.now);
    changes.notices.extend(show_health(s, object, &mut new));
    changes.stages.push(
        status_write(s, object, new, format!("{operation} is the current operation")).into_iter().collect(),
    );
    changes.notices.push(object_notice(
        object,
        false,
        reason(desired.action),
        format!("{}: {operation}", desired.why),
    ));
    changes
}

fn reason(action: ClusterAction) -> &'static str {
    match action {
        ClusterAction::Create => "Creating",
        ClusterAction::ScaleUp => "ScalingUp",
        ClusterAction::ScaleDown => "ScalingDown",
        ClusterAction::Update => "Updating",
        ClusterAction::Rollback => "RollingBack",
        ClusterAction::Renew => "Renewing",
        ClusterAction::Repair => "Repairing",
        ClusterAction::Snapshot => "Snapshotting",
        ClusterAction::Terminate => "Terminating",
    }
}

fn operation_object(
    s: &View<'_>,
    object: &KubernetesCluster,
    desired: &DesiredOperation,
    name: &str,
) -> ClusterOperation {
    let timeout = object.spec.cluster.timeout_mins.unwrap_or(TimeoutMins::DEFAULT).duration().as_secs();
    let hosts: Vec<String> = desired.hosts.iter().map(ToString::to_string).collect();
    let mut annotations = BTreeMap::from([
        (labels::APPLIED_SPEC.to_owned(), json!(desired.spec).to_string()),
        (WHY_ANNOTATION.to_owned(), desired.why.clone()),
        (HOSTS_ANNOTATION.to_owned(), hosts.join(",")),
    ]);
    let lenient = LENIENT.iter().filter_map(|key| Some((*key, history::annotation_of(object, key)?)));
    annotations.extend(lenient.map(|(key, text)| (key.to_owned(), text.to_owned())));
    // Nobody knows who deleted an object.
    let requester = history::annotation_of(object, labels::REQUESTED_BY);
    let requester = requester.filter(|_| object.metadata.deletion_timestamp.is_none());
    annotations.extend(requester.map(|user| (labels::REQUESTED_BY.to_owned(), user.to_owned())));
    let labels = BTreeMap::from([
        (names::CLUSTER_LABEL.to_owned(), names::label(object_name(object))),
        (DERIVED_NAMESPACE_LABEL.to_owned(), namespace(object).to_owned()),
        (DERIVED_UID_LABEL.to_owned(), object.metadata.uid.clone().unwrap_or_default()),
    ]);
    let spec = ClusterOperationSpec {
        cluster: object_name(object).to_owned(),
        main: Action {
            action_type: ActionType::Kubeon,
            action: desired.action.as_str().to_owned(),
            ..Action::default()
        },
        image: s.settings.derived_image(),
        active_deadline_seconds: i64::try_from(timeout).ok(),
        plan: desired.approval == Approval::Plan,
        approves: match &desired.approval {
            Approval::Of(plan) => Some(plan.clone()),
            Approval::NotNeeded | Approval::Plan => None,
        },
        ..ClusterOperationSpec::default()
    };
    let mut operation = ClusterOperation::new(name, spec);
    operation.metadata.labels = Some(labels);
    operation.metadata.annotations = Some(annotations);
    operation
}

/// The words of the annotation after a success and after a failure. An unknown action ends like a teardown.
pub(super) fn words(action: Option<ClusterAction>) -> (Operation, Operation) {
    match action {
        Some(ClusterAction::Create) => (Operation::CreateFinished, Operation::CreateFailed),
        Some(ClusterAction::ScaleUp) => (Operation::ScaleUpFinished, Operation::ScaleUpFailed),
        Some(ClusterAction::ScaleDown) => (Operation::ScaleDownFinished, Operation::ScaleDownFailed),
        Some(ClusterAction::Update) => (Operation::UpdateFinished, Operation::UpdateFailed),
        Some(ClusterAction::Rollback) => (Operation::RollbackFinished, Operation::RollbackFailed),
        Some(ClusterAction::Renew) => (Operation::RenewFinished, Operation::RenewFailed),
        Some(ClusterAction::Repair) => (Operation::RepairFinished, Operation::RepairFailed),
        Some(ClusterAction::Snapshot) => (Operation::SnapshotFinished, Operation::SnapshotFailed),
        Some(ClusterAction::Terminate) | None => (Operation::TerminateFinished, Operation::TerminateFailed),
    }
}
