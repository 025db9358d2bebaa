//! `kubeon state`: for programs that keep a cluster's state elsewhere.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    #[command(subcommand)]
    pub command: StateCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// Write all that is known of a cluster, with its keys, to standard output: tar, zstd
    Export(StateName),
    /// Put what export wrote in place, from standard input
    Import(StateName),
}

#[derive(Debug, Args)]
pub(crate) struct StateName {
    /// The cluster
    pub name: String,
}
