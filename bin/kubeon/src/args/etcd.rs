//! `kubeon etcd`.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand};
use kubeon_engine::snapshot_place::SnapshotPlace;

use super::contact::ContactFlags;
use super::format::FormatFlag;
use super::ignore::IgnoreFlag;
use super::login::KnownLoginFlags;
use super::node::NodeFlags;
use super::pre_apply::PreApplyFlags;

pub(crate) const ETCD_EXAMPLES: &str = "Examples:
  kubeon etcd demo member list -w table     etcdctl on a master whose member serves
  kubeon etcd health demo
  kubeon etcd save demo demo.db             a snapshot on this machine
  kubeon etcd save demo s3://backups/demo/ --key backup.key     encrypted, in an object store
  kubeon etcd check demo demo.db
  kubeon etcd restore demo demo.db          a cluster out of it
  kubeon etcd defrag demo                   one member after another";

const RESTORE_EXAMPLES: &str = "The file beside the snapshot, FILE.state, holds the keys: it is read if this machine does not know the cluster.

Examples:
  kubeon etcd restore demo demo.db
  kubeon etcd restore demo s3://backups/demo/20260131T120000Z-v1.36.3.db --key backup.key
  kubeon etcd restore demo demo.db -m 10.0.0.31 -w 10.0.0.32   on other hosts
  kubeon create demo                                           continue after an interruption";

const SAVE_EXAMPLES: &str = "FILE.state beside the snapshot holds the state and the keys of the cluster. In an object store both are encrypted with --key;
keep the key elsewhere. The store is named as for other S3 tools: AWS_ENDPOINT_URL, AWS_REGION, AWS_CA_BUNDLE, and
AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, or the file ~/.aws/credentials with AWS_PROFILE.

Examples:
  kubeon etcd save demo demo.db
  kubeon etcd save demo /backup/demo --keep 14     for a timer or cron: a new file each time, the oldest are removed
  kubeon etcd new-key backup.key
  kubeon etcd save demo s3://backups/demo/ --key backup.key --keep 14";

/// `kubeon etcd`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct EtcdArgs {
    #[command(subcommand)]
    pub command: Option<EtcdCommand>,
    /// The cluster
    #[arg(required = true, value_name = "CLUSTER")]
    pub name: Option<String>,
    /// The arguments of etcdctl
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
    #[command(flatten)]
    pub login: KnownLoginFlags,
    #[command(flatten)]
    pub contact: ContactFlags,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EtcdCommand {
    /// Write a snapshot to a file on this machine, or to an object store
    #[command(after_help = SAVE_EXAMPLES)]
    Save(SaveArgs),
    /// Check that a snapshot is complete
    Check(SnapshotArgs),
    /// Make a cluster out of a snapshot, on its hosts after kubeon destroy, or on others
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(Box<RestoreArgs>),
    /// Write a new key for encrypted snapshots to a file
    NewKey(NewKeyArgs),
    /// Show the members and whether each serves
    Health(MemberArgs),
    /// Release unused space, one member after another
    Defrag(MemberArgs),
}

/// The key of encrypted snapshots.
#[derive(Debug, Args)]
pub(crate) struct KeyFlag {
    /// The key of the encrypted snapshot and of its state: a file that `kubeon etcd new-key` wrote
    #[arg(id = "snapshot_key", long = "key", value_name = "FILE")]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct NewKeyArgs {
    /// The file, which must not exist
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    /// The cluster
    #[arg(value_name = "CLUSTER")]
    pub name: String,
    /// The file, or s3://BUCKET/KEY; for save also a folder or s3://BUCKET/PREFIX/, in which the snapshot gets a name with its time
    #[arg(value_name = "FILE")]
    pub place: SnapshotPlace,
    #[command(flatten)]
    pub key: KeyFlag,
    #[command(flatten)]
    pub login: KnownLoginFlags,
    #[command(flatten)]
    pub contact: ContactFlags,
}

#[derive(Debug, Args)]
pub(crate) struct SaveArgs {
    #[command(flatten)]
    pub snapshot: SnapshotArgs,
    /// Remove the oldest snapshots in the folder until so many are left
    #[arg(long, value_name = "NUMBER", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub keep: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The cluster
    #[arg(value_name = "CLUSTER")]
    pub name: String,
    /// The snapshot: a file, or s3://BUCKET/KEY
    #[arg(value_name = "FILE")]
    pub place: SnapshotPlace,
    #[command(flatten)]
    pub key: KeyFlag,
    /// A file with a KubernetesCluster that names the hosts, instead of -m and -w
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with_all = ["master", "worker"])]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub nodes: NodeFlags,
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

#[derive(Debug, Args)]
pub(crate) struct MemberArgs {
    /// The cluster
    #[arg(value_name = "CLUSTER")]
    pub name: String,
    #[command(flatten)]
    pub login: KnownLoginFlags,
    #[command(flatten)]
    pub contact: ContactFlags,
}
