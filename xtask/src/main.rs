//! The workspace's own tools: `gen` writes what is generated, `check` holds the workspace to its rules,
//! `bench` measures.

mod bench;
mod check;
mod generate;
mod images;

use std::path::{Path, PathBuf};

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
    /// Check the rules of the workspace: layers, lengths, names, phrases, import cycles, decisions, contracts, generated files.
    Check(check::CheckArguments),
    /// Measure, side by side with peers, in one run.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Build the images of operator, runner and bundle.
    Images(images::Images),
}

fn main() -> Result<()> {
    let root = root();
    match Arguments::parse().task {
        Task::Gen => generate::write(&root),
        Task::Check(arguments) => check::run(&root, &arguments),
        Task::Bench(bench) => bench::run(&root, &bench),
        Task::Images(images) => images::run(&root, &images),
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Says a line to the person at the terminal.
#[allow(clippy::print_stdout)]
fn say(line: &str) {
    println!("{line}");
}
