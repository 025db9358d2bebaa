//! `kubeon precheck`.

use clap::Args;

use super::cluster::ClusterArgs;
use super::format::FormatFlag;

pub(crate) const PRECHECK_EXAMPLES: &str = "Examples:
  kubeon precheck -m 172.30.0.11 -w 172.30.0.12
  kubeon precheck -f demo.yaml -o json | jq '.hosts[].checks[] | select(.ok | not)'
  kubeon precheck demo --ignore swap,dns";

/// `kubeon precheck`.
#[derive(Debug, Args)]
pub(crate) struct PrecheckArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// A registry that every host must reach, HOST or HOST:PORT; may be repeated
    #[arg(long, value_name = "HOST", value_delimiter = ',', help_heading = None)]
    pub registry: Vec<String>,
    #[command(flatten)]
    pub format: FormatFlag,
}
