//! `kubeon create` and `kubeon plan`: the same flags describe the cluster.

use std::path::PathBuf;

use clap::Args;

use super::approved_plan::{ApprovedPlanFlag, PlanFileFlag};
use super::cloud::CloudFlags;
use super::contact::ContactFlags;
use super::drain::LeaveFlags;
use super::format::FormatFlag;
use super::ignore::IgnoreFlag;
use super::inventory::{InventoryFlags, LimitFlag};
use super::missing::MissingFlags;
use super::node::NodeFlags;
use super::only_parts::OnlyPartsFlag;
use super::pre_apply::PreApplyFlags;
use super::rolling::RollingFlags;
use super::settings::SettingFlags;

pub(crate) const CREATE_EXAMPLES: &str = "Examples:
  kubeon create demo v1.36.3 -m 172.30.0.11 -w 172.30.0.12 -w 172.30.0.13
  kubeon create demo v1.36.3 -m 10.0.0.1,10.0.0.2,10.0.0.3 --default-user admin
  kubeon create -f demo.yaml
  kubeon create -f demo.yaml --yes   after workers were added to the file or removed from it
  kubeon create demo                 continue an incomplete run, or repair drift
  kubeon create -f demo.yaml --approved-plan plan.json   only what kubeon plan -f demo.yaml --out plan.json showed

Flags of parts that no bundle carries (calico, cilium, istio, …) are refused by name.";
pub(crate) const PLAN_EXAMPLES: &str = "Examples:
  kubeon plan demo v1.36.3 -m 172.30.0.11 -w 172.30.0.12
  kubeon plan -f demo.yaml
  kubeon plan demo                   show the differences between the hosts and the request
  kubeon plan demo -o json | jq '.steps[].title'";

/// The cluster: declared by flags or a file, or the name of a stored cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClusterArgs {
    /// The cluster's name
    pub name: Option<String>,
    /// The Kubernetes version, such as v1.36.3, or stable or latest; omit it to continue a stored cluster
    pub version: Option<String>,
    /// A file with a KubernetesCluster instead of flags; - for standard input
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub inventory: InventoryFlags,
    #[command(flatten)]
    pub limit: LimitFlag,
    #[command(flatten)]
    pub nodes: NodeFlags,
    #[command(flatten)]
    pub settings: SettingFlags,
    #[command(flatten)]
    pub cloud: CloudFlags,
    #[command(flatten)]
    pub missing: MissingFlags,
    /// Skip this worker, which does not answer; may be repeated
    #[arg(
        id = "without",
        long = "without",
        value_name = "ADDRESS",
        value_delimiter = ',',
        help_heading = "Workers"
    )]
    pub skip_hosts: Vec<String>,
    /// Keep workers that are leaving and are requested again
    #[arg(long, help_heading = "Workers", hide_short_help = true)]
    pub take_back: bool,
    /// Contact only the masters and the workers that join or leave, if the request changes nothing else
    #[arg(long, help_heading = "Workers", hide = true)]
    pub only_changed_workers: bool,
    #[command(flatten)]
    pub leave: LeaveFlags,
    #[command(flatten)]
    pub rolling: RollingFlags,
    #[command(flatten)]
    pub ignore: IgnoreFlag,
    #[command(flatten)]
    pub contact: ContactFlags,
}

/// `kubeon create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Only check the request and store it; contact no host
    #[arg(short = 'C', long, help_heading = None, conflicts_with = "only_parts")]
    pub only_create: bool,
    #[command(flatten)]
    pub only_parts: OnlyPartsFlag,
    /// Only show the plan
    #[arg(long, help_heading = None)]
    pub dry_run: bool,
    /// Do not ask before workers that are no longer requested are removed
    #[arg(short = 'y', long, help_heading = None)]
    pub yes: bool,
    #[command(flatten)]
    pub approved: ApprovedPlanFlag,
    #[command(flatten)]
    pub pre_apply_wait: PreApplyFlags,
    #[command(flatten)]
    pub format: FormatFlag,
}

/// `kubeon plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub file: PlanFileFlag,
    #[command(flatten)]
    pub format: FormatFlag,
}
