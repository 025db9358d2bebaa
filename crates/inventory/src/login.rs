//! The logins of an inventory.

use std::path::PathBuf;

use kubeon_api::Secret;

/// How to log in to a host, beyond the port and the account that the cluster names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// `ansible_password`.
    pub password: Option<Secret>,
    /// `ansible_become_password`.
    pub sudo_password: Option<Secret>,
    /// `ansible_ssh_private_key_file`.
    pub key_file: Option<PathBuf>,
}
