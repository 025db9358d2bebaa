//! The commands.

use clap::{Args, Parser, Subcommand};

use super::format::FormatFlag;
use super::verbosity::VerbosityFlags;
use super::{bundle, cluster, day, lab, later, meta, precheck, scale, state};

const ABOUT: &str = "Create Kubernetes clusters on Linux hosts over SSH, and keep them as declared";
const EXAMPLES: &str = "Examples:
  kubeon lab up --hosts 3                                  three hosts on this machine, to try it on
  kubeon plan demo v1.36.3 -m 172.30.0.11 -w 172.30.0.12   what would be done, and why; writes nothing
  kubeon create demo v1.36.3 -m 172.30.0.11 -w 172.30.0.12
  kubeon use demo && kubectl get nodes
  kubeon ls -o json

Exit codes: 0 done, 1 failed on the way, 2 refused before the first effect, 130 interrupted.
State: ~/.kubeon, or $KUBEON_HOME. Results go to stdout, everything else to stderr.";

/// `kubeon`.
#[derive(Debug, Parser)]
#[command(name = "kubeon", version = concat!("version ", env!("CARGO_PKG_VERSION")), about = ABOUT, after_help = EXAMPLES)]
#[command(disable_help_subcommand = false, max_term_width = 110)]
pub(crate) struct CommandLine {
    #[command(flatten)]
    pub output: VerbosityFlags,
    #[command(subcommand)]
    pub command: Option<CliCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Make a cluster, or continue making it
    #[command(visible_aliases = ["c", "new"], after_help = cluster::CREATE_EXAMPLES)]
    Create(Box<cluster::CreateArgs>),
    /// Show what would be done, and why; writes nothing anywhere
    #[command(after_help = cluster::PLAN_EXAMPLES)]
    Plan(Box<cluster::PlanArgs>),
    /// Check hosts: whether they can take part, and why not; writes nothing anywhere
    #[command(after_help = precheck::PRECHECK_EXAMPLES)]
    Precheck(Box<precheck::PrecheckArgs>),
    /// Show a cluster: certificates, nodes, pods, containers, etcd
    #[command(visible_aliases = ["d", "dp", "cluster-info"])]
    Display(day::DisplayArgs),
    /// List clusters
    #[command(visible_alias = "list")]
    Ls(day::LsArgs),
    /// Choose the cluster that commands and kubectl mean
    Use(day::UseArgs),
    /// Run a command on nodes
    #[command(after_help = day::EXEC_EXAMPLES)]
    Exec(day::ExecArgs),
    /// Copy a file to nodes
    #[command(visible_alias = "cp", after_help = day::COPY_EXAMPLES)]
    Copy(day::CopyArgs),
    /// Add workers to a cluster
    #[command(visible_alias = "add", after_help = scale::ADDON_EXAMPLES)]
    Addon(Box<scale::AddonArgs>),
    /// Remove workers: their pods go elsewhere, then their hosts become bare again
    #[command(visible_aliases = ["del", "rm"], after_help = scale::DELON_EXAMPLES)]
    Delon(scale::DelonArgs),
    /// Take a cluster away from its hosts
    #[command(visible_aliases = ["D", "rmr"])]
    Destroy(day::DestroyArgs),
    /// Show what is supported
    #[command(visible_alias = "v")]
    View(day::ViewArgs),
    /// Make, list and check bundles: all parts of one Kubernetes version
    Bundle(bundle::BundleArgs),
    /// Load images into the nodes of a cluster
    Image(bundle::ImageArgs),
    /// Make Linux hosts on this machine, to try things on
    Lab(lab::LabArgs),
    /// Put the operator into a cluster, so that it creates clusters from custom resources
    Meta(meta::MetaArgs),
    /// Write a completion script for a shell
    #[command(
        after_help = "Examples:\n  source <(kubeon completion bash)\n  kubeon completion zsh > ~/.zfunc/_kubeon"
    )]
    Completion(CompletionArgs),
    /// Keep a cluster's state elsewhere
    #[command(hide = true)]
    State(state::StateArgs),
    /// Say the version
    #[command(visible_alias = "ver")]
    Version(VersionArgs),
    #[command(flatten)]
    Later(later::Later),
}

/// `kubeon completion`.
#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `kubeon version`.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    #[command(flatten)]
    pub format: FormatFlag,
}
