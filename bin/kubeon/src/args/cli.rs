//! The command line and its commands.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::format::FormatFlag;
use super::server::{ApproveArgs, LogsArgs, OperationsArgs, ServerFlags};
use super::verbosity::VerbosityFlags;
use super::{
    adopt, bundle, certs, cloud, cluster, config, day, etcd, lab, meta, module, precheck, scale, state,
    upgrade,
};

const ABOUT: &str = "Create Kubernetes clusters on Linux hosts over SSH, and keep them as declared";
const EXAMPLES: &str = "Examples:
  kubeon lab up --hosts 3                                    start three hosts for tests
  kubeon plan demo v1.36.3 -m 172.30.0.11 -w 172.30.0.12     show the steps; writes nothing
  kubeon create demo v1.36.3 -m 172.30.0.11 -w 172.30.0.12   create the cluster
  kubeon use demo && kubectl get nodes
  kubeon ls -o json

Exit codes: 0 done, 1 failed, 2 refused before the first effect, 130 interrupted.
State: ~/.kubeon, or $KUBEON_HOME. Results go to stdout, everything else to stderr.";

/// `kubeon`.
#[derive(Debug, Parser)]
#[command(name = "kubeon", version = concat!("version ", env!("CARGO_PKG_VERSION")), about = ABOUT, after_help = EXAMPLES)]
#[command(disable_help_subcommand = false, max_term_width = 110)]
pub(crate) struct CommandLine {
    #[command(flatten)]
    pub output: VerbosityFlags,
    #[command(flatten)]
    pub server: ServerFlags,
    #[command(subcommand)]
    pub command: Option<CliCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Create a cluster, or continue an incomplete creation or change
    #[command(visible_aliases = ["c", "new"], after_help = cluster::CREATE_EXAMPLES)]
    Create(Box<cluster::CreateArgs>),
    /// Show the steps of a change and their reasons; writes nothing
    #[command(after_help = cluster::PLAN_EXAMPLES)]
    Plan(Box<cluster::PlanArgs>),
    /// Check whether hosts meet the requirements; writes nothing
    #[command(after_help = precheck::PRECHECK_EXAMPLES)]
    Precheck(Box<precheck::PrecheckArgs>),
    /// Show a cluster: certificates, nodes, pods, containers, etcd
    #[command(visible_aliases = ["d", "dp", "cluster-info"])]
    Display(day::DisplayArgs),
    /// List clusters
    #[command(visible_alias = "list")]
    Ls(day::LsArgs),
    /// Choose the default cluster of kubeon and kubectl
    Use(day::UseArgs),
    /// Run a command on nodes
    #[command(after_help = day::EXEC_EXAMPLES)]
    Exec(day::ExecArgs),
    /// Copy a file to nodes
    #[command(visible_alias = "cp", after_help = day::COPY_EXAMPLES)]
    Copy(day::CopyArgs),
    /// Install programs of your own on nodes
    #[command(subcommand, visible_alias = "m", after_help = module::MODULE_EXAMPLES)]
    Module(module::ModuleCommand),
    /// Add workers or masters to a cluster
    #[command(visible_alias = "add", after_help = scale::ADDON_EXAMPLES)]
    Addon(Box<scale::AddonArgs>),
    /// Remove workers or masters: drain them, then clean their hosts
    #[command(visible_aliases = ["del", "rm"], after_help = scale::DELON_EXAMPLES)]
    Delon(scale::DelonArgs),
    /// Replace a master or a host of etcd that is lost by a new one
    #[command(after_help = scale::REPLACE_EXAMPLES)]
    Replace(Box<scale::ReplaceArgs>),
    /// Change the address of a host that stays in its cluster
    #[command(after_help = scale::READDRESS_EXAMPLES)]
    Readdress(Box<scale::ReaddressArgs>),
    /// Rebuild the lost state of a cluster from its masters, or take over a cluster of kubeadm
    #[command(after_help = adopt::ADOPT_EXAMPLES)]
    Adopt(Box<adopt::AdoptArgs>),
    /// Change a cluster to another Kubernetes version while it serves
    #[command(visible_aliases = ["U", "up"], after_help = upgrade::UPGRADE_EXAMPLES)]
    Upgrade(Box<upgrade::UpgradeArgs>),
    /// Go back to the version before an upgrade that is not complete
    #[command(after_help = upgrade::ABORT_EXAMPLES)]
    Abort(Box<upgrade::AbortArgs>),
    /// Let the command that changes a cluster stop after its running steps
    #[command(after_help = upgrade::PAUSE_EXAMPLES)]
    Pause(upgrade::PauseArgs),
    /// Continue the last change of a cluster
    Resume(Box<upgrade::ResumeArgs>),
    /// Return to the snapshot from before an upgrade, or bring the nodes back alone
    #[command(after_help = upgrade::ROLLBACK_EXAMPLES)]
    Rollback(Box<upgrade::RollbackArgs>),
    /// Read and change the settings of a cluster
    #[command(subcommand, after_help = config::CONFIG_EXAMPLES)]
    Config(config::ConfigCommand),
    /// Run etcdctl on a master, save snapshots, show the health of the members
    #[command(after_help = etcd::ETCD_EXAMPLES)]
    Etcd(Box<etcd::EtcdArgs>),
    /// Keep routes to the pods of a cluster in route tables of a cloud provider
    #[command(subcommand, visible_alias = "cl", after_help = cloud::CLOUD_EXAMPLES)]
    Cloud(cloud::CloudCommand),
    /// Replace the keys of a cluster
    #[command(visible_alias = "cert")]
    Certs(certs::CertsArgs),
    /// Remove a cluster from its hosts
    #[command(visible_aliases = ["D", "rmr"])]
    Destroy(day::DestroyArgs),
    /// Show the supported versions and components
    #[command(visible_alias = "v")]
    View(day::ViewArgs),
    /// Build, list and check bundles: all parts of one Kubernetes version
    Bundle(bundle::BundleArgs),
    /// Build the bundle of a version, as kubeon bundle build does
    #[command(hide = true, alias = "down")]
    Download(bundle::DownloadArgs),
    /// Write again what the hosts of a cluster lost
    #[command(subcommand, hide = true, alias = "R")]
    Redo(upgrade::RedoCommand),
    /// Load images into the nodes of a cluster
    Image(bundle::ImageArgs),
    /// Run Linux hosts on this machine, for tests
    Lab(lab::LabArgs),
    /// Install the operator into a cluster, where it creates clusters from custom resources
    Meta(meta::MetaArgs),
    /// List operations; needs --server
    #[command(visible_alias = "ops")]
    Operations(OperationsArgs),
    /// Apply the plan of an operation; needs --server
    Approve(ApproveArgs),
    /// Show the log of an operation; needs --server
    Logs(LogsArgs),
    /// Print a completion script for a shell
    #[command(
        after_help = "Examples:\n  source <(kubeon completion bash)\n  kubeon completion zsh > ~/.zfunc/_kubeon"
    )]
    Completion(CompletionArgs),
    /// Write a man page for every command
    #[command(hide = true)]
    ManPages(ManPagesArgs),
    /// Export the state and the keys of a cluster, and import them on another machine
    #[command(after_help = state::STATE_EXAMPLES)]
    State(state::StateArgs),
    /// Print the version
    #[command(visible_alias = "ver")]
    Version(VersionArgs),
}

/// `kubeon completion`.
#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `kubeon man-pages`.
#[derive(Debug, Args)]
pub(crate) struct ManPagesArgs {
    /// The folder of the pages
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

/// `kubeon version`.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    #[command(flatten)]
    pub format: FormatFlag,
}
