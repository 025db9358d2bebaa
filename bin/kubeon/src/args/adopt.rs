//! `kubeon adopt`.

use clap::Args;
use kubeon_api::HostAddress;

use super::contact::ContactFlags;
use super::format::FormatFlag;
use super::login::KnownLoginFlags;

pub(crate) const ADOPT_EXAMPLES: &str = "The state and the keys are read from masters; no host is changed. Every named master must answer and have a ready API server.
A cluster that kubeadm made is adopted in container mode: the plan of its first change is shown, and kubeon create applies it. Its hosts are those of its nodes; -m and -w name them where the login address is another one. It keeps its keys, its network and the arguments of its programs; what kubeon would not keep is refused.
Each host refuses the control machine that had the cluster before, once a change from here has reached it: do not use both.
A cluster that an older kubeon changed last does not hold its declaration: import an exported state instead.

Examples:
  kubeon adopt demo -m 172.30.0.11 --dry-run
  kubeon adopt demo -m 172.30.0.11,172.30.0.12 --default-user admin
  kubeon adopt demo -m 10.1.0.11 -w 10.1.0.21       a cluster of kubeadm whose hosts have other addresses to log in at
  kubeon plan demo                                  show what differs from the declaration";

/// `kubeon adopt`.
#[derive(Debug, Args)]
pub(crate) struct AdoptArgs {
    /// The cluster
    pub name: String,
    /// Login address of a master; repeat it or use commas
    #[arg(short = 'm', long = "master", value_name = "ADDRESS", value_delimiter = ',', required = true)]
    pub masters: Vec<HostAddress>,
    /// Login address of a worker that kubeadm made, if it is not the address of its node
    #[arg(short = 'w', long = "worker", value_name = "ADDRESS", value_delimiter = ',')]
    pub workers: Vec<HostAddress>,
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
