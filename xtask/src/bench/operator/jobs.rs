//! A Job controller without Pods: every Job works for five seconds and succeeds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::task::JoinSet;

use super::candidate::Candidate;
use super::world::{Shared, applied};

/// How long every Job works.
pub(super) const WORK: Duration = Duration::from_secs(5);

/// Completes the Jobs of operations until it is dropped.
pub(super) async fn complete(jobs: Api<Job>, candidate: Arc<Candidate>, shared: Arc<Shared>) {
    let mut stream = std::pin::pin!(applied(jobs.clone()));
    let mut works = JoinSet::new();
    while let Some(job) = stream.next().await {
        let (now, name) = (Instant::now(), job.name_any());
        let Some(operation) = candidate.operation_of(&name) else { continue };
        let ended = job.status.as_ref().is_some_and(|status| status.completion_time.is_some());
        let mut is_new = false;
        shared.note(|sights| {
            is_new = !sights.jobs.contains_key(&operation);
            sights.jobs.entry(operation.clone()).or_insert(now);
            if ended {
                sights.ended.entry(operation.clone()).or_insert(now);
            }
        });
        if is_new && !ended {
            let (jobs, shared) = (jobs.clone(), Arc::clone(&shared));
            works.spawn(async move {
                if let Err(error) = work(&jobs, &name, &operation, &shared).await {
                    shared.note(|sights| sights.errors.push(format!("Job {name}: {error:#}")));
                }
            });
        }
        while works.try_join_next().is_some() {}
    }
}

/// What the real controller writes: the start, and then the end in one go.
async fn work(jobs: &Api<Job>, name: &str, operation: &str, shared: &Shared) -> Result<()> {
    let started = Timestamp::now();
    let start = json!({ "status": { "startTime": time(started), "active": 1, "ready": 0 } });
    jobs.patch_status(name, &PatchParams::default(), &Patch::Merge(start)).await?;
    tokio::time::sleep(WORK).await;
    let end = Timestamp::now();
    let condition = |kind: &str| {
        json!({ "type": kind, "status": "True", "reason": "CompletionsReached",
            "lastProbeTime": time(end), "lastTransitionTime": time(end) })
    };
    let done = json!({ "status": { "active": 0, "succeeded": 1, "completionTime": time(end),
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")] } });
    let now = Instant::now();
    shared.note(|sights| {
        sights.ending.insert(operation.to_owned(), now);
    });
    jobs.patch_status(name, &PatchParams::default(), &Patch::Merge(done)).await?;
    Ok(())
}

/// The API server keeps whole seconds.
fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
