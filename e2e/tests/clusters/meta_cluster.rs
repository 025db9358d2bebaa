//! The meta cluster creates clusters: operator, Jobs and hosts are real. While it works, operators and pods of runners are
//! killed. Side by side, on hosts of their own:
//!
//! ```text
//!   h1          the meta cluster
//!   h2 h3       operations that people write: the seed's files, foreign images, ends of all kinds
//!   h4 h5 h6    a declared cluster: made, grown, shrunk, let go, taken down; again, with a dead host in the end
//!   h7          a declared cluster that has nothing but trouble
//! ```
//!
//! In the end, what operators and Jobs told programs of all this: lines of JSON, and traces down to the steps on hosts.

mod brought;
mod declared_cluster;
mod ends;
mod environment;
mod foreign;
mod gone;
mod logs;
mod no_bundle;
mod seed;
mod story;
mod traces;
mod trouble;

use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use environment::MetaCluster;

/// Where the samples of kube-on-kube put their objects.
const SEED: &str = "kubeonkube";
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_meta_cluster_creates_clusters() -> Result<()> {
    let start = Instant::now();
    let meta = MetaCluster::create()?;
    told("lab, meta cluster and operator", start);
    meta.refuses()?;
    thread::scope(|scope| {
        let all = [
            ("what people write", scope.spawn(|| seed::all(&meta))),
            ("a declared cluster", scope.spawn(|| declared_cluster::all(&meta))),
            ("trouble", scope.spawn(|| trouble::all(&meta))),
        ];
        let failed: Vec<String> =
            all.into_iter().filter_map(|(what, thread)| ended(what, start, thread)).collect();
        if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n\n")) }
    })?;
    told_to_programs(&meta)
}

/// What was declared and what people wrote, as those see it who collect logs and traces.
fn told_to_programs(meta: &MetaCluster) -> Result<()> {
    let start = Instant::now();
    logs::are_structured(meta)?;
    for kind in ["kubeon", "playbook"] {
        meta.traces.reach_a_host(&meta.lab, kind)?;
    }
    told("logs and traces", start);
    Ok(())
}

/// Why a thread failed, if it did.
fn ended(what: &str, start: Instant, thread: ScopedJoinHandle<'_, Result<()>>) -> Option<String> {
    let result = thread.join().unwrap_or_else(|_| Err(anyhow!("it panicked")));
    told(&format!("{what}, since the beginning"), start);
    result.with_context(|| what.to_owned()).err().map(|error| format!("{error:?}"))
}

#[allow(clippy::print_stderr, reason = "numbers for people who watch the test")]
fn told(what: &str, start: Instant) {
    eprintln!("{what}: {:.1} s", start.elapsed().as_secs_f64());
}
