//! Decisions for a `Cluster`: its operations one after the other, its history, the objects that it owns.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use kubeon_api::kubeonkube::{ClusterCondition, RecordedResult};
use kubeon_api::{Cluster, ClusterOperation, DataRef};

use crate::cluster_object::notice;
use crate::object::StatusPatch;
use crate::operation::finish::{End, finish};
use crate::operation::wait::Wait;
use crate::operation::{
    OperationChanges, archive, credentials, name, running, shown, start, status, suspended_jobs, target, wait,
};
use crate::view::{ClusterObject, Data, Observed, View};
use crate::write::{Change, ClusterChanges, NeedsReads, Notice, ObjectKind, ObjectRef, Write};
use crate::{QueueKey, job_state, names, order, removed_operations};

/// The longest list of conditions in a status.
const MOST_SHOWN: usize = 256;

/// The next reads or writes for a Cluster and its operations.
pub(crate) fn decide(s: &View<'_>) -> Result<ClusterChanges, NeedsReads> {
    let ClusterObject::Cluster(observed) = &s.subject else { return Ok(ClusterChanges::default()) };
    let cluster = observed.object().map(AsRef::as_ref);
    let mut operations = s.operations.clone();
    order::queue(&mut operations);
    if let Some(changes) = archive::urgent_logs(s, &operations)? {
        return Ok(changes);
    }
    let mut changes = ClusterChanges::default();
    let mut view = BTreeMap::new();
    let mut written_with = 0;
    let mut starts = None;
    let open = operations.iter().filter(|operation| !order::ended(operation)).cloned();
    let (repeated, open): (Vec<_>, Vec<_>) =
        open.partition(|operation| earlier_end(cluster, operation).is_some());
    let mut progress: Vec<_> = repeated
        .iter()
        .filter_map(|operation| Some((operation, finish(s, operation, earlier_end(cluster, operation)?))))
        .collect();
    progress.extend(in_order(s, &open, observed)?);
    let mut claims = false;
    for (operation, progress) in progress {
        if progress.claims {
            claims = true;
            starts = Some(target(operation));
        }
        if let Some((stage, condition)) = progress.shown {
            written_with = written_with.max(stage);
            view.insert(name(operation).to_owned(), condition);
        }
        changes.merge(progress.changes);
    }
    if claims {
        written_with = 0;
    }
    labels(&operations, cluster, starts, &mut changes);
    if let Some(cluster) = cluster.filter(|cluster| cluster.metadata.deletion_timestamp.is_none()) {
        changes.merge(disowned(s, cluster));
        if let Some((write, notice)) = history(s, cluster, &operations, &view, written_with == 0) {
            let notices = notice.into_iter().collect();
            changes.merge(ClusterChanges { stages: staged(written_with, write), notices, wake: None });
        }
    }
    changes.merge(credentials::delete_copies(s, &operations));
    changes.merge(archive::prune(s, &operations, |operation| {
        removed_operations::is_recorded(cluster, operation)
    }));
    changes.merge(archive::prune_logs(s, &operations));
    if changes.is_done() {
        if let Some(changes) = archive::logs(s, &operations)? {
            return Ok(changes);
        }
        changes.merge(suspended_jobs::delete(s));
    }
    changes.stages.retain(|stage| !stage.is_empty());
    Ok(changes)
}

/// How the operation ended before it was created again; `None` if it is new.
fn earlier_end(cluster: Option<&Cluster>, operation: &ClusterOperation) -> Option<End> {
    let removed = removed_operations::repeated(cluster, operation).map(End::repeated);
    removed.or_else(|| removed_operations::has_lost_status(operation).then(End::without_status))
}

/// One write in the stage with this number.
fn staged(stage: usize, write: Write) -> Vec<Vec<Write>> {
    let mut stages = vec![Vec::new(); stage];
    stages.push(vec![write]);
    stages
}

/// The operation that runs or starts, those before it, whose inputs are missing, and those that wait for it.
fn in_order<'o>(
    s: &View<'_>,
    open: &'o [Arc<ClusterOperation>],
    cluster: &Observed<Arc<Cluster>>,
) -> Result<Vec<(&'o Arc<ClusterOperation>, OperationChanges)>, NeedsReads> {
    let runs = open.iter().position(|operation| running::job_of(s, operation).is_some());
    let mut progress = Vec::new();
    let mut head = None;
    for operation in open.iter().skip(runs.unwrap_or_default()) {
        let of_first = first(s, operation, cluster)?;
        let is_overtaken = of_first.is_overtaken;
        progress.push((operation, of_first));
        head = Some(operation);
        if runs.is_some() || !is_overtaken {
            break;
        }
    }
    let Some(head) = head else { return Ok(progress) };
    let decided: Vec<_> = progress.iter().map(|(operation, _)| Arc::as_ptr(operation)).collect();
    let rest = open.iter().filter(|operation| !decided.contains(&Arc::as_ptr(operation)));
    progress.extend(rest.map(|operation| (operation, wait::queued(s, operation, head))));
    Ok(progress)
}

fn first(
    s: &View<'_>,
    head: &Arc<ClusterOperation>,
    cluster: &Observed<Arc<Cluster>>,
) -> Result<OperationChanges, NeedsReads> {
    if let Some(at) = running::job_of(s, head) {
        return running::decide(s, head, &at, None);
    }
    if let Some(pod) = remaining_work(s) {
        return Ok(wait::report_wait(s, head, &Wait::Until(pod)));
    }
    if let Some(cluster) = cluster.object()
        && let Some(progress) = claimed_elsewhere(s, head, cluster)?
    {
        return Ok(progress);
    }
    start::decide(s, head, cluster)
}

/// Waits when another operator has claimed the Cluster for an operation that this operator has not observed
/// yet.
fn claimed_elsewhere(
    s: &View<'_>,
    head: &ClusterOperation,
    cluster: &Cluster,
) -> Result<Option<OperationChanges>, NeedsReads> {
    let claimed = cluster.status.iter().flat_map(|status| &status.conditions);
    let unknown = claimed.filter(|entry| {
        entry.status == RecordedResult::Running
            && !s.operations.iter().any(|known| name(known) == entry.cluster_ops)
    });
    for entry in unknown {
        let target = ObjectRef::new(ObjectKind::Operation, "", &entry.cluster_ops);
        if *s.data_of(&target)? != Data::Absent {
            return Ok(Some(wait::report_wait(s, head, &Wait::Operation(entry.cluster_ops.clone()))));
        }
    }
    Ok(None)
}

/// A pod or Job of an operation that ended or was deleted. No other operation starts until it ends.
pub(crate) fn remaining_work(s: &View<'_>) -> Option<String> {
    let open = |uid: &str| {
        s.operations
            .iter()
            .any(|operation| operation.metadata.uid.as_deref() == Some(uid) && !order::ended(operation))
    };
    let label = |labels: &Option<BTreeMap<String, String>>| {
        labels.as_ref().and_then(|labels| labels.get(names::OPERATION_LABEL)).cloned().unwrap_or_default()
    };
    let pod = s.pods.iter().find(|pod| job_state::is_running(pod) && !open(&label(&pod.metadata.labels)));
    if let Some(pod) = pod {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        return Some(format!("waits until pod {name} of an earlier operation has ended"));
    }
    let job = abandoned_jobs(s).find(|job| job_state::job_state(job) == job_state::JobState::Running)?;
    let name = job.metadata.name.as_deref().unwrap_or_default();
    Some(format!("waits until Job {name} of a deleted operation has ended"))
}

/// Jobs whose operation was deleted.
pub(crate) fn abandoned_jobs<'s>(s: &'s View<'_>) -> impl Iterator<Item = &'s Job> {
    let is_abandoned =
        move |job: &&Job| !s.operations.iter().any(|operation| job_state::has_uid_label_of(job, operation));
    s.jobs.iter().map(AsRef::as_ref).filter(is_abandoned)
}

/// Labels and owners of operations. When the status of an operation is written in this reconcile, its labels
/// follow in the next one, because only one of two writes of the same version succeeds. An operation that
/// starts gets its labels after its Job was created.
fn labels(
    operations: &[Arc<ClusterOperation>],
    cluster: Option<&Cluster>,
    starts: Option<ObjectRef>,
    changes: &mut ClusterChanges,
) {
    let written: Vec<&ObjectRef> = changes.stages.iter().flatten().map(|write| &write.target).collect();
    let wanted = operations.iter().filter(|operation| {
        let at = target(operation);
        operation.metadata.deletion_timestamp.is_none()
            && !written.contains(&&at)
            && starts.as_ref() != Some(&at)
    });
    let writes: Vec<Write> = wanted
        .filter_map(|operation| start::metadata_patch(operation, cluster, order::ended(operation)))
        .collect();
    changes.merge(ClusterChanges { stages: vec![writes], ..ClusterChanges::default() });
}

/// The objects that a Cluster refers to.
pub fn references(cluster: &Cluster) -> Vec<(&'static str, ObjectRef)> {
    let spec = &cluster.spec;
    let map = |at: &DataRef| ObjectRef::new(ObjectKind::ConfigMap, &at.namespace, &at.name);
    let secret = |at: &DataRef| ObjectRef::new(ObjectKind::Secret, &at.namespace, &at.name);
    let mut all =
        vec![("hostsConfRef", map(&spec.hosts_conf_ref)), ("varsConfRef", map(&spec.vars_conf_ref))];
    all.extend(spec.ssh_auth_ref.iter().map(|at| ("sshAuthRef", secret(at))));
    all.extend(spec.kube_conf_ref.iter().map(|at| ("kubeConfRef", secret(at))));
    all.extend(spec.pre_check_ref.iter().map(|at| ("preCheckRef", map(at))));
    all.retain(|(_, target)| !target.name.is_empty());
    all
}

/// The objects that an operation may wait for in addition to those of its Cluster: its references, and the
/// persisted objects of its cluster in the operator's namespace `own`. An operation that ended waits for
/// nothing.
#[must_use]
pub fn references_of(operation: &ClusterOperation, own: &str) -> Vec<ObjectRef> {
    if order::ended(operation) {
        return Vec::new();
    }
    let spec = &operation.spec;
    let map = |at: &DataRef| ObjectRef::new(ObjectKind::ConfigMap, &at.namespace, &at.name);
    let mut all: Vec<ObjectRef> = [&spec.hosts_conf_ref, &spec.vars_conf_ref, &spec.entrypoint_sh_ref]
        .into_iter()
        .flatten()
        .map(map)
        .collect();
    let hooks = spec.pre_hook.iter().chain(&spec.post_hook).map(|hook| &hook.what);
    let sources = std::iter::once(&spec.main).chain(hooks).filter_map(|what| what.action_source_ref.as_ref());
    all.extend(sources.map(map));
    all.extend(
        spec.ssh_auth_ref.iter().map(|at| ObjectRef::new(ObjectKind::Secret, &at.namespace, &at.name)),
    );
    all.retain(|target| !target.name.is_empty());
    if let QueueKey::Cluster(cluster) = QueueKey::of(operation) {
        let persisted = [names::cluster_state(&cluster), names::cluster_kubeconfig(&cluster)];
        all.extend(persisted.map(|name| ObjectRef::new(ObjectKind::Secret, own, name)));
    }
    all
}

/// Removes this Cluster as an owner of the objects that it refers to, because they would be deleted with it. Older
/// operators and kube-on-kube made it their owner.
fn disowned(s: &View<'_>, cluster: &Cluster) -> ClusterChanges {
    let uid = cluster.metadata.uid.as_deref().unwrap_or_default();
    let mut writes = Vec::new();
    for (what, target) in references(cluster) {
        let found = s.settings.watches(&target.namespace).then(|| s.objects.meta(&target)).flatten();
        if found.is_some_and(|found| found.owners.iter().any(|owner| owner == uid)) {
            writes.push(Write {
                why: format!("{what} stays when the Cluster is deleted"),
                target,
                change: Change::Disown { owner: uid.to_owned() },
                operation: None,
            });
        }
    }
    writes.dedup_by(|a, b| a.target == b.target);
    ClusterChanges { stages: vec![writes], ..ClusterChanges::default() }
}

/// The desired status of the Cluster: every operation, and missing references. The missing references change
/// only when no other write precedes this one (`alone`), so that their events are recorded after the write,
/// and once.
fn history(
    s: &View<'_>,
    cluster: &Cluster,
    operations: &[Arc<ClusterOperation>],
    view: &BTreeMap<String, ClusterCondition>,
    alone: bool,
) -> Option<(Write, Option<Notice>)> {
    let mut ordered = operations.to_vec();
    order::history(&mut ordered);
    let entry = |operation: &Arc<ClusterOperation>| {
        view.get(name(operation)).cloned().unwrap_or_else(|| shown(operation, &status(operation)))
    };
    let mut conditions: Vec<ClusterCondition> = ordered.iter().map(entry).collect();
    if conditions.len() > MOST_SHOWN {
        // Running operations are always shown.
        conditions.sort_by_key(|condition| condition.status != RecordedResult::Running);
        conditions.truncate(MOST_SHOWN);
    }
    let before = cluster.status.clone().unwrap_or_default();
    let mut new = before.clone();
    new.conditions = conditions;
    new.operations = i32::try_from(operations.len()).ok();
    let newest = operations.iter().max_by_key(|operation| {
        (operation.metadata.creation_timestamp.as_ref().map(|time| time.0), name(operation).to_owned())
    });
    new.latest = newest.map(|operation| name(operation).to_owned());
    new.observed_generation = cluster.metadata.generation;
    new.removed = removed_operations::recorded(s, &before, operations);
    if alone {
        new.reason = missing(s, cluster);
    }
    let reference_notice = (new.reason != before.reason).then(|| match &new.reason {
        Some(text) => notice(cluster, true, "ReferenceMissing", text.clone()),
        None => notice(cluster, false, "ReferencesFound", "all referenced objects exist".to_owned()),
    });
    let version = cluster.metadata.resource_version.as_deref();
    let patch = StatusPatch::between(version, cluster.status.as_ref(), &new)?;
    let write = Write {
        why: "the history changed".to_owned(),
        target: ObjectRef::new(ObjectKind::Cluster, "", cluster.metadata.name.as_deref().unwrap_or_default()),
        change: Change::Status(patch),
        operation: None,
    };
    Some((write, reference_notice))
}

/// Why a reference of the Cluster cannot be used; `None` when all can be.
fn missing(s: &View<'_>, cluster: &Cluster) -> Option<String> {
    references(cluster).into_iter().find_map(|(what, target)| {
        if matches!(what, "kubeConfRef" | "preCheckRef") {
            return None;
        }
        let at = DataRef::new(&target.namespace, &target.name);
        match s.settings.unwatched(&at) {
            Some(text) => Some(format!("{what} {text}")),
            None if s.objects.meta(&target).is_none() => Some(format!("{what} {at} not found")),
            None => None,
        }
    })
}
