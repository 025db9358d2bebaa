//! Operations that an up-to-date cluster gets without a request: renewals, and repairs if its policy wants them.

use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubeon_api::kubernetes_cluster::RepairPolicy;
use kubeon_api::{ClusterOperation, KubernetesCluster, Version};

use super::cluster_action::ClusterAction;
use super::health_conditions;
use super::next_action::{self, NextAction};
use super::object_access::{namespace, object_name};
use crate::condition::{self, CERTIFICATES_RENEWED};
use crate::names;
use crate::observed_health::ObservedHealth;
use crate::view::View;
use crate::write::{ObjectKind, ObjectRef};

/// The time between two operations of a kind that nobody requested.
const PAUSE: SignedDuration = SignedDuration::from_hours(1);
/// How long something does not work before it is repaired: hosts restart.
const BROKEN_FOR: SignedDuration = SignedDuration::from_mins(5);

/// Replaces doing nothing by what is due, and says when something will be due.
pub(super) fn with_due(
    s: &View<'_>,
    object: &KubernetesCluster,
    mine: &[Arc<ClusterOperation>],
    wanted: NextAction,
) -> (NextAction, Option<Timestamp>) {
    if wanted != NextAction::Declared {
        return (wanted, None);
    }
    let (action, why, due) = match (renewal_reason(s, object, mine), broken_since(s, object)) {
        (Some(why), _) => (ClusterAction::Renew, why, s.now),
        (None, Some(since)) => {
            let due = since.saturating_add(BROKEN_FOR).unwrap_or(since);
            (ClusterAction::Repair, "the cluster is degraded and its policy is to repair it", due)
        }
        (None, None) => return (wanted, None),
    };
    let due = earliest(mine, action).map_or(due, |earliest| earliest.max(due));
    if due > s.now {
        return (wanted, Some(due));
    }
    (next_action::by_itself(object, action, why).unwrap_or(wanted), None)
}

/// Why certificates or kubeconfigs are renewed: hosts renew the former, and nobody else the latter.
fn renewal_reason(
    s: &View<'_>,
    object: &KubernetesCluster,
    mine: &[Arc<ClusterOperation>],
) -> Option<&'static str> {
    lost_kubeconfig(s, object)
        .or_else(|| refused_kubeconfig(s, object, mine))
        .or_else(|| due_renewal(s.health.as_ref()))
}

/// Why the cluster needs another kubeconfig of the observer. A renewal that ended and did not help is not repeated: the cause is
/// one that a person must find, such as a role that somebody removed.
fn refused_kubeconfig(
    s: &View<'_>,
    object: &KubernetesCluster,
    mine: &[Arc<ClusterOperation>],
) -> Option<&'static str> {
    let Some(ObservedHealth::Refused(_)) = &s.health else { return None };
    let state = names::state(namespace(object), object_name(object));
    s.objects.meta(&ObjectRef::new(ObjectKind::Secret, namespace(object), state))?;
    let since = health_conditions::refused_since(&object.status.as_ref()?.conditions);
    let did_not_help = since.is_some() && last_end(mine, ClusterAction::Renew) > since;
    (!did_not_help).then_some("the cluster refuses the kubeconfig of the observer")
}

/// Why a Secret must be written again that a user or the operator needs. Without the Secret with the state no runner can do
/// it. While Secrets of a backup appear one after another, the cluster has not been observed yet.
fn lost_kubeconfig(s: &View<'_>, object: &KubernetesCluster) -> Option<&'static str> {
    let (namespace, name) = (namespace(object), object_name(object));
    let meta_of = |secret: String| s.objects.meta(&ObjectRef::new(ObjectKind::Secret, namespace, secret));
    meta_of(names::state(namespace, name))?;
    let status = object.status.as_ref()?;
    let was_observed = condition::find(&status.conditions, CERTIFICATES_RENEWED).is_some();
    if was_observed && meta_of(names::observer(namespace, name)).is_none() {
        return Some("the Secret with the kubeconfig of the observer was deleted");
    }
    let Some(ObservedHealth::Serving { .. }) = &s.health else { return None };
    match meta_of(names::kubeconfig(namespace, name)) {
        None => Some("the Secret with the kubeconfig was deleted"),
        Some(known) if known.edited => Some("somebody changed the Secret with the kubeconfig"),
        Some(_) => None,
    }
}

fn due_renewal(health: Option<&ObservedHealth>) -> Option<&'static str> {
    let Some(ObservedHealth::Serving { renewal_due, certificates, .. }) = health else { return None };
    let overdue = certificates.as_ref().is_some_and(|certificates| !certificates.overdue.is_empty());
    match (renewal_due, overdue) {
        (true, _) => Some("the kubeconfigs are past two thirds of their life"),
        (false, true) => Some("the hosts did not renew their certificates in time"),
        (false, false) => None,
    }
}

/// Since when something does not work that the policy wants repaired. A cluster whose nodes are newer than its declaration is not
/// repaired: the engine refuses the older version, and the failure would hide which version a person must declare.
fn broken_since(s: &View<'_>, object: &KubernetesCluster) -> Option<Timestamp> {
    let repairs = object.spec.repair == Some(RepairPolicy::Automatic) && s.health.is_some();
    let status = object.status.as_ref().filter(|_| repairs)?;
    let newer = node_version(s.health.as_ref()).zip(status.version).is_some_and(|(nodes, own)| nodes > own);
    health_conditions::broken_since(&status.conditions).filter(|_| !newer)
}

/// The version of most nodes.
fn node_version(health: Option<&ObservedHealth>) -> Option<Version> {
    let Some(ObservedHealth::Serving { versions, .. }) = health else { return None };
    versions.most.parse().ok()
}

/// The end of the pause after the last operation of this kind.
fn earliest(mine: &[Arc<ClusterOperation>], action: ClusterAction) -> Option<Timestamp> {
    last_end(mine, action)?.checked_add(PAUSE).ok()
}

/// When the last operation of this kind ended.
fn last_end(mine: &[Arc<ClusterOperation>], action: ClusterAction) -> Option<Timestamp> {
    let of_kind = mine.iter().filter(|operation| ClusterAction::of(operation) == Some(action));
    of_kind.filter_map(|operation| Some(operation.status.as_ref()?.end_time.as_ref()?.0)).max()
}
