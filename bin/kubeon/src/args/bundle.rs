//! `kubeon bundle` and `kubeon image`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::contact::ContactFlags;
use super::format::FormatFlag;
use super::login::KnownLoginFlags;

const EXAMPLES: &str = "Examples:
  kubeon bundle build v1.36.3
  kubeon bundle ls
  kubeon bundle verify v1.36.3";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BundleArgs {
    #[command(subcommand)]
    pub command: Option<BundleCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BundleCommand {
    /// Make the bundle of a version
    Build(BundleBuild),
    /// List the bundles that are here
    #[command(visible_alias = "list")]
    Ls(BundleLs),
    /// Show what a bundle holds
    Inspect(BundleOne),
    /// Check every part of a bundle against its digest
    Verify(BundleOne),
}

#[derive(Debug, Args)]
pub(crate) struct BundleBuild {
    /// The Kubernetes version, such as v1.36.3
    pub version: String,
    /// Where the programs come from: `go-modules`, or a folder that holds them
    #[arg(long, value_name = "SOURCE", default_value = "go-modules")]
    pub from: String,
    /// Look for newer packages of the distribution even though the bundle exists
    #[arg(long)]
    pub refresh: bool,
    /// Only show what would be built
    #[arg(long, help_heading = None)]
    pub dry_run: bool,
    #[command(flatten)]
    pub format: FormatFlag,
}

#[derive(Debug, Args)]
pub(crate) struct BundleLs {
    #[command(flatten)]
    pub format: FormatFlag,
}

#[derive(Debug, Args)]
pub(crate) struct BundleOne {
    /// The Kubernetes version, or the bundle's folder
    pub bundle: String,
    #[command(flatten)]
    pub format: FormatFlag,
}

#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    pub command: Option<ImageCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Import image archives into containerd on the nodes of a cluster that lack them
    #[command(after_help = "Examples:\n  kubeon image load app.tar\n  kubeon image load app.tar db.tar demo")]
    Load(ImageLoad),
}

#[derive(Debug, Args)]
pub(crate) struct ImageLoad {
    /// Image archives (OCI layout or docker save), then the cluster; the chosen cluster when it is left out
    #[arg(required = true, value_name = "TAR… [CLUSTER]")]
    pub words: Vec<PathBuf>,
    #[command(flatten)]
    pub login: KnownLoginFlags,
    #[command(flatten)]
    pub contact: ContactFlags,
    /// Only show what would be done
    #[arg(long, help_heading = None)]
    pub dry_run: bool,
    #[command(flatten)]
    pub format: FormatFlag,
}
