//! Commands whose names are taken but which this version does not have yet.

use clap::{Args, Subcommand};

/// A command that is not there yet. Its arguments are taken as they come.
#[derive(Debug, Subcommand)]
pub(crate) enum Later {
    #[command(hide = true, aliases = ["U", "up"])]
    Upgrade(IgnoredArgs),
    #[command(hide = true)]
    Etcd(IgnoredArgs),
    #[command(hide = true, alias = "m")]
    Module(IgnoredArgs),
    #[command(hide = true, alias = "R")]
    Redo(IgnoredArgs),
    #[command(hide = true, alias = "cl")]
    Cloud(IgnoredArgs),
    #[command(hide = true, alias = "down")]
    Download(IgnoredArgs),
}

/// Whatever follows.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct IgnoredArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub words: Vec<String>,
}

impl Later {
    /// The command's name, what was typed after it, and what serves today in its place.
    pub(crate) fn parts(&self) -> (&'static str, &[String], &'static str) {
        match self {
            Self::Upgrade(w) => {
                ("upgrade", &w.words, "destroy the cluster and create it with the new version")
            }
            Self::Etcd(w) => ("etcd", &w.words, "use: kubeon exec NAME@cp1 'etcdctl …'"),
            Self::Module(w) => ("module", &w.words, "every part of a bundle is installed by: kubeon create"),
            Self::Redo(w) => ("redo", &w.words, "a bare `kubeon create NAME` mends what drifted"),
            Self::Cloud(w) => ("cloud", &w.words, "hosts reach each other's pods over vxlan"),
            Self::Download(w) => ("download", &w.words, "use: kubeon bundle build VERSION"),
        }
    }
}
