//! The workspace's own tools: `gen` writes generated files, `check` checks the rules of the workspace, `bench` measures,
//! `images` builds images.

mod bench;
mod check;
mod generate;
mod images;
mod terminal;
mod workspace;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "The workspace's own tools")]
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
    /// Measure, side by side with peers, in one run.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Build the images of operator, runner and bundle.
    Images(images::Images),
}

fn main() -> Result<()> {
    let root = workspace::root();
    match Arguments::parse().task {
        Task::Gen => generate::write(&root),
        Task::Check(arguments) => check::run(&root, &arguments),
        Task::Bench(bench) => bench::run(&root, &bench),
        Task::Images(images) => images::run(&root, &images),
    }
}
