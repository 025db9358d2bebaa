//! The operation that a wish becomes.

use std::sync::Arc;

use kubeon_api::kubernetes_cluster::TimeoutMins;
use kubeon_api::{ClusterOperation, KubernetesCluster, Operation, Phase, labels};
use serde_json::json;

use super::action::Action;
use super::past::LENIENT;
use super::want::Wish;
use super::{namespace, object_name, object_notice, past, show, status_write};
use crate::condition::STEP_FAILED;
use crate::names::{self, DERIVED_NAMESPACE_LABEL, DERIVED_UID_LABEL, HOSTS_ANNOTATION, WHY_ANNOTATION};
use crate::operation::{at, name};
use crate::snapshot::Snapshot;
use crate::write::{Change, Kind, Target, Turn, Write};

/// The name of the operation that this wish becomes: one name for one wish, however often it is computed.
pub(super) fn name_of(object: &KubernetesCluster, wish: &Wish) -> String {
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    let since =
        object.status.as_ref().and_then(|status| status.last_transition_time.as_ref()).map(|time| time.0);
    let mut content = json!(wish.spec).to_string();
    for (key, text) in LENIENT.iter().filter_map(|key| Some((key, past::said(object, key)?))) {
        content.push_str(&format!("\n{key}={text}"));
    }
    let of = (namespace(object), object_name(object), uid);
    names::derived_operation(of, wish.action.as_str(), &content, since)
}

/// Makes the operation, then claims the cluster for it.
pub(super) fn begin(
    s: &Snapshot<'_>,
    object: &KubernetesCluster,
    wish: &Wish,
    mine: &[Arc<ClusterOperation>],
) -> Turn {
    let operation = name_of(object, wish);
    let mut turn = Turn::default();
    let made = Write {
        why: wish.why.clone(),
        target: Target::new(Kind::Operation, "", &operation),
        change: Change::Create(operation_object(s, object, wish, &operation)),
        operation: None,
    };
    let there = mine.iter().any(|one| name(one) == operation);
    turn.stages.push(if there { Vec::new() } else { vec![made] });
    let mut new = object.status.clone().unwrap_or_default();
    let (phase, word) = match wish.action {
        Action::Terminate => (Phase::Terminating, "TearingDown"),
        Action::Create | Action::ScaleUp | Action::ScaleDown => (Phase::Prechecking, "Prechecking"),
    };
    new.phase = Some(phase);
    new.reason = None;
    new.step = None;
    new.operation = Some(operation.clone());
    new.job_name = None;
    new.last_transition_time = Some(at(s.now));
    new.observed_generation = object.metadata.generation;
    // Those of an earlier operation: the same step may fail again.
    new.conditions.retain(|condition| condition.type_ != STEP_FAILED);
    show::progressing(&mut new, word, &wish.why, s.now);
    turn.stages.push(status_write(object, &new, format!("{operation} has its turn")).into_iter().collect());
    turn.notices.push(object_notice(
        object,
        false,
        reason(wish.action),
        format!("{}: {operation}", wish.why),
    ));
    turn
}

fn reason(action: Action) -> &'static str {
    match action {
        Action::Create => "Creating",
        Action::ScaleUp => "ScalingUp",
        Action::ScaleDown => "ScalingDown",
        Action::Terminate => "Terminating",
    }
}

fn operation_object(
    s: &Snapshot<'_>,
    object: &KubernetesCluster,
    wish: &Wish,
    name: &str,
) -> serde_json::Value {
    let timeout = object.spec.cluster.timeout_mins.unwrap_or(TimeoutMins::DEFAULT).duration().as_secs();
    let hosts: Vec<String> = wish.hosts.iter().map(ToString::to_string).collect();
    let mut annotations = json!({
        labels::APPLIED_SPEC: json!(wish.spec).to_string(),
        WHY_ANNOTATION: wish.why,
        HOSTS_ANNOTATION: hosts.join(","),
    });
    for (key, text) in LENIENT.iter().filter_map(|key| Some((key, past::said(object, key)?))) {
        annotations[*key] = json!(text);
    }
    json!({
        "apiVersion": "kubeonkube.clay.io/v1alpha1",
        "kind": Kind::Operation.as_str(),
        "metadata": {
            "name": name,
            "labels": {
                names::CLUSTER_LABEL: names::label(object_name(object)),
                DERIVED_NAMESPACE_LABEL: namespace(object),
                DERIVED_UID_LABEL: object.metadata.uid,
            },
            "annotations": annotations,
        },
        "spec": {
            "cluster": object_name(object),
            "actionType": "kubeon",
            "action": wish.action.as_str(),
            "image": s.settings.runner_images.last().cloned().unwrap_or_default(),
            "activeDeadlineSeconds": timeout,
        },
    })
}

/// The words that an action ends with: after a success, after a failure. One that nobody knows ends as taking down does.
pub(super) fn words(action: Option<Action>) -> (Operation, Operation) {
    match action {
        Some(Action::Create) => (Operation::CreateFinished, Operation::CreateFailed),
        Some(Action::ScaleUp) => (Operation::ScaleUpFinished, Operation::ScaleUpFailed),
        Some(Action::ScaleDown) => (Operation::ScaleDownFinished, Operation::ScaleDownFailed),
        Some(Action::Terminate) | None => (Operation::TerminateFinished, Operation::TerminateFailed),
    }
}
