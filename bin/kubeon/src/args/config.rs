//! `kubeon config`.

use clap::{Args, Subcommand};

use super::common_change::CommonChangeFlags;
use super::format::FormatFlag;

pub(crate) const CONFIG_EXAMPLES: &str = "Fields are those of spec.cluster in a KubernetesCluster. These can change in a cluster that exists:
apiServer.certSANs, loadBalancer, network.maxPods, network.nodePortRange, network.mtu, containerRuntime, extraArgs,
featureGates, kernelParameters.

Examples:
  kubeon config get demo
  kubeon config get demo network.maxPods
  kubeon config set demo network.maxPods=200 extraArgs.kubelet.v=4
  kubeon config set demo apiServer.certSANs=api.example.com,10.0.0.9 --dry-run
  kubeon config set demo extraArgs.kubelet.v=                          the default again
  kubeon config set demo kernelParameters.vm.max_map_count=262144      on every host that runs a node
  kubeon config edit demo                                              in $EDITOR";

/// `kubeon config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the settings of a cluster, or one of them
    Get(ConfigGetArgs),
    /// Change settings: nodes and programs that they concern restart one after another
    Set(Box<ConfigSetArgs>),
    /// Change settings in an editor
    Edit(Box<ConfigEditArgs>),
}

/// `kubeon config get`.
#[derive(Debug, Args)]
pub(crate) struct ConfigGetArgs {
    /// The cluster
    pub name: String,
    /// A field, such as network.maxPods [default: all]
    pub field: Option<String>,
    #[command(flatten)]
    pub format: FormatFlag,
}

/// `kubeon config set`.
#[derive(Debug, Args)]
pub(crate) struct ConfigSetArgs {
    /// The cluster
    pub name: String,
    /// Fields with their values; without a value, a field gets its default
    #[arg(required = true, value_name = "FIELD=VALUE")]
    pub assignments: Vec<String>,
    #[command(flatten)]
    pub change: CommonChangeFlags,
}

/// `kubeon config edit`.
#[derive(Debug, Args)]
pub(crate) struct ConfigEditArgs {
    /// The cluster
    pub name: String,
    #[command(flatten)]
    pub change: CommonChangeFlags,
}
