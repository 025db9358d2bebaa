//! The logins of an inventory.

use std::path::PathBuf;

use kubeon_api::Secret;

/// The credentials of a host in an inventory. The cluster names the port and the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InventoryLogin {
    /// `ansible_password`.
    pub password: Option<Secret>,
    /// `ansible_become_password`.
    pub sudo_password: Option<Secret>,
    /// `ansible_ssh_private_key_file`.
    pub key_file: Option<PathBuf>,
}
