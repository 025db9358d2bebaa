//! Inventories and variables of kubespray, read as the declaration of a cluster.
//!
//! ```text
//!   hosts.yml ──────► groups ──► hosts with their merged variables ──┐
//!                                                                    ├──► KubernetesCluster + logins + remarks
//!   group_vars.yml ─► variables ──► served, refused, or remarked on ─┘
//! ```
//!
//! Ansible's precedence applies: variables of groups, where deeper groups override shallower ones; then those of the host;
//! then `group_vars.yml`, which Ansible gets with `-e`. Nothing is dropped silently: a variable without effect gets a
//! remark, one that requests a component that no bundle has is a mistake. The crate performs no effect. It reports
//! templates and vaults as mistakes.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod groups;
mod hosts;
mod login;
mod mistake;
mod outline;
mod roles;
mod settings;
mod tree;
mod variables;

use std::collections::BTreeMap;

use kubeon_api::kubernetes_cluster::DeclaredCluster;
use kubeon_api::{ClusterName, HostAddress, KubernetesCluster, KubernetesClusterSpec};

pub use login::InventoryLogin;
pub use mistake::{InventoryFile, InventoryMistake, Mistakes};
pub use outline::{Outline, outline};
pub use variables::Remark;

/// The cluster that an inventory and its variables declare.
#[derive(Debug, Clone)]
pub struct Inventory {
    /// The cluster, with every host's address, name, port, account and labels.
    pub cluster: KubernetesCluster,
    /// The credentials of each host.
    pub logins: BTreeMap<HostAddress, InventoryLogin>,
    /// Remarks for the user, such as variables without effect.
    pub remarks: Vec<Remark>,
}

/// Reads `hosts.yml` and `group_vars.yml`; either may be JSON, the second may be empty.
///
/// # Errors
/// All mistakes at once, those of `hosts.yml` first, each in the order of the file.
pub fn read(name: &ClusterName, hosts: &str, variables: &str) -> Result<Inventory, Mistakes> {
    let mut found = Vec::new();
    let groups = groups::read(hosts, groups::HostRanges::Refuse, &mut found);
    let extra = variables::read(variables, &mut found);
    let mut remarks = variables::Remarks::default();
    let mut cluster = DeclaredCluster::default();
    let mut logins = BTreeMap::new();
    if let Some(groups) = groups {
        let roles = roles::assign(&groups, &mut found, &mut remarks);
        let shared = groups.shared(&roles.masters, &extra);
        settings::fill(&mut cluster, &shared, &mut found, &mut remarks);
        hosts::fill(&mut cluster, &mut logins, &groups, &roles, &extra, &mut found, &mut remarks);
    } else {
        settings::fill(&mut cluster, &extra, &mut found, &mut remarks);
    }
    if !found.is_empty() {
        return Err(Mistakes::new(found));
    }
    let spec = KubernetesClusterSpec { cluster, ..KubernetesClusterSpec::default() };
    Ok(Inventory {
        cluster: KubernetesCluster::new(name.as_str(), spec),
        logins,
        remarks: remarks.into_list(),
    })
}
