//! Flags about a kubespray inventory.

use std::path::PathBuf;

use clap::Args;
use kubeon_engine::request_inventory::InventoryFiles;

/// A kubespray inventory instead of flags or a file.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Kubespray inventory")]
pub(crate) struct InventoryFlags {
    /// The hosts.yml of the inventory: groups kube_control_plane, kube_node, etcd
    #[arg(long, value_name = "FILE")]
    pub inventory: Option<PathBuf>,
    /// The group_vars.yml of the inventory: kube_version and other variables
    #[arg(long, value_name = "FILE", requires = "inventory")]
    pub vars: Option<PathBuf>,
}

impl InventoryFlags {
    /// The files of the inventory.
    pub(crate) fn files(&self) -> InventoryFiles {
        InventoryFiles { hosts: self.inventory.clone(), variables: self.vars.clone() }
    }
}

/// A restriction to some hosts of an inventory.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Kubespray inventory")]
pub(crate) struct LimitFlag {
    /// Of the new workers in the inventory, add only these: name or address; may be repeated
    #[arg(long, value_name = "HOST", value_delimiter = ',', requires = "inventory")]
    pub limit: Vec<String>,
}
