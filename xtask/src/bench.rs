//! Benchmarks of kubeon and its peers in one run.

mod create;
mod lab;
mod masters;
mod operator;
mod scale;
mod stand_ins;
mod upgrade;

use std::path::Path;

use anyhow::Result;
use clap::Subcommand;

/// The benchmarks.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Bare lab hosts to all nodes Ready: `kubeon create`, the floor, kubeadm, and other programs `kubeon`.
    Create(create::CreateArguments),
    /// A master joins a cluster, and one that died is replaced.
    Masters(masters::MastersArguments),
    /// A worker joins a cluster of 5, 50 and 500 declared nodes: `kubeon addon`, and the floor.
    Scale(scale::ScaleArguments),
    /// A cluster of three masters and two workers to the next minor version: `kubeon upgrade`, the restarts that it needs, and
    /// kubeadm.
    Upgrade {
        /// Number of runs; the medians are printed last.
        #[arg(long, default_value_t = 3)]
        runs: usize,
    },
    /// The operator on a real API server and etcd: many clusters and operations at once, idle, restart.
    Operator(operator::Arguments),
}

/// Runs a benchmark.
pub(crate) fn run(root: &Path, bench: &Bench) -> Result<()> {
    match bench {
        Bench::Create(arguments) => create::run(root, arguments),
        Bench::Masters(arguments) => masters::run(root, arguments),
        Bench::Scale(arguments) => scale::run(root, arguments),
        Bench::Upgrade { runs } => upgrade::run(root, *runs),
        Bench::Operator(arguments) => operator::run(root, arguments),
    }
}
