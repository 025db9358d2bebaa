//! A fake Job controller without Pods: every Job runs for five seconds and succeeds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::candidate::Candidate;
use super::sightings::{SharedSightings, applied};

/// The run time of every Job.
pub(super) const WORK: Duration = Duration::from_secs(5);

/// The number of concurrent writes: the workers of kube-controller-manager for Jobs
/// (`--concurrent-job-syncs`).
const WORKERS: usize = 5;

/// Completes the Jobs of operations until it is dropped.
pub(super) async fn complete(jobs: Api<Job>, candidate: Arc<Candidate>, shared: Arc<SharedSightings>) {
    let mut stream = std::pin::pin!(applied(jobs.clone()));
    let mut running = JoinSet::new();
    let workers = Arc::new(Semaphore::new(WORKERS));
    while let Some(job) = stream.next().await {
        let (now, name) = (Instant::now(), job.name_any());
        let Some(operation) = candidate.operation_of(&name) else { continue };
        let ended = job.status.as_ref().is_some_and(|status| status.completion_time.is_some());
        let mut is_new = false;
        shared.note(|sightings| {
            is_new = !sightings.jobs.contains_key(&operation);
            sightings.jobs.entry(operation.clone()).or_insert(now);
            if ended {
                sightings.ended.entry(operation.clone()).or_insert(now);
            }
        });
        if is_new && !ended {
            let (jobs, shared, workers) = (jobs.clone(), Arc::clone(&shared), Arc::clone(&workers));
            running.spawn(async move {
                if let Err(error) = run_job(&jobs, job, &operation, &shared, &workers).await {
                    shared.note(|sightings| sightings.errors.push(format!("Job {name}: {error:#}")));
                }
            });
        }
        while running.try_join_next().is_some() {}
    }
}

/// Writes the same status as the real controller: the start, then the end in one write.
async fn run_job(
    jobs: &Api<Job>,
    job: Job,
    operation: &str,
    shared: &SharedSightings,
    workers: &Semaphore,
) -> Result<()> {
    let worker = workers.acquire().await?;
    let start = |status: &mut JobStatus| {
        (status.start_time, status.active, status.ready) = (Some(now()), Some(1), Some(0));
    };
    let job = write_status(jobs, job, start).await?;
    drop(worker);
    tokio::time::sleep(WORK).await;
    let _worker = workers.acquire().await?;
    let done = |status: &mut JobStatus| {
        (status.active, status.succeeded, status.completion_time) = (Some(0), Some(1), Some(now()));
        status.conditions = Some(vec![condition("SuccessCriteriaMet"), condition("Complete")]);
    };
    let sent = Instant::now();
    shared.note(|sightings| {
        sightings.ending.insert(operation.to_owned(), sent);
    });
    write_status(jobs, job, done).await?;
    Ok(())
}

/// Replaces a Job's status, as the real controller does. Retries once after a conflict.
async fn write_status(jobs: &Api<Job>, mut job: Job, change: impl Fn(&mut JobStatus)) -> Result<Job> {
    let (name, params) = (job.name_any(), PostParams::default());
    change(job.status.get_or_insert_default());
    let answer = jobs.replace_status(&name, &params, &job).await;
    if !matches!(&answer, Err(kube::Error::Api(refusal)) if refusal.code == 409) {
        return Ok(answer?);
    }
    let mut job = jobs.get(&name).await?;
    change(job.status.get_or_insert_default());
    Ok(jobs.replace_status(&name, &params, &job).await?)
}

fn condition(kind: &str) -> JobCondition {
    JobCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some("CompletionsReached".to_owned()),
        last_probe_time: Some(now()),
        last_transition_time: Some(now()),
        message: None,
    }
}

/// The API server keeps whole seconds.
fn now() -> Time {
    let now = Timestamp::now();
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}
