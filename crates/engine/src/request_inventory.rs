//! Cluster requests from a kubespray inventory. The rules are the same as for a `KubernetesCluster` file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kubeon_api::kubernetes_cluster::{DeclaredCluster, NodeList};
use kubeon_api::{ClusterName, HostAddress, Version};
use kubeon_inventory::{Inventory, InventoryFile, InventoryLogin, InventoryMistake};
use kubeon_plan::{DesiredCluster, Note};

use crate::cluster_request::ClusterRequest;
use crate::engine::{Engine, StoredCluster};
use crate::error::EngineError;
use crate::login_merge::{keep_undeclared, role};
use crate::login_request::{HostLoginRequest, LoginRequests};
use crate::remedy::{EngineRemedy, RefusedInput};
use crate::request_file;

/// The files of an inventory.
#[derive(Debug, Clone, Default)]
pub struct InventoryFiles {
    /// Hosts and groups.
    pub hosts: Option<PathBuf>,
    /// Variables.
    pub variables: Option<PathBuf>,
}

/// Builds a request from an inventory.
///
/// # Errors
/// Refuses with all reasons at once.
pub fn from_inventory(
    engine: &Engine<'_>,
    name: &ClusterName,
    files: &InventoryFiles,
    limit_to: &[String],
    logins: &LoginRequests,
    supported: &[Version],
) -> Result<ClusterRequest, EngineError> {
    let mut inventory = read(files, name)?;
    if !limit_to.is_empty() {
        let stored = stored_spec(engine, name)?;
        limit(&mut inventory.cluster.spec.cluster, limit_to, &stored)?;
    }
    let mut request = request_file::from_file(&inventory.cluster, logins, supported)?;
    let note = |remark: kubeon_inventory::Remark| Note {
        host: None,
        text: format!("{}: {}", remark.subjects.join(", "), remark.meaning),
    };
    request.notes.extend(inventory.remarks.into_iter().map(note));
    add_logins(&mut request.logins, inventory.logins);
    Ok(request)
}

/// Merges the logins of an inventory into the logins of known hosts. Hosts that the inventory does not
/// contain keep their remembered logins.
///
/// # Errors
/// When the inventory cannot be read.
pub fn merge_inventory_logins(
    files: &InventoryFiles,
    flags: &LoginRequests,
    state: &StoredCluster,
    mut requests: BTreeMap<HostAddress, HostLoginRequest>,
) -> Result<BTreeMap<HostAddress, HostLoginRequest>, EngineError> {
    if files.hosts.is_some() {
        let inventory = read(files, &state.name)?;
        let hosts = inventory.cluster.spec.cluster.by_address();
        keep_undeclared(&mut requests, |host| hosts.contains_key(host), &state.logins);
        for (host, node) in hosts {
            if let Some(login) = requests.get_mut(&host) {
                // Without a port in the inventory or a flag the default port applies, not the remembered
                // port.
                login.flags.port = node.port.or(flags.of(&role(host, &state.spec.masters)).port);
                login.flags.user = node.user.map(String::from).or_else(|| login.flags.user.take());
            }
        }
        add_logins(&mut requests, inventory.logins);
    }
    Ok(requests)
}

fn add_logins(
    requests: &mut BTreeMap<HostAddress, HostLoginRequest>,
    logins: BTreeMap<HostAddress, InventoryLogin>,
) {
    for (host, InventoryLogin { password, sudo_password, key_file }) in logins {
        if let Some(login) = requests.get_mut(&host) {
            login.flags.key_file = key_file.or_else(|| login.flags.key_file.take());
            login.password = password;
            login.sudo_password = sudo_password;
        }
    }
}

fn read(files: &InventoryFiles, name: &ClusterName) -> Result<Inventory, EngineError> {
    let text = |path: &Path| {
        std::fs::read_to_string(path)
            .map_err(|error| EngineError::refused(format!("cannot read {}: {error}", path.display())))
    };
    let hosts = files.hosts.as_deref().map(text).transpose()?.unwrap_or_default();
    let variables = files.variables.as_deref().map(text).transpose()?.unwrap_or_default();
    kubeon_inventory::read(name, &hosts, &variables).map_err(|mistakes| {
        let count = mistakes.0.len();
        let plural = if count == 1 { "" } else { "s" };
        let mut error = EngineError::refused(format!("the inventory has {count} mistake{plural}"));
        error.rows = mistakes.0.into_iter().map(|mistake| row(files, mistake)).collect();
        error
    })
}

/// The file and line of a mistake, and its text.
fn row(files: &InventoryFiles, mistake: InventoryMistake) -> (String, String) {
    let path = match mistake.file {
        InventoryFile::Hosts => &files.hosts,
        InventoryFile::Variables => &files.variables,
    };
    let name = path.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    // A playbook passes text through a file descriptor: the user cannot open that file.
    let is_descriptor = path.as_ref().is_some_and(|path| path.starts_with("/dev/fd"));
    let place = match name {
        Some(name) if !is_descriptor => format!("{name} line {}", mistake.line),
        _ => mistake.file.name().to_owned(),
    };
    let subject = if mistake.subject.is_empty() { String::new() } else { format!("{}: ", mistake.subject) };
    (place, format!("{subject}{}", mistake.reason))
}

/// The stored specification of a cluster.
fn stored_spec(engine: &Engine<'_>, name: &ClusterName) -> Result<DesiredCluster, EngineError> {
    if engine.store.exists(name) {
        return Ok(engine.load(name)?.spec);
    }
    let error =
        EngineError::refused(format!("Cluster[{name}] not exist, so there is nothing to add hosts to"));
    Err(error.remedy(EngineRemedy::CreateFromInventory(name.clone())))
}

/// Removes the workers that are neither in the cluster nor in `names`.
fn limit(
    cluster: &mut DeclaredCluster,
    names: &[String],
    stored: &DesiredCluster,
) -> Result<(), EngineError> {
    let is = |host: &kubeon_api::kubernetes_cluster::DeclaredNode, name: &str| {
        host.ip.to_string() == name || host.name.as_ref().is_some_and(|own| own.as_str() == name)
    };
    let known =
        |name: &String| cluster.master_list.iter().chain(cluster.node_list.iter()).any(|host| is(host, name));
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let reason = "is neither a master nor a worker of the inventory";
        let input = RefusedInput::LimitedHost(unknown.clone());
        return Err(EngineError::input("the change cannot be limited to these hosts", input, reason));
    }
    let stays = |host: &kubeon_api::kubernetes_cluster::DeclaredNode| {
        stored.workers.iter().any(|worker| worker.address == host.ip)
            || names.iter().any(|name| is(host, name))
    };
    let kept: Vec<_> = cluster.node_list.iter().filter(|host| stays(host)).cloned().collect();
    cluster.node_list = NodeList::try_from(kept).map_err(|error| EngineError::refused(error.to_string()))?;
    Ok(())
}
