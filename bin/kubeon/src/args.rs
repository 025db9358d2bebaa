//! The command line and the environment: the only place that reads either.

pub mod bundle;
pub mod cluster;
pub mod day;
pub mod environment;
pub mod inventory;
pub mod lab;
pub mod later;
pub mod login;
pub mod meta;
pub mod missing;
pub mod node;
pub mod precheck;
pub mod scale;
pub mod settings;
pub mod state;
pub mod typed;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use kubeon_engine::host_keys::HostKeyOptions;
use kubeon_engine::pre_apply_hook::PreApplyWait;

pub use environment::Environment;
pub use typed::Typed;

const ABOUT: &str = "Raise Kubernetes clusters on Linux hosts, over SSH, and keep them as declared";
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
pub struct Cli {
    #[command(flatten)]
    pub output: VerbosityFlags,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// How much is said.
#[derive(Debug, Clone, Args)]
pub struct VerbosityFlags {
    /// How much is told: 0 errors, 1 progress, 4 every step's words, 6 and more for debugging
    #[arg(
        short = 'v',
        long = "v",
        global = true,
        value_name = "N",
        default_value_t = 1,
        allow_negative_numbers = true,
        help_heading = "CliOutput"
    )]
    pub verbosity: i32,
    /// Only results and errors
    #[arg(long, global = true, help_heading = "CliOutput")]
    pub quiet: bool,
    /// How progress is told on standard error: for people, or one line of JSON for each thing that happens
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORM",
        default_value = "human",
        hide_short_help = true,
        help_heading = "CliOutput"
    )]
    pub progress: ProgressForm,
}

/// How progress is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressForm {
    Human,
    Json,
}

/// `--hold` and `--hold-for`.
#[derive(Debug, Clone, Default, Args)]
pub struct HoldFlag {
    /// Before the first effect on a host, wait up to 120 s for a line on standard input
    #[arg(long, hide_short_help = true, help_heading = "CliOutput", conflicts_with = "hold_for")]
    hold: bool,
    /// Before the first effect on a host, run PROGRAM with the cluster's name and go on when it succeeds; it may keep
    /// what `kubeon state export` writes
    #[arg(
        long,
        value_name = "PROGRAM",
        env = "KUBEON_HOLD_FOR",
        hide_short_help = true,
        help_heading = "CliOutput"
    )]
    hold_for: Option<PathBuf>,
}

impl HoldFlag {
    /// What is waited for.
    pub fn wanted(&self) -> PreApplyWait {
        match &self.hold_for {
            Some(program) => PreApplyWait::Program(program.clone()),
            None if self.hold => PreApplyWait::Line,
            None => PreApplyWait::Nothing,
        }
    }
}

/// How a result is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns for people
    Table,
    /// More columns
    Wide,
    /// Names only, one a line
    Name,
    Json,
    Yaml,
}

/// `-o`.
#[derive(Debug, Clone, Args)]
pub struct FormatFlag {
    /// How the result is written
    #[arg(short = 'o', long = "output", value_enum, help_heading = None, value_name = "FORMAT", default_value = "table")]
    pub output: Format,
}

#[derive(Debug, Subcommand)]
pub enum Command {
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
    /// Put the operator into a cluster, so that it raises clusters of its own
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
pub struct CompletionArgs {
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `kubeon version`.
#[derive(Debug, Args)]
pub struct VersionArgs {
    #[command(flatten)]
    pub format: FormatFlag,
}

/// How hosts are proven to be the right ones, and logged in to again.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Login")]
pub struct ContactFlags {
    /// Pin the keys of hosts seen for the first time without asking
    #[arg(long)]
    pub accept_new: bool,
    /// Host keys are looked up here as well, in OpenSSH's format
    #[arg(long, value_name = "FILE")]
    pub known_hosts: Option<PathBuf>,
}

impl ContactFlags {
    /// Which host keys are accepted.
    pub fn options(&self) -> HostKeyOptions {
        HostKeyOptions { accept_new: self.accept_new, known_hosts: self.known_hosts.clone() }
    }
}

#[cfg(test)]
mod tests;
