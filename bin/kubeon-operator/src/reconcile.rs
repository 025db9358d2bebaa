//! One reconcile of a key: decide, write, and decide again, until nothing is left to write.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubeon_api::ClusterOperation;
use kubeon_link_kube::{LinkError, RetryClass, Verb};
use kubeon_operations::kubernetes_cluster::refused;
use kubeon_operations::{
    Change, ClusterChanges, ClusterObject, Data, Decision, ObjectKind, ObjectRef, QueueKey, StartPermission,
    View, Write, WriteRefusal, decide, job_state, order,
};
use tokio::time::Instant;

use crate::cache::QueueObjects;
use crate::context::{LOG_BYTES, OperatorContext};
use crate::execute::{self, WriteFailure};
use crate::location;
use crate::log_follower::is_lost;
use crate::operation_limit::has_job;
use crate::queue::{QueueItem, ReconcileOutcome, Urgency};
use crate::refusals::Refused;
use crate::request_priority::RequestPriority;

/// The most decisions in one reconcile. A reconcile that needs more does not converge and is retried later.
const MOST_DECISIONS: usize = 32;
/// The pause after a temporary refusal of the API server.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);
/// How long an unreadable log is retried after the end of its pod. Its node may never answer again.
const LOG_RETRIES: SignedDuration = SignedDuration::from_secs(600);

/// Reconciles keys with at least the priority `least`, until it is dropped.
pub(crate) async fn work(context: Arc<OperatorContext>, least: Urgency) {
    loop {
        let work = context.queue.next(least).await;
        let start = Instant::now();
        let outcome = reconcile(&context, &work).await;
        context.metrics.reconciled(start.elapsed(), outcome != ReconcileOutcome::Failed);
        context.queue.done(&work.queue_key, outcome);
    }
}

/// Reconciles one key.
async fn reconcile(context: &OperatorContext, work: &QueueItem) -> ReconcileOutcome {
    let queue_key = &work.queue_key;
    let mut data = BTreeMap::new();
    let mut refusals = BTreeMap::new();
    let mut pause = None;
    for _ in 0..MOST_DECISIONS {
        let objects = context.cache.objects_of(queue_key);
        let (operations, subject) = (objects.operations.clone(), objects.subject.clone());
        let first = first_open(&objects);
        let operation = first.as_ref().map(|(operation, _)| operation.as_ref());
        let region = subject.region().map(str::to_owned);
        let (start, next) = context.operation_limit.permission(queue_key, region.as_deref(), operation);
        context.wake(next);
        let decision = decide_now(context, queue_key, objects, &data, &refusals, start);
        if let Decision::Apply(changes) = &decision
            && first.is_some_and(|(_, started)| !started)
            && !changes.stages.iter().flatten().any(Write::makes_a_job)
        {
            context.wake(context.operation_limit.not_started(queue_key));
        }
        match decision {
            Decision::Read(targets) => {
                let request_priority = RequestPriority::of(work);
                let reads = targets.iter().map(|target| read(context, target, &request_priority));
                for (target, answer) in targets.iter().zip(futures::future::join_all(reads).await) {
                    match answer {
                        Ok(answer) => data.insert(target.clone(), answer),
                        Err(failure) => return stopped(queue_key, &failure),
                    };
                }
            }
            Decision::Apply(changes) if changes.is_done() => {
                context.refusals.resolved(queue_key);
                let wake = changes.wake.map(until);
                return ReconcileOutcome::Done([wake, pause].into_iter().flatten().min());
            }
            Decision::Apply(mut changes) => {
                let yields = yields(&mut changes, work.class);
                let writes: Vec<_> =
                    changes.stages.iter().flatten().map(|write| write.why.as_str()).collect();
                tracing::debug!(%queue_key, ?writes, "writes");
                match execute_changes(context, work, &mut changes, &operations).await {
                    Ok(()) => {
                        if yields && pause.is_none() {
                            return ReconcileOutcome::Rest;
                        }
                    }
                    Err(failure @ (WriteFailure::Link(_) | WriteFailure::Preempted)) => {
                        return stopped(queue_key, &failure);
                    }
                    Err(WriteFailure::Replan | WriteFailure::Executed) => {}
                    Err(WriteFailure::Refused { operation, what, refusal }) => {
                        tracing::warn!(%queue_key, operation, message = refusal.text, "the API server refused a write");
                        if !refusal.permanent {
                            pause = Some(Instant::now() + REFUSED_PAUSE);
                        }
                        let Some(operation) = operation else {
                            report_refused(context, queue_key, &subject, &what, &refusal.text).await;
                            return ReconcileOutcome::Done(Some(Instant::now() + REFUSED_PAUSE));
                        };
                        refusals.insert(operation, refusal);
                    }
                }
                data.clear();
            }
        }
    }
    tracing::warn!(%queue_key, "the reconcile does not converge; it is retried later");
    ReconcileOutcome::Failed
}

/// Reports a refused write that belongs to no operation: by an event, and in the status of the cluster.
async fn report_refused(
    context: &OperatorContext,
    queue_key: &QueueKey,
    subject: &ClusterObject,
    (verb, target): &(&'static str, ObjectRef),
    message: &str,
) {
    let Some((object, uid)) = subject.target() else { return };
    let name = [target.namespace.as_str(), &target.name].join("/");
    let text = format!("cannot {verb} {} {}: {message}", target.kind.as_str(), name.trim_start_matches('/'));
    context.report_refused(
        queue_key,
        &Refused { about: location::reference(&object, &uid), text: text.clone() },
    );
    let status = refused(subject, &text, Timestamp::now()).map(|write| (write, Vec::new()));
    let status = status.into_iter().collect();
    if execute::execute(context, status, &RequestPriority::normal()).await.is_err() {
        tracing::debug!(%queue_key, "the status is not written either");
    }
}

/// Sends the writes of a reconcile, stage after stage, and records its trace.
async fn execute_changes(
    context: &OperatorContext,
    work: &QueueItem,
    changes: &mut ClusterChanges,
    operations: &[Arc<ClusterOperation>],
) -> Result<(), WriteFailure> {
    let span = context.spans.as_ref().and_then(|spans| Some((spans, spans.start(changes, operations)?)));
    let answer = stages(context, changes, &RequestPriority::of(work)).await;
    if let Some((spans, span)) = span {
        spans.ended(&work.queue_key, span, answer.as_ref().err().map(WriteFailure::text));
    }
    answer
}

async fn stages(
    context: &OperatorContext,
    changes: &mut ClusterChanges,
    request_priority: &RequestPriority,
) -> Result<(), WriteFailure> {
    for at in 0..changes.stages.len() {
        execute::execute(context, changes.take(at), request_priority).await?;
    }
    debug_assert!(changes.notices.is_empty(), "these belong to no write: {:?}", changes.notices);
    Ok(())
}

/// Whether the reconcile yields to other keys after these writes. An urgent reconcile yields after it has
/// reported the end of an operation, because a user waits for that; the other writes are planned again. A
/// reconcile that created a Job yields, because the report of that can wait.
fn yields(changes: &mut ClusterChanges, class: Urgency) -> bool {
    match class {
        Urgency::Urgent => {
            changes.keep_first_stage();
            changes.stages.iter().flatten().any(reports_an_end)
        }
        Urgency::Fresh => changes.stages.iter().flatten().any(Write::makes_a_job),
        Urgency::Rest => false,
    }
}

/// Whether the write is the status of an ended operation.
fn reports_an_end(write: &Write) -> bool {
    let Change::Status(patch) = &write.change else { return false };
    write.target.kind == ObjectKind::Operation && patch.end().is_some()
}

/// The first operation that has not ended, and whether it has a Job. Of each queue key, one operation runs at a time.
fn first_open(objects: &QueueObjects) -> Option<(Arc<ClusterOperation>, bool)> {
    let is_open = |operation: &&Arc<ClusterOperation>| !order::ended(operation);
    let mut open: Vec<_> = objects.operations.iter().filter(is_open).cloned().collect();
    order::queue(&mut open);
    let first = open.into_iter().next()?;
    let started = has_job(&first) || objects.jobs.iter().any(|job| job_state::has_uid_label_of(job, &first));
    Some((first, started))
}

fn decide_now(
    context: &OperatorContext,
    queue_key: &QueueKey,
    objects: QueueObjects,
    data: &BTreeMap<ObjectRef, Data>,
    refusals: &BTreeMap<String, WriteRefusal>,
    start: StartPermission,
) -> Decision {
    let settings = context.settings();
    decide(&View {
        queue_key,
        settings: &settings,
        now: Timestamp::now(),
        subject: objects.subject,
        operations: objects.operations,
        jobs: objects.jobs,
        pods: objects.pods,
        objects: &context.cache,
        data,
        refusals,
        start,
        health: context.observations.health(queue_key),
    })
}

fn until(when: Timestamp) -> Instant {
    let left = Timestamp::now().duration_until(when);
    Instant::now() + Duration::try_from(left).unwrap_or_default() + Duration::from_millis(20)
}

/// The outcome of a reconcile that could not continue. Only an error of the API server counts as a failure. A
/// preempted reconcile, or one whose objects have changed, starts again.
fn stopped(queue_key: &QueueKey, failure: &WriteFailure) -> ReconcileOutcome {
    let WriteFailure::Link(error) = failure else { return ReconcileOutcome::Rest };
    tracing::warn!(%queue_key, error = %error, category = error.category(), "the reconcile failed; it is retried");
    ReconcileOutcome::Failed
}

async fn read(
    context: &OperatorContext,
    target: &ObjectRef,
    request_priority: &RequestPriority,
) -> Result<Data, WriteFailure> {
    // A kubelet answers slowly, so the read of a log does not hold a permit.
    if target.kind == ObjectKind::Log {
        return read_log(context, target).await.map_err(WriteFailure::Link);
    }
    let permit = request_priority.permit(&context.writer).await.ok_or(WriteFailure::Preempted)?;
    context.metrics.request("get", target.kind.as_str(), "sent");
    let verb = context.cache.version(target).map_or(Verb::Get, Verb::GetAsOf);
    match context.writer.send_with(permit, location::path(target), &verb).await {
        Ok(value) => Ok(execute::data(context, target, value)),
        Err(error) if error.is_absent() => Ok(Data::Absent),
        Err(error) if error.retry_class() == RetryClass::AfterChange => Ok(Data::Denied(error.message())),
        Err(error) => Err(WriteFailure::Link(error)),
    }
}

async fn read_log(context: &OperatorContext, target: &ObjectRef) -> Result<Data, LinkError> {
    context.metrics.request("get", target.kind.as_str(), "sent");
    if let Some(text) = context.log_follower.finished_log(target).await {
        return Ok(Data::Log(text));
    }
    match context.writer.log(&target.namespace, &target.name, LOG_BYTES).await {
        Ok(text) if is_lost(&text) => Ok(Data::Absent),
        Ok(text) => Ok(Data::Log(text)),
        Err(error) if error.is_absent() => Ok(Data::Absent),
        Err(error) if matches!(error.retry_class(), RetryClass::Never | RetryClass::AfterChange) => {
            Ok(Data::Denied(error.message()))
        }
        Err(error) if log_retries_ended(context, target) => Ok(Data::Denied(error.message())),
        Err(error) => Err(error),
    }
}

/// Whether the retries of a log have taken too long.
fn log_retries_ended(context: &OperatorContext, pod: &ObjectRef) -> bool {
    let due = context.cache.pod_ended(pod).and_then(|ended| ended.saturating_add(LOG_RETRIES).ok());
    due.is_some_and(|due| due <= Timestamp::now())
}
