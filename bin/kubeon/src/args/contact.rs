//! Flags about host keys.

use std::path::PathBuf;

use clap::Args;
use kubeon_engine::host_keys::HostKeyOptions;

/// Which host keys are accepted.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Login")]
pub(crate) struct ContactFlags {
    /// Accept and pin the keys of unknown hosts without asking; not of hosts that get a password
    #[arg(long)]
    pub accept_new: bool,
    /// A further file of known host keys, in OpenSSH format
    #[arg(long, value_name = "FILE")]
    pub known_hosts: Option<PathBuf>,
}

impl ContactFlags {
    /// The options for the engine.
    pub(crate) fn options(&self) -> HostKeyOptions {
        HostKeyOptions { accept_new: self.accept_new, known_hosts: self.known_hosts.clone() }
    }
}
