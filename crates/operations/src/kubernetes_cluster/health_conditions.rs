//! The health of a business cluster, as the operator observes it, in the conditions of the object.
//!
//! ```text
//!   no API server answers     Ready=False  APIUnreachable
//!   it refuses the observer   Ready=Unknown  ObserverRefused
//!   nodes are not ready       Degraded=True  NodesNotReady
//!   members of etcd are down  Degraded=True  EtcdMembersDown
//!   nodes of another version  Degraded=True  OtherVersions, unless an operation runs
//!   certificates are not renewed in time     CertificatesRenewed=False
//!   a certificate ends within 14 days        CertificatesExpiring=True
//!   files of masters were changed            Drifted=True
//!   not observed (yet)        both stay as they are
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kubeon_api::{KubernetesCluster, KubernetesClusterStatus};

use super::cluster_action::ClusterAction;
use super::object_access::{object_notice, status_write_as_given};
use crate::condition::{
    self, CERTIFICATES_EXPIRING, CERTIFICATES_RENEWED, ConditionText, DEGRADED, DONE, DRIFTED, MEMBERS_DOWN,
    NODES_NOT_READY, OBSERVED_DEFECTS, OTHER_VERSIONS, READY,
};
use crate::observed_health::{ObservedCertificates, ObservedDrift, ObservedHealth, ObservedVersions};
use crate::view::View;
use crate::write::{Notice, Write};

/// The reason of `Ready` when no API server of the cluster answers.
const API_UNREACHABLE: &str = "APIUnreachable";
/// The reason of `Ready` when the API server refuses the kubeconfig of the observer.
const OBSERVER_REFUSED: &str = "ObserverRefused";
/// The most names in a message.
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
        Some(ObservedHealth::Refused(why)) => {
            let message = format!("the operator cannot observe the cluster: {why}");
            restore(new, before, READY);
            let (text, generation) = ((OBSERVER_REFUSED, message.as_str()), new.observed_generation);
            condition::set_unknown(&mut new.conditions, READY, text, generation, now);
            keep(new, before, DEGRADED);
        }
        Some(ObservedHealth::Serving {
            nodes,
            not_ready,
            members_down,
            versions,
            certificates,
            drift,
            ..
        }) => {
            if observed(&new.conditions, READY).is_some() {
                let message = "the API server answers again";
                set(new, before, READY, ConditionText { status: true, reason: DONE, message }, now);
            }
            let defect = defect(*nodes, not_ready, members_down)
                .or_else(|| Some((OTHER_VERSIONS, unexpected_versions(versions, new)?)));
            show_degraded(defect, before, new, now);
            if let Some(certificates) = certificates {
                show_certificates(certificates, new, now);
            }
            if let Some(drift) = drift {
                show_drift(drift, new, now);
            }
        }
    }
}

/// What does not work: a reason and a message.
fn defect(nodes: usize, not_ready: &[String], members_down: &[String]) -> Option<(&'static str, String)> {
    let of_nodes = || format!("{} of {nodes} nodes are not ready: {}", not_ready.len(), few(not_ready));
    let of_members = || format!("members of etcd do not serve: {}", few(members_down));
    match (not_ready.is_empty(), members_down.is_empty()) {
        (true, true) => None,
        (false, true) => Some((NODES_NOT_READY, of_nodes())),
        (true, false) => Some((MEMBERS_DOWN, of_members())),
        (false, false) => Some((NODES_NOT_READY, format!("{}; {}", of_nodes(), of_members()))),
    }
}

/// Which nodes run another version than the cluster. An operation may be about to change the version.
fn unexpected_versions(found: &ObservedVersions, status: &KubernetesClusterStatus) -> Option<String> {
    let expected = status.version.filter(|_| status.operation.is_none())?.to_string();
    if !found.most.is_empty() && found.most != expected {
        return Some(format!("the nodes run {} instead of {expected}", found.most));
    }
    (!found.others.is_empty())
        .then(|| format!("nodes with another version than {expected}: {}", few(&found.others)))
}

fn show_degraded(
    defect: Option<(&'static str, String)>,
    before: &[Condition],
    new: &mut KubernetesClusterStatus,
    now: Timestamp,
) {
    let is_failed = condition::find_true(&new.conditions, DEGRADED).is_some()
        && observed(&new.conditions, DEGRADED).is_none();
    match defect {
        Some((reason, message)) if !is_failed => {
            set(new, before, DEGRADED, ConditionText { status: true, reason, message: &message }, now);
        }
        _ if observed(&new.conditions, DEGRADED).is_some() => {
            let message = "all nodes are ready, all members of etcd serve";
            set(new, before, DEGRADED, ConditionText { status: false, reason: "AsExpected", message }, now);
        }
        _ => {}
    }
}

fn show_certificates(certificates: &ObservedCertificates, new: &mut KubernetesClusterStatus, now: Timestamp) {
    let first_end = certificates.first_end.strftime("%Y-%m-%d %H:%M UTC");
    let (reason, message) = if certificates.overdue.is_empty() {
        ("AsExpected", format!("the first certificate ends on {first_end}"))
    } else {
        let overdue = few(&certificates.overdue);
        let text = format!(
            "not renewed in time: {overdue}; the first certificate ends on {first_end}; journalctl -u kubeon-renew on the host \
             has the cause"
        );
        ("Overdue", text)
    };
    let text = ConditionText { status: certificates.overdue.is_empty(), reason, message: &message };
    condition::set(&mut new.conditions, CERTIFICATES_RENEWED, text, new.observed_generation, now);
    let reason = if certificates.ends_soon { "EndsSoon" } else { "AsExpected" };
    let message = format!("the first certificate ends on {first_end}");
    let text = ConditionText { status: certificates.ends_soon, reason, message: &message };
    condition::set(&mut new.conditions, CERTIFICATES_EXPIRING, text, new.observed_generation, now);
}

fn show_drift(drift: &ObservedDrift, new: &mut KubernetesClusterStatus, now: Timestamp) {
    let (reason, message) = if drift.count == 0 {
        ("AsExpected", "the masters are as the operations left them".to_owned())
    } else {
        let more = drift.count.saturating_sub(drift.named.len() as u64);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let text = format!(
            "masters differ from what operations wrote: {}{more}; operation {} restores it",
            drift.named.join("; "),
            ClusterAction::Repair.as_str()
        );
        ("ChangedOnHosts", text)
    };
    let text = ConditionText { status: drift.count > 0, reason, message: &message };
    condition::set(&mut new.conditions, DRIFTED, text, new.observed_generation, now);
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
    restore(new, before, type_);
    condition::set(&mut new.conditions, type_, text, new.observed_generation, now);
}

/// Puts back what was written before, if anything.
fn restore(new: &mut KubernetesClusterStatus, before: &[Condition], type_: &str) {
    if let Some(written) = condition::find(before, type_) {
        condition::put(&mut new.conditions, written.clone());
    }
}

/// Since when the health says that something does not work.
pub(super) fn broken_since(conditions: &[Condition]) -> Option<Timestamp> {
    let broken = [(READY, "False"), (DEGRADED, "True")]
        .into_iter()
        .filter_map(|(type_, status)| observed(conditions, type_).filter(|found| found.status == status));
    broken.map(|condition| condition.last_transition_time.0).min()
}

/// Since when the API server refuses the kubeconfig of the observer.
pub(super) fn refused_since(conditions: &[Condition]) -> Option<Timestamp> {
    let refused = condition::find(conditions, READY).filter(|ready| ready.reason == OBSERVER_REFUSED)?;
    Some(refused.last_transition_time.0)
}

/// The reason of a condition, if it is one of those that the health sets.
fn observed_reason(condition: &Condition) -> Option<&'static str> {
    let of_ready = [API_UNREACHABLE, OBSERVER_REFUSED];
    OBSERVED_DEFECTS.into_iter().chain(of_ready).find(|reason| *reason == condition.reason)
}

/// The condition of this type, if the health decided it.
fn observed<'c>(conditions: &'c [Condition], type_: &str) -> Option<&'c Condition> {
    condition::find(conditions, type_).filter(|found| observed_reason(found).is_some())
}

/// The first few names.
fn few(names: &[String]) -> String {
    let named = names.iter().take(MOST_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// The events about a change of the health between two statuses.
fn notices(object: &KubernetesCluster, before: &[Condition], new: &[Condition]) -> Vec<Notice> {
    let change = |type_: &str, ended: &'static str| {
        let (was, is) = (observed(before, type_), observed(new, type_));
        match (was, is) {
            (None, Some(is)) => Some(object_notice(object, true, observed_reason(is)?, is.message.clone())),
            (Some(_), None) => {
                let message = condition::find(new, type_).map_or("", |found| found.message.as_str());
                Some(object_notice(object, false, ended, message))
            }
            _ => None,
        }
    };
    let drift =
        condition::find_true(new, DRIFTED).filter(|_| condition::find_true(before, DRIFTED).is_none());
    let drift = drift.map(|is| object_notice(object, true, DRIFTED, is.message.clone()));
    [change(READY, "APIAnswers"), change(DEGRADED, "Recovered"), drift].into_iter().flatten().collect()
}
