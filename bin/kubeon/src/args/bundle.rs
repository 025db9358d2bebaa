//! `kubeon bundle` and `kubeon image`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use kubeon_api::Arch;

use super::contact::ContactFlags;
use super::format::FormatFlag;
use super::login::KnownLoginFlags;

const EXAMPLES: &str = "Examples:
  kubeon bundle build stable
  kubeon bundle build v1.36.3 --from https://mirror.example/kubeon
  kubeon bundle ls
  kubeon bundle verify v1.36.3
  kubeon bundle sign v1.36.3 --key ~/.ssh/id_ed25519
  kubeon bundle trust release.pub           from then on, only signed bundles are used
  kubeon bundle save v1.36.3 v1.36.3.tar   carry the file to a machine without a network
  kubeon bundle load v1.36.3.tar";

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
    Verify(BundleVerify),
    /// Print the bill of materials of a bundle: SPDX 2.3 in JSON
    Sbom(BundleSbom),
    /// Sign a bundle with a private key of OpenSSH
    Sign(BundleSign),
    /// Trust a public key: from then on, only bundles signed by trusted keys are used
    Trust(BundleTrust),
    /// Write a bundle to one file, to carry it to another machine
    Save(BundleSave),
    /// Check the file of a bundle and add the bundle to this machine
    Load(BundleLoad),
}

#[derive(Debug, Args)]
pub(crate) struct BundleVerify {
    /// The Kubernetes version, also with an architecture as in v1.36.3-arm64, or the bundle's folder
    pub bundle: String,
    /// Check its signature by this public key, or by a file of keys (allowed_signers) [default: the trusted keys]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    #[command(flatten)]
    pub format: FormatFlag,
}

#[derive(Debug, Args)]
pub(crate) struct BundleSbom {
    /// The Kubernetes version, also with an architecture as in v1.36.3-arm64, or the bundle's folder
    pub bundle: String,
}

#[derive(Debug, Args)]
pub(crate) struct BundleSign {
    /// The Kubernetes version, also with an architecture as in v1.36.3-arm64, or the bundle's folder
    pub bundle: String,
    /// A private key of OpenSSH; a passphrase is asked for
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct BundleTrust {
    /// A public key of OpenSSH
    #[arg(value_name = "FILE")]
    pub key: PathBuf,
    /// The name of its owner [default: the comment of the key]
    #[arg(long)]
    pub name: Option<String>,
    /// Until when it is trusted, such as 20271231
    #[arg(long, value_name = "DATE")]
    pub until: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct BundleSave {
    /// The Kubernetes version, also with an architecture as in v1.36.3-arm64, or the bundle's folder
    pub bundle: String,
    /// The file to write
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub format: FormatFlag,
}

#[derive(Debug, Args)]
pub(crate) struct BundleLoad {
    /// A file that `kubeon bundle save` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub format: FormatFlag,
}

#[derive(Debug, Args)]
pub(crate) struct BundleBuild {
    /// The Kubernetes version, such as v1.36.3, or stable or latest
    pub version: String,
    /// Source of the programs: official (the releases of their authors), https://MIRROR (the same files elsewhere), go-modules
    /// (built here), or a folder that contains them [default: official if reachable, else go-modules]
    #[arg(long, value_name = "SOURCE")]
    pub from: Option<String>,
    /// The architecture of the hosts [default: that of this machine]
    #[arg(long, value_name = "ARCH")]
    pub arch: Option<Arch>,
    /// Look for newer packages of the distribution even if the bundle exists
    #[arg(long)]
    pub refresh: bool,
    /// Keep what the Go compiler makes in this folder, so that the next build compiles less; it has gigabytes [default: it is
    /// removed after the build]
    #[arg(long, value_name = "DIR")]
    pub compile_cache: Option<PathBuf>,
    /// Only show what would be built
    #[arg(long, help_heading = None)]
    pub dry_run: bool,
    #[command(flatten)]
    pub format: FormatFlag,
}

/// `kubeon download`: the bundle of a version, with the flags of the first kubeon. They choose parts that every bundle has, or
/// that none has.
#[derive(Debug, Args)]
pub(crate) struct DownloadArgs {
    #[command(flatten)]
    pub build: BundleBuild,
    #[arg(long, short = 'F', hide = true)]
    pub force_local: bool,
    #[arg(long, hide = true)]
    pub use_offline: bool,
    #[arg(long, hide = true)]
    pub with_binary: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BundleLs {
    #[command(flatten)]
    pub format: FormatFlag,
}

#[derive(Debug, Args)]
pub(crate) struct BundleOne {
    /// The Kubernetes version, also with an architecture as in v1.36.3-arm64, or the bundle's folder
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
