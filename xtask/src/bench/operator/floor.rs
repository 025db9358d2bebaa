//! The lower bound: the time that the API server needs for the requests of operations. A client without
//! decisions and watches sends them for the same objects, with the same concurrency as the harness.
//!
//! ```text
//!   operation ─► 3 reads ─► 2 copies + claim ─► Job │ status ─► labels │ status ─► history, label
//!                   until the Job exists            │   end reported   │        the end
//! ```

use std::time::Instant;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::candidate_run::CandidateRun;
use super::objects::{self, AT_ONCE, api, cluster_name, core};
use super::statistics::Times;
use super::usage::Servers;

/// The number of writes until the Job exists, including the operation itself.
const STARTS: usize = 5;
/// The number of writes after it.
const ENDS: usize = 5;

/// The result of the measurement.
#[derive(Debug)]
pub(super) struct Floor {
    pub(super) operations: usize,
    /// From the first request of an operation until its Job exists, one operation after the other.
    pub(super) alone: Times,
    /// From the first request of all operations until each Job exists.
    pub(super) jobs: Times,
    /// Seconds until the last Job exists.
    pub(super) starts: f64,
    /// Seconds from then until the last write.
    pub(super) ends: f64,
    /// CPU seconds of the servers.
    pub(super) servers: Servers,
    /// CPU seconds of the client.
    pub(super) client: f64,
}

impl Floor {
    /// `floor: 2000 writes in 1.90 s`.
    #[allow(clippy::cast_precision_loss, reason = "counts of requests")]
    pub(super) fn line(&self) -> String {
        let (starts, ends) = (self.operations * STARTS, self.operations * ENDS);
        let rate = |count: usize, seconds: f64| count as f64 / seconds.max(0.001);
        format!(
            "floor: {} by a bare client, {AT_ONCE} at once: {starts} writes, {:.2} s until their Jobs exist ({:.0} a second beside {} reads; alone {}; {}), {ends} writes, {:.2} s for the rest ({:.0} a second); CPU s: {}, client {:.1}",
            super::statistics::many(self.operations, "operation"),
            self.starts,
            rate(starts, self.starts),
            self.operations * 3,
            self.alone.text(),
            self.jobs.text(),
            self.ends,
            rate(ends, self.ends),
            self.servers.text(),
            self.client
        )
    }
}

/// Sends the requests of `alone` operations one after the other, then those of `count` operations at once.
/// The operator must not run.
pub(super) async fn measure(run: &mut CandidateRun, count: usize, alone: usize) -> Result<Floor> {
    let job = job_like(run).await?;
    let client = || super::usage::ProcessUsage::of(std::process::id());
    let mut one_by_one = Vec::new();
    for number in 0..alone {
        let begin = Instant::now();
        start(run, &format!("floor-alone-{number:05}"), 0, &job).await?;
        one_by_one.push(begin.elapsed().as_secs_f64());
    }
    let (before, client_before, begun) = (run.servers()?, client()?.cpu, Instant::now());
    let names: Vec<_> = (0..count).map(|number| format!("floor-{number:05}")).collect();
    let (shared_run, job) = (&*run, &job);
    let each = names.iter().enumerate().map(|(number, name)| async move {
        start(shared_run, name, number, job).await.map(|()| begun.elapsed().as_secs_f64())
    });
    let created: Vec<f64> = stream::iter(each).buffer_unordered(AT_ONCE).try_collect().await?;
    let (starts, ending) = (begun.elapsed().as_secs_f64(), Instant::now());
    let each = names.iter().enumerate().map(|(number, name)| end(shared_run, name, number));
    stream::iter(each).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(Floor {
        operations: count,
        alone: Times::new(one_by_one),
        jobs: Times::new(created),
        starts,
        ends: ending.elapsed().as_secs_f64(),
        servers: run.servers()?.since(before),
        client: client()?.cpu - client_before,
    })
}

/// A copy of one of the operator's Jobs without the fields that the API server sets.
async fn job_like(run: &CandidateRun) -> Result<DynamicObject> {
    let kind = GroupVersionKind::gvk("batch", "v1", "Job");
    let resource = kube::api::ApiResource::from_gvk(&kind);
    let jobs = Api::<DynamicObject>::namespaced_with(run.client.clone(), &run.candidate.namespace, &resource);
    let found = jobs.list(&kube::api::ListParams::default().limit(1)).await?;
    let mut job = found.items.into_iter().next().context("the operator created no Job")?;
    job.types = Some(kube::core::TypeMeta { api_version: "batch/v1".into(), kind: "Job".into() });
    let (labels, annotations) = (job.metadata.labels.take(), job.metadata.annotations.take());
    job.metadata = kube::api::ObjectMeta { labels, annotations, ..kube::api::ObjectMeta::default() };
    job.metadata.namespace = Some(run.candidate.namespace.clone());
    let is_own = |key: &String| !key.contains("controller-uid") && !key.contains("job-name");
    job.metadata.labels.iter_mut().for_each(|labels| labels.retain(|key, _| is_own(key)));
    if let Some(spec) = job.data.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("selector");
    }
    if let Some(labels) =
        job.data.pointer_mut("/spec/template/metadata/labels").and_then(Value::as_object_mut)
    {
        labels.retain(|key, _| is_own(key));
    }
    if let Some(object) = job.data.as_object_mut() {
        object.remove("status");
    }
    Ok(job)
}

async fn start(run: &CandidateRun, name: &str, number: usize, job: &DynamicObject) -> Result<()> {
    let cluster = cluster_name(number);
    let operation = run.candidate.operation(name, &cluster)?;
    objects::create(&run.client, &run.kinds.operation, &operation).await?;
    let references = run.candidate.references(&cluster)?;
    try_join_all(references.iter().map(|object| read(run, object))).await?;
    let copies = references.iter().skip(1).map(|object| copy(run, object, name));
    let claim = mark(run, true, &cluster, name);
    tokio::try_join!(try_join_all(copies), claim)?;
    copy(run, job, name).await
}

async fn end(run: &CandidateRun, name: &str, number: usize) -> Result<()> {
    for change in ["running", "labels", "ended"] {
        mark(run, false, name, change).await?;
    }
    let cluster = cluster_name(number);
    let history = mark(run, true, &cluster, "ended");
    tokio::try_join!(history, mark(run, false, name, "completed"))?;
    Ok(())
}

async fn read(run: &CandidateRun, object: &DynamicObject) -> Result<()> {
    api(&run.client, &core(object)?, object).get(&object.name_any()).await?;
    Ok(())
}

/// A new object with the content of `object`.
async fn copy(run: &CandidateRun, object: &DynamicObject, name: &str) -> Result<()> {
    let mut copy = object.clone();
    copy.metadata.name = Some(format!("{name}-{}", object.types.as_ref().map_or("", |types| &types.kind)));
    copy.metadata.name.iter_mut().for_each(|name| name.make_ascii_lowercase());
    api(&run.client, &core(object)?, object).create(&PostParams::default(), &copy).await?;
    Ok(())
}

/// Patches an annotation of a Cluster or an operation.
async fn mark(run: &CandidateRun, cluster: bool, name: &str, text: &str) -> Result<()> {
    let kind = if cluster { &run.kinds.cluster } else { &run.kinds.operation };
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"floor": text}}}));
    let all = Api::<DynamicObject>::all_with(run.client.clone(), kind);
    all.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}
