//! A lane of a `KubernetesCluster`: what it asks for becomes one derived operation after the other.
//!
//! ```text
//!   spec ─┐
//!         ├─ want ──► finalizer ──► operation ──► claim in status.operation ──► Job ──► annotation ──► phase
//!   last applied spec, annotation                                                         (what was applied)
//! ```

mod action;
mod applied;
mod callback;
mod derive;
mod inventory;
mod job;
pub(crate) mod past;
mod settle;
mod show;
mod standing;
mod want;

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kubeon_api::{ClusterOperation, KubernetesCluster, Version, labels};
use serde_json::{Value, json};

use crate::names::{self, DERIVED_UID_LABEL};
use crate::operation::finish::{End, finish};
use crate::operation::wait::{Wait, refusal};
use crate::operation::{Progress, archive, guarded, name, running, target, uid, wait};
use crate::order;
use crate::snapshot::{Data, Seen, Snapshot, Subject};
use crate::write::{Change, Kind, Notice, Plan, Target, Turn, Write};

pub(crate) use action::Action;
pub use applied::without_secrets;
pub(crate) use past::told;
pub use want::{Want, want};

/// What is to be done for a `KubernetesCluster` and its operations.
pub(crate) fn turn(s: &Snapshot<'_>) -> Plan {
    let Subject::Business(seen) = &s.subject else { return Plan::Do(Turn::default()) };
    let mut operations = s.operations.clone();
    order::queue(&mut operations);
    let object = match seen {
        Seen::Is(object) => object.as_ref(),
        Seen::Unreadable(_) => return carry_on(s, &operations),
        Seen::Absent => return orphans(s, &operations),
    };
    let belongs = |operation: &Arc<ClusterOperation>| {
        operation.metadata.labels.as_ref().and_then(|labels| labels.get(DERIVED_UID_LABEL))
            == object.metadata.uid.as_ref()
    };
    let (mine, others): (Vec<_>, Vec<_>) = operations.into_iter().partition(belongs);
    if let Some(plan) = archive::before_all_else(s, &mine) {
        return plan;
    }
    let mut turn = match orphans(s, &others) {
        Plan::Read(targets) => return Plan::Read(targets),
        Plan::Do(turn) => turn,
    };
    if !turn.is_done() || others.iter().any(|other| !order::ended(other)) {
        return Plan::Do(turn);
    }
    match step(s, object, &mine) {
        Plan::Read(targets) => return Plan::Read(targets),
        Plan::Do(step) => turn.beside(step),
    }
    turn.beside(archive::prune(s, &mine));
    if turn.is_done()
        && let Some(plan) = archive::logs(s, &mine)
    {
        return plan;
    }
    turn.stages.retain(|stage| !stage.is_empty());
    Plan::Do(turn)
}

/// The one thing that is next: go on with what works, settle what ended, or begin what is wanted.
fn step(s: &Snapshot<'_>, object: &KubernetesCluster, mine: &[Arc<ClusterOperation>]) -> Plan {
    let done: Vec<Write> = mine
        .iter()
        .filter(|one| order::ended(one))
        .filter_map(|one| crate::operation::start::meta(one, None, true))
        .collect();
    let mut turn = Turn { stages: vec![done], ..Turn::default() };
    let claimed = object.status.as_ref().and_then(|status| status.operation.as_deref());
    let plan = match claimed.map(|claimed| (claimed, mine.iter().find(|one| name(one) == claimed))) {
        Some((_, Some(operation))) if order::ended(operation) => {
            Plan::Do(settle::settle(s, object, operation))
        }
        Some((_, Some(operation))) => go_on(s, object, operation),
        Some((claimed, None)) => settle::lost(s, object, claimed),
        None => begin(s, object, mine),
    };
    match plan {
        Plan::Read(targets) => Plan::Read(targets),
        Plan::Do(next) => {
            turn.beside(next);
            Plan::Do(turn)
        }
    }
}

fn go_on(s: &Snapshot<'_>, object: &KubernetesCluster, operation: &ClusterOperation) -> Plan {
    let deleting = object.metadata.deletion_timestamp.is_some();
    let leaving = deleting && Action::of(operation) != Some(Action::Terminate);
    let ordered = leaving.then(|| ("Deleted", "the KubernetesCluster is being deleted".to_owned()));
    let progress = match running::job_of(s, operation) {
        Some(at) => running::turn(s, operation, &at, ordered),
        None => match ordered.or_else(|| refusal(operation)) {
            Some((word, text)) => finish(s, operation, End::failed(word, text)),
            None => not_started(s, object, operation),
        },
    };
    if !progress.reads.is_empty() {
        return Plan::Read(progress.reads);
    }
    let mut turn = progress.turn;
    turn.beside(show::works(s, object, operation));
    Plan::Do(turn)
}

fn not_started(s: &Snapshot<'_>, object: &KubernetesCluster, operation: &ClusterOperation) -> Progress {
    if let Some(text) = crate::cluster::left_over(s) {
        return wait::waits(s, operation, &Wait::Until(text));
    }
    let whose = match (object.spec.paused, operation.spec.paused) {
        (true, _) => Some("KubernetesCluster"),
        (false, true) => Some("operation"),
        (false, false) => None,
    };
    if let Some(whose) = whose {
        return wait::waits(
            s,
            operation,
            &Wait::Until(format!("paused: spec.paused of the {whose} is true")),
        );
    }
    job::start(s, object, operation)
}

/// Begins what is wanted: the finalizer before the first effect, then the operation, then its claim.
fn begin(s: &Snapshot<'_>, object: &KubernetesCluster, mine: &[Arc<ClusterOperation>]) -> Plan {
    let wanted = match untouched(s, object, mine, want(s.settings, object, mine)) {
        Ok(wanted) => wanted,
        Err(targets) => return Plan::Read(targets),
    };
    if let Some(plan) = superseded(s, mine, &wanted, object) {
        return plan;
    }
    Plan::Do(match &wanted {
        Want::Operation(wish) if needs_finalizer(object) => finalizer(object, wish.action),
        Want::Operation(wish) => derive::begin(s, object, wish, mine),
        Want::Release(why) => settle::release(s, object, why),
        Want::Answer(word) => settle::answer(object, word),
        Want::Nothing | Want::Declared | Want::Held { .. } | Want::Refused(_) => {
            show::stands(s, object, &wanted)
        }
    })
}

/// A cluster of which nothing was ever saved has nothing on its hosts: a runner saves before its first effect. It needs
/// no Job to be taken down. `Err` is what must be read to know.
fn untouched(
    s: &Snapshot<'_>,
    object: &KubernetesCluster,
    mine: &[Arc<ClusterOperation>],
    wanted: Want,
) -> Result<Want, Vec<Target>> {
    let leaves = matches!(&wanted, Want::Operation(wish) if wish.action == Action::Terminate);
    // What was applied once stands, whoever took its state away; a runner that still works may be about to save.
    if !leaves || !matches!(applied::applied(object), Ok(None)) || crate::cluster::left_over(s).is_some() {
        return Ok(wanted);
    }
    let state = names::state(namespace(object), object_name(object));
    let state = Target::new(Kind::Secret, namespace(object), state);
    let begun = begun(object, mine);
    let saved = match (s.objects.meta(&state), s.data.get(&state)) {
        (None, _) if !begun => false,
        (_, None) => return Err(vec![state]),
        (_, Some(Data::Values { values, .. })) => {
            values.get(names::STATE_KEY).is_some_and(|state| !state.is_empty())
        }
        // It is there before the first Job: somebody took it away, and with it what was on which host.
        (_, Some(Data::Absent)) if begun => {
            return Ok(Want::Held { word: "StateMissing", text: state_gone(object, &state) });
        }
        (_, Some(Data::Absent)) => false,
        (_, Some(_)) => true,
    };
    Ok(if saved {
        wanted
    } else {
        Want::Release("nothing was ever written to its hosts: there is nothing to take down")
    })
}

/// Whether a Job was ever made for it.
fn begun(object: &KubernetesCluster, mine: &[Arc<ClusterOperation>]) -> bool {
    let has_job = |one: &Arc<ClusterOperation>| one.status.as_ref().is_some_and(|it| it.job_ref.is_some());
    object.status.as_ref().is_some_and(|status| status.job_name.is_some()) || mine.iter().any(has_job)
}

/// What to do when nothing tells any more what was put on which host.
fn state_gone(object: &KubernetesCluster, state: &Target) -> String {
    format!(
        "Secret {0}/{1} is gone, in which stands what was put on which host, and a Job has worked: put it back with label \
         {2}={3}, or leave the hosts as they are: kubectl -n {0} patch ecs {4} --type merge -p \
         '{{\"spec\":{{\"deletionPolicy\":\"Retain\"}}}}'",
        state.namespace,
        state.name,
        labels::CLUSTER,
        crate::keep::cluster(namespace(object), object_name(object)),
        object_name(object)
    )
}

/// Operations that nobody claims and that are not what is wanted now: while there is one, nothing else begins.
fn superseded(
    s: &Snapshot<'_>,
    mine: &[Arc<ClusterOperation>],
    wanted: &Want,
    object: &KubernetesCluster,
) -> Option<Plan> {
    let keep = match wanted {
        Want::Operation(wish) => Some(derive::name_of(object, wish)),
        _ => None,
    };
    let unwanted = |one: &&Arc<ClusterOperation>| !order::ended(one) && Some(name(one)) != keep.as_deref();
    let mut turn = None;
    for operation in mine.iter().filter(unwanted) {
        let stop = ("Superseded", "another change was asked for before it began".to_owned());
        let progress = match running::job_of(s, operation) {
            Some(at) => running::turn(s, operation, &at, Some(stop)),
            None => finish(s, operation, End::failed(stop.0, stop.1)),
        };
        if !progress.reads.is_empty() {
            return Some(Plan::Read(progress.reads));
        }
        turn.get_or_insert_with(Turn::default).beside(progress.turn);
    }
    turn.map(Plan::Do)
}

/// Operations whose `KubernetesCluster` is gone: what works is ended, what ended is removed.
fn orphans(s: &Snapshot<'_>, operations: &[Arc<ClusterOperation>]) -> Plan {
    let mut turn = Turn::default();
    for operation in operations {
        if order::ended(operation) {
            if operation.metadata.deletion_timestamp.is_none() {
                turn.beside(Turn::of(Write {
                    why: "its KubernetesCluster is gone".to_owned(),
                    target: target(operation),
                    change: Change::Delete { uid: uid(operation).to_owned() },
                    operation: None,
                }));
            }
            continue;
        }
        let stop = ("Deleted", "its KubernetesCluster is gone".to_owned());
        let progress = match running::job_of(s, operation) {
            Some(at) => running::turn(s, operation, &at, Some(stop)),
            None => finish(s, operation, End::failed(stop.0, stop.1)),
        };
        if !progress.reads.is_empty() {
            return Plan::Read(progress.reads);
        }
        turn.beside(progress.turn);
    }
    turn.stages.retain(|stage| !stage.is_empty());
    Plan::Do(turn)
}

/// The status of a `KubernetesCluster` of which the API server refuses what is to be done next. A `Cluster` has no place for
/// it: what its status says is about references.
#[must_use]
pub fn refused(subject: &Subject, text: &str, now: Timestamp) -> Option<Write> {
    let Subject::Business(Seen::Is(object)) = subject else { return None };
    show::refused(object, text, now)
}

/// While the object cannot be read, what works goes on and nothing begins.
fn carry_on(s: &Snapshot<'_>, operations: &[Arc<ClusterOperation>]) -> Plan {
    let mut turn = Turn::default();
    for operation in operations.iter().filter(|operation| !order::ended(operation)) {
        if let Some(at) = running::job_of(s, operation) {
            let progress = running::turn(s, operation, &at, None);
            if !progress.reads.is_empty() {
                return Plan::Read(progress.reads);
            }
            turn.beside(progress.turn);
        }
    }
    turn.stages.retain(|stage| !stage.is_empty());
    Plan::Do(turn)
}

/// What outlives the Jobs of a cluster: the engine's state, the admin kubeconfig, the SSH keys of its hosts.
#[must_use]
pub fn kept(namespace: &str, name: &str) -> [Target; 3] {
    [
        Target::new(Kind::Secret, namespace, names::state(namespace, name)),
        Target::new(Kind::Secret, namespace, names::kubeconfig(namespace, name)),
        Target::new(Kind::ConfigMap, namespace, names::known_hosts(namespace, name)),
    ]
}

pub(crate) fn object_target(object: &KubernetesCluster) -> Target {
    Target::new(Kind::Business, namespace(object), object_name(object))
}

pub(crate) fn namespace(object: &KubernetesCluster) -> &str {
    object.metadata.namespace.as_deref().unwrap_or_default()
}

pub(crate) fn object_name(object: &KubernetesCluster) -> &str {
    object.metadata.name.as_deref().unwrap_or_default()
}

pub(crate) fn our_finalizer(object: &KubernetesCluster) -> String {
    format!("{}{}", labels::FINALIZER_PREFIX, object_name(object))
}

/// The version that the masters run, where it was seen.
fn runs(object: &KubernetesCluster) -> Option<Version> {
    object.status.as_ref()?.version
}

fn has_finalizer(object: &KubernetesCluster) -> bool {
    let ours = our_finalizer(object);
    object.metadata.finalizers.iter().flatten().any(|one| *one == ours)
}

fn needs_finalizer(object: &KubernetesCluster) -> bool {
    !has_finalizer(object) && object.metadata.deletion_timestamp.is_none()
}

fn finalizer(object: &KubernetesCluster, action: Action) -> Turn {
    let mut all = object.metadata.finalizers.clone().unwrap_or_default();
    all.push(our_finalizer(object));
    let metadata = json!({"finalizers": all, "resourceVersion": object.metadata.resource_version});
    let mut turn = Turn::of(object_write(
        object,
        format!("before {} touches a host", action.as_str()),
        Change::Merge(json!({"metadata": metadata})),
    ));
    turn.notices.push(object_notice(
        object,
        false,
        "SetFinalizersSuccess",
        "deleting it will take the cluster down first",
    ));
    turn
}

pub(crate) fn object_write(object: &KubernetesCluster, why: impl Into<String>, change: Change) -> Write {
    Write { why: why.into(), target: object_target(object), change, operation: None }
}

pub(crate) fn object_notice(
    object: &KubernetesCluster,
    warning: bool,
    reason: &'static str,
    text: impl Into<String>,
) -> Notice {
    let uid = object.metadata.uid.clone().unwrap_or_default();
    let about = object_target(object);
    Notice { with: about.clone(), about, uid, warning, reason, text: text.into() }
}

/// The change of the object's status to `new`; nothing when it is that already.
pub(crate) fn status_write(
    object: &KubernetesCluster,
    new: &kubeon_api::KubernetesClusterStatus,
    why: impl Into<String>,
) -> Option<Write> {
    let before: Value = json!(object.status.clone().unwrap_or_default());
    let patch = guarded(object.metadata.resource_version.as_deref(), &before, &json!(new))?;
    Some(object_write(object, why, Change::Status(patch)))
}
