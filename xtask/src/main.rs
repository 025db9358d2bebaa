//! The tools of the workspace: `gen` writes generated files, `check` checks the rules of the workspace,
//! `bench` runs benchmarks, `images` builds images, `dist` builds the files that people download, `conformance` runs the
//! tests of Kubernetes, `fuzz` searches for inputs that a parser does not survive.

mod bench;
mod check;
mod conformance;
mod dist;
mod fuzz;
mod generate;
mod images;
mod terminal;
mod workspace;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "The tools of the workspace")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Write generated files: custom resource definitions, JSON schema.
    Gen,
    /// Check the rules of the workspace: layers, lengths, names, phrases, import cycles, decisions, contracts, links, generated files.
    Check(check::CheckArguments),
    /// Run benchmarks of kubeon and its peers in one run.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Build the images of operator, runner and bundle.
    Images(images::Images),
    /// Run the conformance tests of Kubernetes against a cluster in the lab.
    Conformance(conformance::Conformance),
    /// Search for inputs that a parser does not survive.
    Fuzz(fuzz::Fuzz),
    /// Build the files that people download: programs, completions, man pages, checksums.
    Dist(dist::Dist),
}

fn main() -> Result<()> {
    let root = workspace::root();
    match Arguments::parse().task {
        Task::Gen => generate::write(&root),
        Task::Check(arguments) => check::run(&root, &arguments),
        Task::Bench(bench) => bench::run(&root, &bench),
        Task::Images(images) => images::run(&root, &images),
        Task::Conformance(conformance) => conformance::run(&root, &conformance),
        Task::Fuzz(fuzz) => fuzz::run(&root, &fuzz),
        Task::Dist(dist) => dist::run(&root, &dist),
    }
}
