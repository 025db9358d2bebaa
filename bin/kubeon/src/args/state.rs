//! `kubeon state`: keeps the state of a cluster elsewhere, and brings it to another control machine.

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(crate) const STATE_EXAMPLES: &str = "An exported state contains the keys of the cluster: keep it secret. It is a tar archive, compressed with zstd.
If no exported state is left, kubeon adopt reads state and keys from a master.

Examples:
  kubeon state export demo demo.tar.zst
  kubeon state import demo demo.tar.zst              on another machine; never replaces a newer state
  kubeon state export demo | ssh other kubeon state import demo";

#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    #[command(subcommand)]
    pub command: StateCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// Write the state and the keys of a cluster to a new file, or to standard output
    Export(ExportArgs),
    /// Import an exported state from a file, or from standard input; never replaces a newer state
    Import(ImportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The cluster
    pub name: String,
    /// The file to create, readable by its owner only [default: standard output]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The cluster
    pub name: String,
    /// The exported state [default: standard input]
    pub file: Option<PathBuf>,
}
