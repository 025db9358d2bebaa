//! Flags that name an inventory of kubespray.

use std::path::PathBuf;

use clap::Args;
use kubeon_engine::request_inventory::InventoryFiles;

/// An inventory of kubespray, in place of flags or a file that name hosts.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Inventory of kubespray")]
pub(crate) struct InventoryFlags {
    /// Its hosts.yml: groups kube_control_plane, kube_node, etcd
    #[arg(long, value_name = "FILE")]
    pub inventory: Option<PathBuf>,
    /// Its group_vars.yml: kube_version and the like
    #[arg(long, value_name = "FILE", requires = "inventory")]
    pub vars: Option<PathBuf>,
}

impl InventoryFlags {
    /// The files that are named.
    pub(crate) fn files(&self) -> InventoryFiles {
        InventoryFiles { hosts: self.inventory.clone(), variables: self.vars.clone() }
    }
}

/// Which of an inventory's hosts are meant.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Inventory of kubespray")]
pub(crate) struct LimitFlag {
    /// Of its workers that are not in the cluster yet, add only these; by name or address, may be repeated
    #[arg(long, value_name = "HOST", value_delimiter = ',', requires = "inventory")]
    pub limit: Vec<String>,
}
