//! Creates the objects of an export in another meta cluster.
//!
//! ```text
//!   export, lists of kubectl ─► plan (pure) ─► namespaces ─► clusters ─► operations ─► ConfigMaps and Secrets
//!                                              each created, then its status written
//! ```
//!
//! The operator must not run: it would execute an operation whose status is not written yet, and stop one whose cluster has
//! another UID. The objects are written in the name of the operator, because admission lets nobody else write its annotations
//! and labels, and because its webhook does not answer.

mod order;
mod plan;
mod translate;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubeon_install::names;
use serde::Serialize;
use serde_json::Value;

use crate::error::EngineError;
use crate::kubectl::Kubectl;
use crate::meta_export::object::{name, namespace, title};
use crate::meta_export::{DataReference, MetaExport, MetaKind, ObjectNote, read, require_definitions};
use crate::operator_install::check_connection;
use crate::output::EngineOutput;
use crate::remedy::EngineRemedy;
use plan::{PlannedObject, RestoreAction, RestorePlan};
use translate::{status_for, translated, uids};
use writer::ObjectWriter;

/// Kinds that are restored together, in this order.
const STAGES: [&[MetaKind]; 4] = [
    &[MetaKind::Namespace],
    &[MetaKind::Cluster, MetaKind::KubernetesCluster],
    &[MetaKind::Operation],
    &[MetaKind::ConfigMap, MetaKind::Secret],
];
/// The pause between batches of operations. Creation times have whole seconds, and they are the order of operations.
const PAUSE: Duration = Duration::from_secs(1);
/// The labels of the operator's pods.
const OPERATOR_PODS: &str = "app.kubernetes.io/component=operator,app.kubernetes.io/name=kubeon";
/// The number of objects that an error names.
const NAMED: usize = 20;

/// How an export is restored.
#[derive(Debug, Clone)]
pub struct MetaRestoreOptions {
    /// The namespace of the operator.
    pub namespace: String,
    /// Replace objects that exist and differ.
    pub replace: bool,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// What a restore did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MetaRestoreReport {
    /// The objects that did not exist.
    pub created: Vec<String>,
    /// The objects that differed or had no status.
    pub replaced: Vec<String>,
    /// The number of objects that were as in the export.
    pub unchanged: usize,
    /// What is not as it was, and why.
    pub notes: Vec<ObjectNote>,
}

/// Creates the objects. What exists already as in the export is left as it is, so a restore that was killed can be run again.
///
/// # Errors
/// Refuses, before anything is written: a cluster without kubeon or with its operator in another namespace, while the operator
/// runs, a user who may not act as the operator, and objects that exist and differ, unless they are replaced. Fails when the
/// cluster cannot be reached or refuses an object; the objects before it stay.
pub async fn restore(
    kubectl: &Kubectl,
    export: &MetaExport,
    options: &MetaRestoreOptions,
    output: &dyn EngineOutput,
) -> Result<MetaRestoreReport, EngineError> {
    check_connection(kubectl).await?;
    require_definitions(kubectl).await?;
    require_same_namespace(export, options)?;
    let writer = ObjectWriter::new(kubectl, &options.namespace);
    if !options.dry_run {
        writer.require_identity().await?;
        require_stopped(kubectl, &options.namespace).await?;
    }
    let mut present = present(kubectl, export).await?;
    let plan = plan::plan(&export.objects, &present);
    if !options.replace {
        refuse_conflicts(&plan)?;
    }
    let report = report(&plan, export);
    if options.dry_run {
        return Ok(report);
    }
    for kinds in STAGES {
        restore_stage(&writer, export, &plan, kinds, &mut present, output).await?;
    }
    Ok(report)
}

/// The objects of the cluster by their titles: all of the kinds of kubeon, and the ConfigMaps and Secrets of the export.
async fn present(kubectl: &Kubectl, export: &MetaExport) -> Result<BTreeMap<String, Value>, EngineError> {
    let mut all = Vec::new();
    for kind in [MetaKind::Namespace, MetaKind::Cluster, MetaKind::KubernetesCluster, MetaKind::Operation] {
        all.extend(read::list(kubectl, kind, "").await?);
    }
    let data = export.objects.iter().filter_map(|object| {
        let kind = MetaKind::of(object)?;
        matches!(kind, MetaKind::ConfigMap | MetaKind::Secret).then(|| DataReference {
            kind,
            namespace: namespace(object).to_owned(),
            name: name(object).to_owned(),
        })
    });
    all.extend(read::by_name(kubectl, &data.collect::<BTreeSet<_>>()).await?);
    Ok(all.into_iter().map(|object| (title(&object), object)).collect())
}

/// Creates and replaces the objects of these kinds, then writes their status.
async fn restore_stage(
    writer: &ObjectWriter<'_>,
    export: &MetaExport,
    plan: &RestorePlan,
    kinds: &[MetaKind],
    present: &mut BTreeMap<String, Value>,
    output: &dyn EngineOutput,
) -> Result<(), EngineError> {
    let planned: Vec<&PlannedObject> = plan.of(kinds).collect();
    let uids = uids(&export.objects, present);
    let with =
        |action: RestoreAction| planned.iter().filter(move |one| one.action == action).map(|one| &one.object);
    let batches = order::batches(with(RestoreAction::Create));
    if batches.len() > 1 {
        output.info(&format!("operations are created in their order, which takes {} s", batches.len()));
    }
    for (index, batch) in batches.iter().enumerate() {
        if index > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        let objects: Vec<Value> = batch.iter().map(|object| translated(object, &uids)).collect();
        writer.create(&objects).await?;
    }
    let replaced: Vec<Value> = with(RestoreAction::Replace).map(|object| translated(object, &uids)).collect();
    writer.replace(&replaced).await?;
    for kind in kinds.iter().filter(|kind| !matches!(kind, MetaKind::ConfigMap | MetaKind::Secret)) {
        let objects = read::list(writer.kubectl(), *kind, "").await?;
        present.extend(objects.into_iter().map(|object| (title(&object), object)));
    }
    let with_status = planned.iter().filter(|one| one.writes_status);
    let with_status = with_status.filter_map(|one| {
        let found = present.get(&title(&one.object))?;
        Some(status_for(&one.object, found))
    });
    writer.replace_status(&with_status.collect::<Vec<_>>()).await?;
    let done = planned.iter().filter(|one| one.is_written()).count();
    if done > 0 {
        let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        output.info(&format!("{done} objects are restored: {}", names.join(", ")));
    }
    Ok(())
}

/// The names of the states of a `Cluster` are the same in every namespace, so they are found only in that of the operator.
fn require_same_namespace(export: &MetaExport, options: &MetaRestoreOptions) -> Result<(), EngineError> {
    let before = &export.operator_namespace;
    if *before == options.namespace {
        return Ok(());
    }
    Err(EngineError::refused(format!("the operator of the export was in namespace {before}"))
        .row("cause", "the keys of clusters are in the namespace of the operator")
        .row("instead", format!("install it there, then restore with --namespace {before}")))
}

async fn require_stopped(kubectl: &Kubectl, namespace: &str) -> Result<(), EngineError> {
    let replicas = "jsonpath={.spec.replicas}";
    let deployment =
        ["-n", namespace, "get", "deployment", names::OPERATOR, "--ignore-not-found", "-o", replicas];
    let replicas = kubectl.run(&deployment, None).await?;
    let pods = ["-n", namespace, "get", "pods", "-l", OPERATOR_PODS, "-o", "name"];
    let pods = kubectl.run(&pods, None).await?;
    if matches!(replicas.trim(), "" | "0") && pods.trim().is_empty() {
        return Ok(());
    }
    let error = EngineError::refused("nothing was restored: the operator runs")
        .row("cause", "it would execute operations whose status is not restored yet");
    let error = pods.lines().take(NAMED).fold(error, |error, pod| error.row("runs", pod));
    Err(error.remedy(EngineRemedy::StopOperator { namespace: namespace.to_owned() }))
}

fn refuse_conflicts(plan: &RestorePlan) -> Result<(), EngineError> {
    if plan.conflicts.is_empty() {
        return Ok(());
    }
    let count = plan.conflicts.len();
    let error = EngineError::refused(format!("nothing was restored: {count} objects exist and differ"));
    let named = plan.conflicts.iter().take(NAMED);
    let error = named.fold(error, |error, note| error.row(&note.object, &note.reason));
    let error = match count.saturating_sub(NAMED) {
        0 => error,
        more => error.row("and", format!("{more} more")),
    };
    Err(error.remedy(EngineRemedy::ReplaceRestored))
}

fn report(plan: &RestorePlan, export: &MetaExport) -> MetaRestoreReport {
    let mut report = MetaRestoreReport { notes: export.notes.clone(), ..MetaRestoreReport::default() };
    for one in &plan.objects {
        match one.action {
            RestoreAction::Create => report.created.push(title(&one.object)),
            RestoreAction::Replace => report.replaced.push(title(&one.object)),
            RestoreAction::Unchanged if one.writes_status => report.replaced.push(title(&one.object)),
            RestoreAction::Unchanged => report.unchanged += 1,
        }
    }
    report
}
