//! `kubeon module`.

use clap::{Args, Subcommand};

use super::contact::ContactFlags;
use super::format::FormatFlag;
use super::login::KnownLoginFlags;

pub(crate) const MODULE_EXAMPLES: &str = "A module is an archive NAME.tar with an install.sh, which runs as root on each node and gets the Kubernetes version and
the container runtime as its arguments. It may carry an uninstall.sh, and a unit NAME.service that is enabled and started.
A selector is CLUSTER@SEL, as of kubeon exec.

Examples:
  kubeon module install demo@all ./node-agent.tar
  kubeon module install demo@w* node-agent           the archive is ~/.kubeon/dist/node-agent.tar
  kubeon module uninstall demo@all node-agent
  kubeon module inner demo coredns                   apply the objects of CoreDNS again";

/// `kubeon module`.
#[derive(Debug, Subcommand)]
pub(crate) enum ModuleCommand {
    /// Install a module on nodes, or install it again
    #[command(visible_alias = "add")]
    Install(ModuleArgs),
    /// Remove a module from nodes
    #[command(visible_alias = "rm")]
    Uninstall(ModuleArgs),
    /// Apply the objects of a program of the bundle again
    #[command(visible_alias = "in")]
    Inner(InnerArgs),
}

/// `kubeon module install` and `uninstall`.
#[derive(Debug, Args)]
pub(crate) struct ModuleArgs {
    /// CLUSTER@SEL
    pub selector: String,
    /// The archive, or the name of the module
    pub unit: String,
    /// Time limit on each node, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub timeout: u64,
    /// Only show what would be done
    #[arg(long, help_heading = None)]
    pub dry_run: bool,
    #[command(flatten)]
    pub login: KnownLoginFlags,
    #[command(flatten)]
    pub contact: ContactFlags,
    #[command(flatten)]
    pub format: FormatFlag,
}

/// `kubeon module inner`.
#[derive(Debug, Args)]
pub(crate) struct InnerArgs {
    /// The cluster
    pub name: String,
    /// The program: coredns, kube-proxy, flannel, …
    pub program: String,
    /// Let the API server check the objects, and change nothing
    #[arg(long, help_heading = None)]
    pub dry_run: bool,
    #[command(flatten)]
    pub login: KnownLoginFlags,
    #[command(flatten)]
    pub contact: ContactFlags,
}
