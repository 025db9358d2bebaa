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
    /// Build the bundle of a version
    Build(BundleBuild),
    /// List the bundles on this machine
    #[command(visible_alias = "list")]
    Ls(BundleLs),
    /// Show the contents of a bundle
    Inspect(BundleOne),
    /// Check every part of a bundle against its digest
    Verify(BundleOne),
}

#[derive(Debug, Args)]
pub(crate) struct BundleBuild {
    /// The Kubernetes version, such as v1.36.3
    pub version: String,
    /// Source of the programs: `go-modules`, or a folder that contains them
    #[arg(long, value_name = "SOURCE", default_value = "go-modules")]
    pub from: String,
    /// Look for newer packages of the distribution even if the bundle exists
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
    /// Import image archives into containerd on the nodes that do not have the images
    #[command(after_help = "Examples:\n  kubeon image load app.tar\n  kubeon image load app.tar db.tar demo")]
    Load(ImageLoad),
}

#[derive(Debug, Args)]
pub(crate) struct ImageLoad {
    /// Image archives (OCI layout or docker save), then the cluster [default: the chosen cluster]
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
