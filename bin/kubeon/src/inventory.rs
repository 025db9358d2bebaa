//! An inventory of kubespray in place of a file with a `KubernetesCluster`: the same rules, the same refusals.

use std::collections::BTreeMap;
use std::path::Path;

use kubeon_api::kubernetes_cluster::{DeclaredCluster, NodeList};
use kubeon_api::{ClusterName, HostAddress, Version};
use kubeon_inventory::{File, Inventory, Login, Mistake};
use kubeon_plan::{ClusterSpec, Note};

use crate::args::inventory::InventoryFlags;
use crate::args::login::LoginWishes;
use crate::args::settings::SettingFlags;
use crate::args::wish::WishArgs;
use crate::cli_error::CliError;
use crate::engine::said::{keep_others, role};
use crate::engine::{Engine, State};
use crate::wish::{self, SaidLogin, Wish};

/// The wish that an inventory makes.
///
/// # Errors
/// Every reason at once.
pub fn wished(engine: &Engine<'_>, args: &WishArgs, supported: &[Version]) -> Result<Wish, CliError> {
    let name = only_the_inventory(args)?;
    let mut inventory = read(&args.inventory, &name)?;
    if !args.limit.limit.is_empty() {
        let stands = standing(engine, &name)?;
        limit(&mut inventory.cluster.spec.cluster, &args.limit.limit, &stands)?;
    }
    let mut wish = wish::from_file(&inventory.cluster, &args.nodes, supported)?;
    let meant = |remark: kubeon_inventory::Remark| Note {
        host: None,
        text: format!("{}: {}", remark.subjects.join(", "), remark.meaning),
    };
    wish.notes.extend(inventory.remarks.into_iter().map(meant));
    add_logins(&mut wish.logins, inventory.logins);
    Ok(wish)
}

/// How to log in to hosts that are known, where an inventory says more about it. Hosts that it does not name are logged
/// in to as they are remembered.
///
/// # Errors
/// When the inventory cannot be read.
pub fn known_better(
    inventory: &InventoryFlags,
    flags: &LoginWishes,
    state: &State,
    mut said: BTreeMap<HostAddress, SaidLogin>,
) -> Result<BTreeMap<HostAddress, SaidLogin>, CliError> {
    if inventory.inventory.is_some() {
        let inventory = read(inventory, &state.name)?;
        let hosts = inventory.cluster.spec.cluster.by_address();
        keep_others(&mut said, |host| hosts.contains_key(host), &state.logins);
        for (host, node) in hosts {
            if let Some(said) = said.get_mut(&host) {
                // One that names no port means that of sshd, unless a flag does; not the port that is remembered.
                said.flags.port = node.port.or(flags.of(role(host, &state.spec.masters)).port);
                said.flags.user = node.user.map(String::from).or_else(|| said.flags.user.take());
            }
        }
        add_logins(&mut said, inventory.logins);
    }
    Ok(said)
}

fn add_logins(said: &mut BTreeMap<HostAddress, SaidLogin>, logins: BTreeMap<HostAddress, Login>) {
    for (host, Login { password, sudo_password, key_file }) in logins {
        if let Some(said) = said.get_mut(&host) {
            said.flags.key_file = key_file.or_else(|| said.flags.key_file.take());
            said.password = password;
            said.sudo_password = sudo_password;
        }
    }
}

fn only_the_inventory(args: &WishArgs) -> Result<ClusterName, CliError> {
    let settings = args.settings != SettingFlags::default() || !args.missing.refusals.is_empty();
    if args.file.is_some() || args.version.is_some() || args.nodes.names_hosts() || settings {
        let stop = CliError::refused(
            "--inventory and --vars say everything about the cluster: leave out its version, hosts and settings",
        );
        return Err(stop.row("allowed", "NAME, --limit, --default-*, --accept-new, --known-hosts, --without"));
    }
    let Some(name) = &args.name else {
        let stop = CliError::refused("an inventory does not name its cluster");
        return Err(stop.hint("try: kubeon create NAME --inventory hosts.yml --vars group_vars.yml"));
    };
    crate::target::no_lists(name, &args.nodes)?;
    name.parse().map_err(|error: kubeon_api::NameError| CliError::refused(error.to_string()))
}

fn read(flags: &InventoryFlags, name: &ClusterName) -> Result<Inventory, CliError> {
    let text = |path: &Path| {
        std::fs::read_to_string(path)
            .map_err(|error| CliError::refused(format!("cannot read {}: {error}", path.display())))
    };
    let hosts = flags.inventory.as_deref().map(text).transpose()?.unwrap_or_default();
    let variables = flags.vars.as_deref().map(text).transpose()?.unwrap_or_default();
    kubeon_inventory::read(name, &hosts, &variables).map_err(|mistakes| {
        let count = mistakes.0.len();
        let plural = if count == 1 { "" } else { "s" };
        let mut stop = CliError::refused(format!("the inventory has {count} mistake{plural}"));
        stop.rows = mistakes.0.into_iter().map(|mistake| row(flags, mistake)).collect();
        stop
    })
}

/// Where the mistake stands, in the words of whoever wrote the file.
fn row(flags: &InventoryFlags, mistake: Mistake) -> (String, String) {
    let path = match mistake.file {
        File::Hosts => &flags.inventory,
        File::Variables => &flags.vars,
    };
    let name = path.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    // What a playbook hands over is no file that somebody could look into.
    let handed_over = path.as_ref().is_some_and(|path| path.starts_with("/dev/fd"));
    let place = match name {
        Some(name) if !handed_over => format!("{name} line {}", mistake.line),
        _ => mistake.file.name().to_owned(),
    };
    let subject = if mistake.subject.is_empty() { String::new() } else { format!("{}: ", mistake.subject) };
    (place, format!("{subject}{}", mistake.reason))
}

/// The cluster as it is written down.
fn standing(engine: &Engine<'_>, name: &ClusterName) -> Result<ClusterSpec, CliError> {
    if engine.store.exists(name) {
        return Ok(engine.load(name)?.spec);
    }
    let stop = CliError::refused(format!("Cluster[{name}] not exist, so there is nothing to add hosts to"));
    Err(stop.row("first", format!("kubeon create {name} --inventory …, or the playbook cluster.yml")))
}

/// Leaves workers out that neither are in the cluster nor are named.
fn limit(cluster: &mut DeclaredCluster, names: &[String], stands: &ClusterSpec) -> Result<(), CliError> {
    let is = |host: &kubeon_api::kubernetes_cluster::DeclaredNode, name: &str| {
        host.ip.to_string() == name || host.name.as_ref().is_some_and(|own| own.as_str() == name)
    };
    let known =
        |name: &String| cluster.master_list.iter().chain(cluster.node_list.iter()).any(|host| is(host, name));
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        return Err(CliError::refused(format!(
            "--limit {unknown} is no master and no worker of the inventory"
        )));
    }
    let stays = |host: &kubeon_api::kubernetes_cluster::DeclaredNode| {
        stands.workers.iter().any(|worker| worker.address == host.ip)
            || names.iter().any(|name| is(host, name))
    };
    let kept: Vec<_> = cluster.node_list.iter().filter(|host| stays(host)).cloned().collect();
    cluster.node_list = NodeList::try_from(kept).map_err(|error| CliError::refused(error.to_string()))?;
    Ok(())
}
