//! `kubeon certs`.

use clap::{Args, Subcommand};

use super::contact::ContactFlags;
use super::format::FormatFlag;
use super::login::KnownLoginFlags;
use super::rolling::RollingFlags;

pub(crate) const ROTATE_EXAMPLES: &str =
    "The cluster serves during the rotation. It has four phases, each on all hosts:
  trust     the new keys are trusted beside the old keys
  reissue   every certificate is made again with the new keys
  renew     kubelets, tokens of pods and Secrets change to the new keys
  drop      the old keys are no longer trusted, and are removed

Examples:
  kubeon certs rotate demo
  kubeon certs rotate demo --yes   also continues an interrupted rotation";

pub(crate) const OBSERVER_EXAMPLES: &str =
    "The kubeconfig contains a key; its certificate is valid for one year. It has a context for each master.

Example:
  (umask 077; kubeon certs observer demo >observer.yaml)
  kubectl --kubeconfig observer.yaml get nodes";

/// `kubeon certs`.
#[derive(Debug, Args)]
pub(crate) struct CertsArgs {
    #[command(subcommand)]
    pub command: CertsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CertsCommand {
    /// Replace all keys of a cluster: its authorities, the service account key and the key for Secrets
    #[command(after_help = ROTATE_EXAMPLES)]
    Rotate(Box<RotateArgs>),
    /// Print a kubeconfig that may only read nodes and health, for a program that watches the cluster
    #[command(after_help = OBSERVER_EXAMPLES)]
    Observer(ObserverArgs),
}

/// `kubeon certs observer`.
#[derive(Debug, Args)]
pub(crate) struct ObserverArgs {
    /// The cluster [default: the chosen cluster]
    pub name: Option<String>,
}

/// `kubeon certs rotate`.
#[derive(Debug, Args)]
pub(crate) struct RotateArgs {
    /// The cluster [default: the chosen cluster]
    pub name: Option<String>,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub yes: bool,
    #[command(flatten)]
    pub rolling: RollingFlags,
    #[command(flatten)]
    pub login: KnownLoginFlags,
    #[command(flatten)]
    pub contact: ContactFlags,
    #[command(flatten)]
    pub format: FormatFlag,
}
