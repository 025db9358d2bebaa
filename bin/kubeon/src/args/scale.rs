//! Commands that add, remove and replace hosts.

use clap::Args;
use kubeon_api::{HostAddress, HostName};

use super::approved_plan::ApprovedPlanFlag;
use super::common_change::CommonChangeFlags;
use super::contact::ContactFlags;
use super::drain::LeaveFlags;
use super::etcd_hosts::EtcdHostFlags;
use super::format::FormatFlag;
use super::ignore::IgnoreFlag;
use super::login::KnownLoginFlags;
use super::node::NodeFlags;
use super::only_parts::OnlyPartsFlag;
use super::pre_apply::PreApplyFlags;
use super::rolling::RollingFlags;

pub(crate) const ADDON_EXAMPLES: &str = "Examples:
  kubeon addon demo -w 172.30.0.14
  kubeon addon demo -w 172.30.0.14,172.30.0.15 --default-user admin --dry-run
  kubeon addon demo -m 172.30.0.16,172.30.0.17   masters join one after another
  kubeon addon demo -w 172.30.0.14 --only-parts  parts now, kubeon create demo does the rest
  kubeon addon demo --etcd 172.30.0.18           etcd alone, if the cluster has such hosts";
pub(crate) const DELON_EXAMPLES: &str =
    "A selector is ip=ADDRESS, name=NAME, a host's name or address, or @w*; see kubeon exec --help
A master or a host of etcd leaves only if the etcd members that stay have a quorum without it.

Examples:
  kubeon delon demo name=h4
  kubeon delon demo ip=172.30.0.14,172.30.0.15 --yes
  kubeon delon demo h4 --yes --without 172.30.0.14   its host is dead: skip the host";

pub(crate) const REPLACE_EXAMPLES: &str = "The old master or host of etcd is lost: nothing on it is changed. Its etcd member is removed before the new one joins.
To exchange a master that works, add the new one first: kubeon addon CLUSTER -m NEW, then kubeon delon CLUSTER OLD

Examples:
  kubeon replace demo h3 172.30.0.16
  kubeon replace demo 172.30.0.13 172.30.0.16 --dry-run";

pub(crate) const READDRESS_EXAMPLES: &str = "The machine stays the same and must have its new address already: it keeps its data, its keys and its node name.
Change one host after another: a majority of the masters must serve meanwhile, except in a cluster with one master.

Examples:
  kubeon readdress demo h3 172.30.0.23
  kubeon readdress demo 172.30.0.13 172.30.0.23 --dry-run";

/// `kubeon addon`.
#[derive(Debug, Args)]
pub(crate) struct AddonArgs {
    /// The cluster [default: the chosen cluster]
    pub name: Option<String>,
    #[command(flatten)]
    pub nodes: NodeFlags,
    #[command(flatten)]
    pub etcd_hosts: EtcdHostFlags,
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
    pub only_parts: OnlyPartsFlag,
    #[command(flatten)]
    pub approved: ApprovedPlanFlag,
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
    /// The hosts: a name, an address, ADDRESS:PORT, name=…, ip=… or @w*
    pub selector: String,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Remove this host, which does not answer, without contacting it; may be repeated
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
    pub approved: ApprovedPlanFlag,
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

/// `kubeon replace`.
#[derive(Debug, Args)]
pub(crate) struct ReplaceArgs {
    /// The cluster
    pub name: String,
    /// The lost master or host of etcd: its name or address
    pub old: String,
    /// The address of the new one
    pub new: HostAddress,
    /// The node name of the new one [default: the host name]
    #[arg(short = 'M', long, value_name = "NAME")]
    pub new_name: Option<HostName>,
    /// Its own address in the cluster's network [default: the address]
    #[arg(long, value_name = "ADDRESS", hide_short_help = true)]
    pub internal_address: Option<HostAddress>,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub yes: bool,
    #[command(flatten)]
    pub change: CommonChangeFlags,
}

/// `kubeon readdress`.
#[derive(Debug, Args)]
pub(crate) struct ReaddressArgs {
    /// The cluster
    pub name: String,
    /// The host: its node name or its old address
    pub host: String,
    /// Its new address
    pub new: HostAddress,
    /// Its new address in the cluster's network [default: the one that it has there, else NEW]
    #[arg(long, value_name = "ADDRESS")]
    pub internal_address: Option<HostAddress>,
    #[command(flatten)]
    pub change: CommonChangeFlags,
}
