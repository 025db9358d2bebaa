//! Reserved commands that this version does not support yet.

use clap::{Args, Subcommand};

/// A command that is not supported yet. Its arguments are not parsed.
#[derive(Debug, Subcommand)]
pub(crate) enum Later {
    #[command(hide = true, alias = "cl")]
    Cloud(IgnoredArgs),
}

/// Arguments that are not parsed.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct IgnoredArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub words: Vec<String>,
}

impl Later {
    /// The name of the command, and the alternative.
    pub(crate) fn parts(&self) -> (&'static str, &'static str) {
        match self {
            Self::Cloud(_) => ("cloud", "the vxlan network of flannel connects the pods of all hosts"),
        }
    }
}
