//! Measures an operator on a real kube-apiserver and etcd, on loopback:
//!
//! ```text
//!   clusters at once ─► idle ─► (more) ─► operations at once ─► killed and started again
//!        │                                      │
//!        ▼                                      ▼
//!   owner references and status         Job made ─► fake Job controller: done after 5 s ─► status
//! ```
//!
//! Requests are counted from the API server's audit log, restricted to the operator's service account, so
//! that no proxy is between operator and API server. A time begins when the harness sends a write and ends
//! when the harness's own watch receives the operator's reaction. The same path without an operator is
//! measured in the same run. The floor is measured last: the requests of operations, sent by a client that
//! does nothing else. Candidates are measured one after the other on one API server; the objects of a
//! candidate are removed before the next one starts.

mod audit;
mod bench_server;
mod candidate;
mod candidate_run;
mod clusters;
mod figures;
mod floor;
mod jobs;
mod objects;
mod operations;
mod report;
mod restart;
mod sightings;
mod statistics;
mod usage;
mod watches;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use bench_server::BenchServer;
use candidate::Candidate;
use candidate_run::CandidateRun;
use report::CandidateReport;

/// The arguments of the benchmark.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Numbers of clusters to measure; the missing clusters are created at once.
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000")]
    clusters: Vec<usize>,
    /// Numbers of operations that are created at once, each on its own cluster.
    #[arg(long, value_delimiter = ',', default_value = "1,50,400")]
    operations: Vec<usize>,
    /// Number of operations that are measured one after the other.
    #[arg(long, default_value_t = 20)]
    alone: usize,
    /// Seconds of idle time after each number of clusters.
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// Time limit of each phase in seconds; unfinished objects are reported.
    #[arg(long, default_value_t = 900)]
    limit: u64,
    /// etcd syncs writes to the disk before it answers.
    #[arg(long)]
    fsync: bool,
    /// The program of kubeon's operator [default: the build of the release profile].
    #[arg(long, value_name = "FILE", conflicts_with = "only_peers")]
    program: Option<PathBuf>,
    /// Folder of another operator to measure: operator, crds/, templates/, peer.toml.
    #[arg(long)]
    peer: Vec<PathBuf>,
    /// Measure only the peers, not kubeon's operator.
    #[arg(long, requires = "peer")]
    only_peers: bool,
}

impl Arguments {
    fn limit(&self) -> Duration {
        Duration::from_secs(self.limit)
    }
}

/// Measures kubeon's operator and every peer, one after the other.
pub(super) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let mut candidates = Vec::new();
    if !arguments.only_peers {
        let folder = root.join("xtask/bench/operator/kubeon");
        candidates.push(Arc::new(Candidate::load_with(&folder, arguments.program.as_deref())?));
    }
    for folder in &arguments.peer {
        candidates.push(Arc::new(Candidate::load(folder)?));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reports = runtime.block_on(unless_signalled(measure_all(&candidates, arguments)))?;
    if reports.len() > 1 {
        report::compare(&reports);
    }
    figures::print();
    Ok(())
}

/// Ends early on SIGTERM or SIGINT. Dropping the work ends everything that it started.
async fn unless_signalled<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let (mut end, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        done = work => done,
        _ = end.recv() => bail!("ended by SIGTERM"),
        _ = interrupt.recv() => bail!("ended by SIGINT"),
    }
}

async fn measure_all(candidates: &[Arc<Candidate>], arguments: &Arguments) -> Result<Vec<CandidateReport>> {
    let bench_server = Arc::new(BenchServer::start(candidates, arguments.fsync).await?);
    let mut reports = Vec::new();
    for candidate in candidates {
        let report = measure(&bench_server, candidate, arguments).await;
        let report = report.with_context(|| format!("measuring {}", candidate.name))?;
        report.print();
        reports.push(report);
    }
    Ok(reports)
}

async fn measure(
    bench_server: &Arc<BenchServer>,
    candidate: &Arc<Candidate>,
    arguments: &Arguments,
) -> Result<CandidateReport> {
    let mut run = CandidateRun::new(bench_server, candidate).await?;
    let mut report = CandidateReport::new(&candidate.name, arguments.fsync);
    report.first = run.start().await?;
    for count in &arguments.clusters {
        let phase = clusters::reach(&mut run, *count, arguments.limit()).await?;
        crate::terminal::say(&phase.line());
        report.clusters.push(phase);
        let idle = clusters::idle(&mut run, *count, Duration::from_secs(arguments.idle)).await?;
        crate::terminal::say(&idle.line());
        report.idle.push(idle);
    }
    let most = arguments.operations.iter().copied().max().unwrap_or(0);
    if run.clusters < most {
        clusters::reach(&mut run, most, arguments.limit()).await?;
    }
    if most > 0 && arguments.alone > 0 {
        let phase = operations::alone(&mut run, arguments.alone, arguments.limit()).await?;
        crate::terminal::say(&phase.line());
        report.operations.push(phase);
    }
    for count in &arguments.operations {
        let phase = operations::at_once(&mut run, *count, arguments.limit()).await?;
        crate::terminal::say(&phase.line());
        report.operations.push(phase);
    }
    if run.clusters > 0 {
        let restart = restart::kill_and_start(&mut run, arguments.limit()).await?;
        crate::terminal::say(&restart.line());
        report.restart = Some(restart);
    }
    if most > 0 {
        run.kill().await?;
        let floor = floor::measure(&mut run, most, arguments.alone.max(1)).await?;
        crate::terminal::say(&floor.line());
        report.floor = Some(floor);
    }
    run.finish().await?;
    Ok(report)
}
