//! Commands on an existing cluster.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::contact::ContactFlags;
use super::format::FormatFlag;
use super::login::KnownLoginFlags;
use super::pre_apply::PreApplyFlags;

pub(crate) const EXEC_EXAMPLES: &str = "A selector is CLUSTER@SEL, where SEL is one of
  all  every host        cp*  every master      cp1  the first master      cpN  the other masters
  w*   every worker      j*   every node except the first                  etcd*  every host of etcd
  a host's name or address, or name=a,b  n=a,b  ip=10.0.0.1,10.0.0.2

Examples:
  kubeon exec demo@all uptime
  kubeon exec demo@h3 'journalctl -u kubelet -n 50'
  kubeon exec demo@w* -P systemctl -p is-active -p kubelet";
pub(crate) const COPY_EXAMPLES: &str = "Examples:
  kubeon copy demo@all ./motd /etc/motd
  kubeon copy demo@w* ./app.conf /etc/app/";

#[derive(Debug, Args)]
pub(crate) struct DisplayArgs {
    /// The cluster [default: the chosen cluster]
    pub name: Option<String>,
    #[command(flatten)]
    pub login: KnownLoginFlags,
    #[command(flatten)]
    pub contact: ContactFlags,
    #[command(flatten)]
    pub format: FormatFlag,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    pub login: KnownLoginFlags,
    #[command(flatten)]
    pub contact: ContactFlags,
    #[command(flatten)]
    pub format: FormatFlag,
}

#[derive(Debug, Args)]
pub(crate) struct UseArgs {
    /// The cluster; if it is omitted, print the chosen cluster
    pub name: Option<String>,
    #[command(flatten)]
    pub format: FormatFlag,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// CLUSTER@SEL
    pub selector: String,
    /// The command; its words are joined by spaces and run by the shell of the node
    #[arg(required = true)]
    pub command: Vec<String>,
    /// A further word of the command; may be repeated
    #[arg(short = 'p', long = "arg", value_name = "ARG", allow_hyphen_values = true)]
    pub args: Vec<String>,
    /// Accepted for compatibility: the output is always shown
    #[arg(short = 'R', long)]
    pub result: bool,
    /// Run on all nodes in parallel, at most 32 at once
    #[arg(short = 'P', long)]
    pub parallel: bool,
    /// Time limit of the command on each node, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub timeout: u64,
    #[command(flatten)]
    pub login: KnownLoginFlags,
    #[command(flatten)]
    pub contact: ContactFlags,
    #[command(flatten)]
    pub format: FormatFlag,
}

#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// CLUSTER@SEL
    pub selector: String,
    /// The local file or folder
    pub source: PathBuf,
    /// The path on the nodes; a folder if it exists as a folder or ends in /
    pub destination: String,
    /// Only show the destinations
    #[arg(long, help_heading = None)]
    pub dry_run: bool,
    #[command(flatten)]
    pub login: KnownLoginFlags,
    #[command(flatten)]
    pub contact: ContactFlags,
    #[command(flatten)]
    pub format: FormatFlag,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  kubeon destroy demo --dry-run\n  kubeon destroy demo --yes")]
pub(crate) struct DestroyArgs {
    /// The cluster [default: the chosen cluster]
    pub name: Option<String>,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Reboot the hosts afterwards
    #[arg(short = 'f', long)]
    pub force: bool,
    /// Skip this host, which is permanently lost; may be repeated
    #[arg(id = "without", long = "without", value_name = "ADDRESS", value_delimiter = ',')]
    pub skip_hosts: Vec<String>,
    /// Only show the plan
    #[arg(long, help_heading = None)]
    pub dry_run: bool,
    #[command(flatten)]
    pub pre_apply_wait: PreApplyFlags,
    #[command(flatten)]
    pub inventory: super::inventory::InventoryFlags,
    #[command(flatten)]
    pub login: KnownLoginFlags,
    #[command(flatten)]
    pub contact: ContactFlags,
    #[command(flatten)]
    pub format: FormatFlag,
}

#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    #[command(subcommand)]
    pub command: Option<ViewCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ViewCommand {
    /// The supported versions, one range per line
    #[command(visible_alias = "sp")]
    Support(ViewSupport),
    /// The components of a version
    #[command(visible_alias = "cp")]
    Component(ViewComponent),
    /// What a program of a cluster is configured with: the files, units and objects that kubeon writes
    #[command(visible_alias = "conf", after_help = VIEW_CONFIG_EXAMPLES)]
    Config(Box<ViewConfig>),
}

#[derive(Debug, Args)]
pub(crate) struct ViewSupport {
    #[command(flatten)]
    pub format: FormatFlag,
}

const VIEW_CONFIG_EXAMPLES: &str = "Secrets are left out. The content is that of the first host that has it.

Examples:
  kubeon view config demo kubelet
  kubeon view config demo haproxy
  kubeon view config demo coredns";

#[derive(Debug, Args)]
pub(crate) struct ViewConfig {
    /// The cluster
    pub name: String,
    /// The program: kubelet, kube-proxy, containerd, haproxy, flannel, coredns, etcd, kube-apiserver, …
    pub program: String,
    #[command(flatten)]
    pub login: super::login::KnownLoginFlags,
    #[command(flatten)]
    pub contact: super::contact::ContactFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ViewComponent {
    /// The Kubernetes version, such as v1.36.3
    pub version: String,
    #[command(flatten)]
    pub format: FormatFlag,
}
