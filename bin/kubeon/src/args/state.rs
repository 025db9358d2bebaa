//! `kubeon state`: for programs that store the state of a cluster elsewhere.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    #[command(subcommand)]
    pub command: StateCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// Write the state and the keys of a cluster to standard output: tar, zstd
    Export(StateName),
    /// Import an exported state from standard input
    Import(StateName),
}

#[derive(Debug, Args)]
pub(crate) struct StateName {
    /// The cluster
    pub name: String,
}
