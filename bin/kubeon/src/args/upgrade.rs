//! `kubeon upgrade`.

use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum, builder::RangedU64ValueParser};

use kubeon_api::Version;
use kubeon_engine::snapshot_place::SnapshotPlace;

use super::approved_plan::{ApprovedPlanFlag, PlanFileFlag};
use super::common_change::CommonChangeFlags;
use super::etcd::KeyFlag;
use super::inventory::InventoryFlags;

pub(crate) const UPGRADE_EXAMPLES: &str = "Before the first change, a snapshot of etcd is written to this machine. First the control plane of a new minor version runs on
one master after another and emulates the old version: until it runs on all, `kubeon abort` goes back. Then masters change one
by one, and workers: each is drained, and the next one follows when it works again. Minor versions in between are chained.

Examples:
  kubeon upgrade demo v1.37.2
  kubeon upgrade demo latest --dry-run
  kubeon upgrade demo v1.37.2 --max-unavailable 10%
  kubeon upgrade demo v1.37.2 --snapshot s3://backups/demo/ --key snapshot.key
  kubeon create demo                 continue after an interruption
  kubeon abort demo                  go back instead";

pub(crate) const ABORT_EXAMPLES: &str = "A change to another minor version can be aborted until every master runs its control plane, one to another patch version
until it is complete. Nothing that pods or users wrote is lost.

Examples:
  kubeon abort demo
  kubeon abort demo --dry-run";

/// `kubeon abort`.
#[derive(Debug, Args)]
pub(crate) struct AbortArgs {
    /// The cluster
    pub name: String,
    #[command(flatten)]
    pub change: CommonChangeFlags,
}

pub(crate) const PAUSE_EXAMPLES: &str = "The command that changes the cluster stops after its running steps, as after Ctrl-C. The cluster serves meanwhile.

Examples:
  kubeon pause demo
  kubeon resume demo";

/// `kubeon pause`.
#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// The cluster
    pub name: String,
    /// Time limit for the running steps, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub wait: u32,
}

/// `kubeon resume`.
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The cluster
    pub name: String,
    #[command(flatten)]
    pub change: CommonChangeFlags,
}

/// `kubeon redo`: a reconcile of the whole cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum RedoCommand {
    /// Write the entries of the hosts files again, and whatever else is missing on the hosts
    #[command(alias = "host")]
    Hosts(ResumeArgs),
    /// Load the images of the bundle again, and whatever else is missing on the hosts
    #[command(aliases = ["img", "image"])]
    Images(ResumeArgs),
}

pub(crate) const ROLLBACK_EXAMPLES: &str = "The cluster is removed from its hosts and made again out of the snapshot that its upgrade took, with the bundle of the version
before. Everything that was written to the Kubernetes API since then is lost; data of pods on hosts is not touched.

With --nodes, kubelet, kube-proxy, container runtime and network of every node go back, one node after another and drained, and
nothing is lost: etcd and the control plane stay. The version may be three minor versions older than theirs.

Examples:
  kubeon rollback demo --dry-run       what is lost
  kubeon rollback demo
  kubeon rollback demo --snapshot demo.db
  kubeon rollback demo --nodes         the nodes alone, to the version before
  kubeon upgrade demo v1.37.2          the nodes come to the version of the control plane again";

/// The value of `--nodes` for the version that the cluster had before its own.
const NODES_BEFORE: &str = "before";

/// The version to which nodes go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodesVersion {
    /// The one that the cluster had before its own.
    Before,
    /// This one.
    Named(Version),
}

impl FromStr for NodesVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == NODES_BEFORE {
            return Ok(Self::Before);
        }
        let no_version =
            |error| format!("Input version [{text}] error: {error}; a cluster is named before --nodes");
        text.parse().map(Self::Named).map_err(no_version)
    }
}

/// `kubeon rollback`.
#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    /// The cluster
    pub name: String,
    /// The snapshot [default: the newest one that an upgrade took]
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<SnapshotPlace>,
    #[command(flatten)]
    pub key: KeyFlag,
    /// Bring only the nodes back, to VERSION [default: the version before]
    #[arg(long, value_name = "VERSION", num_args = 0..=1, default_missing_value = NODES_BEFORE,
          conflicts_with_all = ["snapshot", "snapshot_key"])]
    pub nodes: Option<NodesVersion>,
    /// Let nodes keep their pods while their kubelet changes
    #[arg(long, requires = "nodes")]
    pub skip_evict: bool,
    /// Time limit for draining a node, in seconds
    #[arg(long, value_name = "SECONDS", requires = "nodes",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=7200))]
    pub wait_time: Option<u32>,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub change: CommonChangeFlags,
}

/// `kubeon upgrade`.
#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    /// The cluster
    pub name: String,
    /// The version, such as v1.37.2, or stable or latest
    pub version: String,
    /// Let nodes keep their pods while their kubelet changes
    #[arg(long)]
    pub skip_evict: bool,
    /// Time limit for draining a node, in seconds; 0 for the default
    #[arg(long, value_name = "SECONDS", default_value_t = 0,
          value_parser = RangedU64ValueParser::<u32>::new().range(0..=7200))]
    pub wait_time: u32,
    /// How many versions follow in other runs: the disks of the hosts need space for them, too
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide = true,
          value_parser = RangedU64ValueParser::<u32>::new().range(0..=20))]
    pub later_versions: u32,
    /// Where the parts come from. Bundles are on this machine already, so both values do the same
    #[arg(long, value_name = "MODE", hide = true)]
    pub set_offline: Option<OfflineMode>,
    /// Write the snapshot of etcd to this file or folder, s3://BUCKET/KEY or s3://BUCKET/PREFIX/ [default: $KUBEON_HOME/snapshots]
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<SnapshotPlace>,
    #[command(flatten)]
    pub key: KeyFlag,
    /// Write no snapshot of etcd before
    #[arg(long, hide_short_help = true, conflicts_with = "snapshot")]
    pub skip_snapshot: bool,
    /// Leave the snapshot on the master that took it too
    #[arg(long, hide_short_help = true, conflicts_with = "skip_snapshot")]
    pub snapshot_on_master: bool,
    #[command(flatten)]
    pub approved: ApprovedPlanFlag,
    #[command(flatten)]
    pub file: PlanFileFlag,
    #[command(flatten)]
    pub change: CommonChangeFlags,
    #[command(flatten)]
    pub inventory: InventoryFlags,
}

/// A value of `--set-offline`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OfflineMode {
    #[value(aliases = ["false", "no"])]
    Online,
    #[value(aliases = ["true", "yes"])]
    Offline,
}
