//! The health of a business cluster, as the operator observes it, in the conditions of the object.
//!
//! ```text
//!   no API server answers     Ready=False  APIUnreachable
//!   nodes are not ready       Degraded=True  NodesNotReady
//!   not observed (yet)        both stay as they are
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kubeon_api::{KubernetesCluster, KubernetesClusterStatus};

use super::object_access::{object_notice, status_write_as_given};
use crate::condition::{self, ConditionText, DEGRADED, DONE, NODES_NOT_READY, READY};
use crate::observed_health::ObservedHealth;
use crate::view::View;
use crate::write::{Notice, Write};

/// The reason of `Ready` when no API server of the cluster answers.
const API_UNREACHABLE: &str = "APIUnreachable";
/// The most nodes that a message names.
const MOST_NAMED: usize = 5;

/// The change of the object's status to `new` with the observed health and the conditions of kstatus; `None` when it is equal.
pub(super) fn status_write(
    s: &View<'_>,
    object: &KubernetesCluster,
    mut new: KubernetesClusterStatus,
    why: impl Into<String>,
) -> Option<Write> {
    show_health(s, object, &mut new);
    status_write_as_given(object, new, s.now, why)
}

/// Shows the observed health. The events about it are returned.
pub(super) fn show_health(
    s: &View<'_>,
    object: &KubernetesCluster,
    new: &mut KubernetesClusterStatus,
) -> Vec<Notice> {
    if object.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let before = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    show(s.health.as_ref(), before, new, s.now);
    notices(object, before, &new.conditions)
}

/// Sets the conditions that the health decides. A failure of the last operation stays visible.
fn show(
    health: Option<&ObservedHealth>,
    before: &[Condition],
    new: &mut KubernetesClusterStatus,
    now: Timestamp,
) {
    match health {
        None => {
            keep(new, before, READY);
            keep(new, before, DEGRADED);
        }
        Some(ObservedHealth::Unreachable(why)) => {
            let message = format!("no API server of the cluster answers: {why}");
            let text = ConditionText { status: false, reason: API_UNREACHABLE, message: &message };
            set(new, before, READY, text, now);
            keep(new, before, DEGRADED);
        }
        Some(ObservedHealth::Serving { nodes, not_ready }) => {
            if observed(&new.conditions, READY).is_some() {
                let message = "the API server answers again";
                set(new, before, READY, ConditionText { status: true, reason: DONE, message }, now);
            }
            show_nodes(*nodes, not_ready, before, new, now);
        }
    }
}

fn show_nodes(
    nodes: usize,
    not_ready: &[String],
    before: &[Condition],
    new: &mut KubernetesClusterStatus,
    now: Timestamp,
) {
    let is_failed = condition::find_true(&new.conditions, DEGRADED)
        .is_some_and(|degraded| degraded.reason != NODES_NOT_READY);
    if !not_ready.is_empty() && !is_failed {
        let message = not_ready_text(nodes, not_ready);
        let text = ConditionText { status: true, reason: NODES_NOT_READY, message: &message };
        set(new, before, DEGRADED, text, now);
    } else if observed(&new.conditions, DEGRADED).is_some() {
        let text = ConditionText { status: false, reason: "AsExpected", message: "all nodes are ready" };
        set(new, before, DEGRADED, text, now);
    }
}

/// Keeps a condition that the health decided.
fn keep(new: &mut KubernetesClusterStatus, before: &[Condition], type_: &str) {
    if let Some(written) = observed(before, type_) {
        condition::put(&mut new.conditions, written.clone());
    }
}

/// Sets a condition. Its transition time depends on what was written before, not on earlier changes of this decision.
fn set(
    new: &mut KubernetesClusterStatus,
    before: &[Condition],
    type_: &str,
    text: ConditionText<'_>,
    now: Timestamp,
) {
    if let Some(written) = condition::find(before, type_) {
        condition::put(&mut new.conditions, written.clone());
    }
    condition::set(&mut new.conditions, type_, text, new.observed_generation, now);
}

/// The condition of this type, if the health decided it.
fn observed<'c>(conditions: &'c [Condition], type_: &str) -> Option<&'c Condition> {
    let reasons = [API_UNREACHABLE, NODES_NOT_READY];
    condition::find(conditions, type_).filter(|found| reasons.contains(&found.reason.as_str()))
}

fn not_ready_text(nodes: usize, not_ready: &[String]) -> String {
    let named = not_ready.iter().take(MOST_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match not_ready.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{} of {nodes} nodes are not ready: {named}{more}", not_ready.len())
}

/// The events about a change of the health between two statuses.
fn notices(object: &KubernetesCluster, before: &[Condition], new: &[Condition]) -> Vec<Notice> {
    let change = |type_: &str, ended: &'static str| {
        let (was, is) = (observed(before, type_), observed(new, type_));
        match (was, is) {
            (None, Some(is)) => {
                let reason = if type_ == READY { API_UNREACHABLE } else { NODES_NOT_READY };
                Some(object_notice(object, true, reason, is.message.clone()))
            }
            (Some(_), None) => {
                let message = condition::find(new, type_).map_or("", |found| found.message.as_str());
                Some(object_notice(object, false, ended, message))
            }
            _ => None,
        }
    };
    [change(READY, "APIAnswers"), change(DEGRADED, "NodesReady")].into_iter().flatten().collect()
}
