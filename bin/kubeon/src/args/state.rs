//! `kubeon state`: for programs that keep a cluster's state elsewhere.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct StateArgs {
    #[command(subcommand)]
    pub command: StateCommand,
}

#[derive(Debug, Subcommand)]
pub enum StateCommand {
    /// Write all that is known of a cluster, with its keys, to standard output: tar, zstd
    Export(StateName),
    /// Put what export wrote in place, from standard input
    Import(StateName),
}

#[derive(Debug, Args)]
pub struct StateName {
    /// The cluster
    pub name: String,
}
