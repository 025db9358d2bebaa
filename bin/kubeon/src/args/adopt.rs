//! `kubeon adopt`.

use clap::Args;
use kubeon_api::HostAddress;

use super::contact::ContactFlags;
use super::format::FormatFlag;
use super::login::KnownLoginFlags;

pub(crate) const ADOPT_EXAMPLES: &str = "The state and the keys are read from masters; no host is changed. Every named master must answer and have a ready API server.
Each host refuses the control machine that had the cluster before, once a change from here has reached it: do not use both.
A cluster that an older kubeon changed last does not hold its declaration: import an exported state instead.

Examples:
  kubeon adopt demo -m 172.30.0.11 --dry-run
  kubeon adopt demo -m 172.30.0.11,172.30.0.12 --default-user admin
  kubeon plan demo                                  show what differs from the declaration";

/// `kubeon adopt`.
#[derive(Debug, Args)]
pub(crate) struct AdoptArgs {
    /// The cluster
    pub name: String,
    /// Login address of a master; repeat it or use commas
    #[arg(short = 'm', long = "master", value_name = "ADDRESS", value_delimiter = ',', required = true)]
    pub masters: Vec<HostAddress>,
    /// Only check and show; store nothing
    #[arg(long, help_heading = None)]
    pub dry_run: bool,
    #[command(flatten)]
    pub login: KnownLoginFlags,
    #[command(flatten)]
    pub contact: ContactFlags,
    #[command(flatten)]
    pub format: FormatFlag,
}
