//! Which host keys are accepted.

use std::path::PathBuf;

use clap::Args;
use kubeon_engine::host_keys::HostKeyOptions;

/// How hosts are proven to be the right ones, and logged in to again.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Login")]
pub(crate) struct ContactFlags {
    /// Pin the keys of hosts seen for the first time without asking
    #[arg(long)]
    pub accept_new: bool,
    /// Host keys are looked up here as well, in OpenSSH's format
    #[arg(long, value_name = "FILE")]
    pub known_hosts: Option<PathBuf>,
}

impl ContactFlags {
    /// Which host keys are accepted.
    pub(crate) fn options(&self) -> HostKeyOptions {
        HostKeyOptions { accept_new: self.accept_new, known_hosts: self.known_hosts.clone() }
    }
}
