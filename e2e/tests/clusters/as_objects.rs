//! The meta cluster creates clusters with a real operator, real Jobs and real hosts. Meanwhile the tests kill
//! operators and pods of runners. In parallel, on separate hosts:
//!
//! ```text
//!   h1          the meta cluster
//!   h2 h3       operations written by users: kube-on-kube's samples, foreign images, all kinds of failures
//!   h4 h5 h6    a declared cluster: created, scaled up and down, retained, deleted; then again with a dead host
//!   h7          a declared cluster with failures
//! ```
//!
//! Before that, a tenant uses the REST server. Finally, it checks the logs of operators, which are lines of JSON,
//! and the traces down to the steps on hosts, and removes the operator.

mod cluster_failures;
mod declared_cluster;
mod deletion;
mod environment;
mod fleet;
mod foreign_image;
mod gateway;
mod kubectl_output;
mod logs;
mod masters_and_versions;
mod missing_bundle;
mod operation_results;
mod rollback;
mod samples;
mod snapshots;
mod tenants;
mod traces;
mod uninstall;
mod user_files;

use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use environment::MetaCluster;

/// The namespace of the samples of kube-on-kube.
const SAMPLES_NAMESPACE: &str = "kubeonkube";
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_meta_cluster_creates_clusters() -> Result<()> {
    let start = Instant::now();
    let meta = MetaCluster::create()?;
    print_time("lab, meta cluster and operator", start);
    meta.refuses_invalid_objects()?;
    meta.webhook_answers_only_the_api_server()?;
    samples::command(&meta)?;
    meta.images_are_pinned()?;
    gateway::run(&meta)?;
    thread::scope(|scope| {
        let all = [
            ("operations written by users", scope.spawn(|| samples::run(&meta))),
            ("a declared cluster", scope.spawn(|| declared_cluster::run(&meta))),
            ("a declared cluster with failures", scope.spawn(|| cluster_failures::run(&meta))),
        ];
        let failed: Vec<String> =
            all.into_iter().filter_map(|(part, thread)| failure(part, start, thread)).collect();
        if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n\n")) }
    })?;
    logs_and_traces(&meta)?;
    uninstall::run(&meta)
}

/// Checks the logs and traces of all operations.
fn logs_and_traces(meta: &MetaCluster) -> Result<()> {
    let start = Instant::now();
    logs::are_structured(meta)?;
    for kind in ["kubeon", "playbook"] {
        meta.traces.check_reaches_host(&meta.lab, kind)?;
    }
    print_time("logs and traces", start);
    Ok(())
}

/// The error of a thread, if it failed.
fn failure(what: &str, start: Instant, thread: ScopedJoinHandle<'_, Result<()>>) -> Option<String> {
    let result = thread.join().unwrap_or_else(|_| Err(anyhow!("the thread panicked")));
    print_time(&format!("{what}, since the start of the test"), start);
    result.with_context(|| what.to_owned()).err().map(|error| format!("{error:?}"))
}

#[allow(clippy::print_stderr, reason = "prints measured times")]
fn print_time(what: &str, start: Instant) {
    eprintln!("{what}: {:.1} s", start.elapsed().as_secs_f64());
}
