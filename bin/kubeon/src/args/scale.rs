//! Commands that add and remove workers.

use clap::Args;

use super::contact::ContactFlags;
use super::drain::LeaveFlags;
use super::format::FormatFlag;
use super::ignore::IgnoreFlag;
use super::login::KnownLoginFlags;
use super::node::NodeFlags;
use super::pre_apply::PreApplyFlags;
use super::rolling::RollingFlags;

pub(crate) const ADDON_EXAMPLES: &str = "Examples:
  kubeon addon demo -w 172.30.0.14
  kubeon addon demo -w 172.30.0.14,172.30.0.15 --default-user admin --dry-run";
pub(crate) const DELON_EXAMPLES: &str =
    "A selector is ip=ADDRESS, name=NAME, a node's name or address, or @w*; see kubeon exec --help

Examples:
  kubeon delon demo name=h4
  kubeon delon demo ip=172.30.0.14,172.30.0.15 --yes
  kubeon delon demo h4 --yes --without 172.30.0.14   its host is dead: skip the host";

/// `kubeon addon`.
#[derive(Debug, Args)]
pub(crate) struct AddonArgs {
    /// The cluster [default: the chosen cluster]
    pub name: Option<String>,
    #[command(flatten)]
    pub nodes: NodeFlags,
    /// Skip this worker, which does not answer; may be repeated
    #[arg(
        id = "without",
        long = "without",
        value_name = "ADDRESS",
        value_delimiter = ',',
        help_heading = "Workers"
    )]
    pub skip_hosts: Vec<String>,
    #[command(flatten)]
    pub rolling: RollingFlags,
    #[command(flatten)]
    pub ignore: IgnoreFlag,
    /// Only show the plan
    #[arg(long, help_heading = None)]
    pub dry_run: bool,
    #[command(flatten)]
    pub pre_apply_wait: PreApplyFlags,
    #[command(flatten)]
    pub contact: ContactFlags,
    #[command(flatten)]
    pub format: FormatFlag,
}

/// `kubeon delon`.
#[derive(Debug, Args)]
pub(crate) struct DelonArgs {
    /// The cluster
    pub name: String,
    /// The workers: a name, an address, name=…, ip=… or @w*
    pub selector: String,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Remove this worker, which does not answer, without contacting its host; may be repeated
    #[arg(id = "without", long = "without", value_name = "ADDRESS", value_delimiter = ',')]
    pub skip_hosts: Vec<String>,
    #[command(flatten)]
    pub leave: LeaveFlags,
    #[command(flatten)]
    pub rolling: RollingFlags,
    #[command(flatten)]
    pub ignore: IgnoreFlag,
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
