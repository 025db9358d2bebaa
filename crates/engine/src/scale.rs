//! Adds, removes and replaces hosts: from the stored cluster to the target of the change.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;

use kubeon_api::{HostAddress, HostName, HostRole};
use kubeon_plan::{DesiredCluster, HostSpec, Refusal, RefusedField};

use crate::cluster_request::HostRequest;
use crate::cluster_target::{ClusterTarget, TargetOptions};
use crate::engine::{Engine, StoredCluster, members};
use crate::error::EngineError;
use crate::login::DEFAULT_PORT;
use crate::login_merge::refuse_unused_flags;
use crate::login_request::HostLoginRequest;
use crate::remedy::EngineRemedy;
use crate::request_inventory::{InventoryFiles, merge_inventory_logins};
use crate::selector::{Member, Selector};

/// Hosts to add to a cluster.
#[derive(Debug, Clone, Default)]
pub struct AddedHosts {
    /// Masters.
    pub masters: Vec<HostRequest>,
    /// Workers.
    pub workers: Vec<HostRequest>,
    /// Hosts that run etcd and nothing else.
    pub etcd_hosts: Vec<HostRequest>,
    /// Refusals found while the hosts were read.
    pub refusals: Vec<Refusal>,
}

/// The target of a cluster with further hosts.
///
/// # Errors
/// Refuses hosts that belong to the cluster already, and login flags that no host uses. All reasons are reported at once.
pub fn with_hosts(
    engine: &Engine<'_>,
    state: StoredCluster,
    added: AddedHosts,
    options: TargetOptions,
) -> Result<ClusterTarget, EngineError> {
    let flags = options.logins.clone();
    let spec = spec_with(&state, &added)?;
    let mut target = host_change(engine, state, spec, options)?;
    let hosts = added.masters.into_iter().chain(added.workers).chain(added.etcd_hosts);
    for HostRequest { address, login, .. } in hosts {
        target.logins.insert(address, HostLoginRequest { flags: login, ..HostLoginRequest::default() });
    }
    target.limit_to_changed_workers();
    refuse_unused_flags(&flags, &target.spec.masters, &target.logins)?;
    Ok(target)
}

/// The target with other hosts. While an upgrade is not complete, it changes the hosts and does not go on with the upgrade.
fn host_change(
    engine: &Engine<'_>,
    state: StoredCluster,
    spec: DesiredCluster,
    options: TargetOptions,
) -> Result<ClusterTarget, EngineError> {
    let target = ClusterTarget::changed(engine, state, spec, options)?;
    Ok(ClusterTarget { continues_upgrade: false, ..target })
}

fn spec_with(state: &StoredCluster, added: &AddedHosts) -> Result<DesiredCluster, EngineError> {
    let mut refusals = added.refusals.clone();
    let mut spec = state.spec.clone();
    let masters = added.masters.iter().map(|host| (RefusedField::Master, host));
    let workers = added.workers.iter().map(|host| (RefusedField::Worker, host));
    let etcd_hosts = added.etcd_hosts.iter().map(|host| (RefusedField::EtcdHost, host));
    for (field, host) in masters.chain(workers).chain(etcd_hosts) {
        let address = host.address;
        let (hosts, joining) = match field {
            RefusedField::Master => (&spec.masters, Some(&state.joining_masters)),
            RefusedField::EtcdHost => (&spec.etcd_hosts, Some(&state.joining_etcd_hosts)),
            _ => (&spec.workers, None),
        };
        // A member of etcd whose addition is not finished may be added again.
        let continues = joining.is_some_and(|joining| joining.contains(&address))
            && hosts.iter().any(|known| known.address == address);
        if spec.hosts().any(|known| known.address == address) {
            let what = if spec.nodes().any(|node| node.address == address) { "a node" } else { "a host" };
            let reason = format!("is {what} of {} already (Cluster ip is duplicate)", state.name);
            refusals.extend((!continues).then(|| Refusal::new(field, address, reason)));
            continue;
        }
        let hosts = match field {
            RefusedField::Master => &mut spec.masters,
            RefusedField::EtcdHost => &mut spec.etcd_hosts,
            _ => &mut spec.workers,
        };
        hosts.push(HostSpec::from(host.clone()));
    }
    if refusals.is_empty() {
        return Ok(spec);
    }
    Err(EngineError::refusals(state.name.as_str(), refusals, &[]))
}

/// The target of a cluster without the hosts of a selector.
///
/// # Errors
/// Refuses a selector that matches no host, every master or every member of etcd, and login flags that no host uses.
pub fn without_hosts(
    engine: &Engine<'_>,
    state: StoredCluster,
    selector: &str,
    inventory: &InventoryFiles,
    options: TargetOptions,
) -> Result<ClusterTarget, EngineError> {
    let flags = options.logins.clone();
    let spec = spec_without(&state, selector)?;
    let mut target = host_change(engine, state, spec, options)?;
    target.limit_to_changed_workers();
    target.logins = merge_inventory_logins(inventory, &flags, &target.state, target.logins)?;
    refuse_unused_flags(&flags, &target.spec.masters, &target.logins)?;
    Ok(target)
}

fn spec_without(state: &StoredCluster, selector: &str) -> Result<DesiredCluster, EngineError> {
    let chosen = chosen(state, selector)?;
    if chosen.iter().filter(|member| member.role.is_master()).count() == state.spec.masters.len() {
        let selector = format!("{}@{}", state.name, selector.trim_start_matches('@'));
        return Err(EngineError::refused(format!("Selector[{selector}] no master exists after delete")));
    }
    let mut spec = state.spec.clone();
    let stays = |host: &HostSpec| !chosen.iter().any(|member| member.address == host.address.ip());
    spec.masters.retain(stays);
    spec.workers.retain(stays);
    spec.etcd_hosts.retain(stays);
    if state.spec.has_external_etcd() && !spec.has_external_etcd() {
        let selector = format!("{}@{}", state.name, selector.trim_start_matches('@'));
        return Err(EngineError::refused(format!(
            "Selector[{selector}] no member of etcd exists after delete"
        )));
    }
    Ok(spec)
}

fn chosen(state: &StoredCluster, selector: &str) -> Result<Vec<Member>, EngineError> {
    let members = members(&state.spec);
    let login = selector.parse::<SocketAddrV4>().ok().filter(|login| is_login(state, login));
    let selector = login.map_or_else(|| selector.to_owned(), |login| login.ip().to_string());
    let selector = Selector::parse(&format!("{}@{}", state.name, selector.trim_start_matches('@')))?;
    selector.choose(&members).map_err(|error| with_leaving_hosts(error, state))
}

/// Whether a host of the cluster is logged in to by this address and port.
fn is_login(state: &StoredCluster, login: &SocketAddrV4) -> bool {
    let known = state.logins.get(&HostAddress::from(*login.ip()));
    known.map_or(DEFAULT_PORT, |known| known.port) == login.port()
}

/// The target of a cluster in which a new master or host of etcd stands in for one that is lost.
///
/// # Errors
/// Refuses an old host that is neither one master nor one host of etcd of the cluster, a new one that belongs to the cluster
/// already, and login flags that no host uses.
pub fn replaced(
    engine: &Engine<'_>,
    state: StoredCluster,
    old: &str,
    new: HostRequest,
    options: TargetOptions,
) -> Result<ClusterTarget, EngineError> {
    let flags = options.logins.clone();
    let (lost, spec) = spec_replaced(&state, old, &new)?;
    let mut target = host_change(engine, state, spec, options)?;
    target.lost_hosts = BTreeSet::from([lost]);
    let login = HostLoginRequest { flags: new.login, ..HostLoginRequest::default() };
    target.logins.insert(new.address, login);
    refuse_unused_flags(&flags, &target.spec.masters, &target.logins)?;
    Ok(target)
}

/// The lost host and the specification without it.
fn spec_replaced(
    state: &StoredCluster,
    old: &str,
    new: &HostRequest,
) -> Result<(HostAddress, DesiredCluster), EngineError> {
    if let Some(lost) = begun_replacement(state, old, new.address) {
        return Ok((lost, state.spec.clone()));
    }
    let chosen = chosen(state, old)?;
    let [member] = chosen.as_slice() else {
        let names: Vec<&str> = chosen.iter().map(|member| member.name.as_str()).collect();
        let title = format!("one host is replaced at a time: {old} selects {}", names.join(", "));
        return Err(EngineError::refused(title));
    };
    let new = vec![new.clone()];
    let added = match member.role {
        HostRole::Master => AddedHosts { masters: new, ..AddedHosts::default() },
        HostRole::Etcd => AddedHosts { etcd_hosts: new, ..AddedHosts::default() },
        _ => {
            let error = EngineError::refused(format!("{} is not a master of {}", member.name, state.name));
            return Err(error.remedy(EngineRemedy::ReplaceWorker(state.name.clone())));
        }
    };
    let mut spec = spec_with(state, &added)?;
    let lost = HostAddress::from(member.address);
    let hosts = if member.role == HostRole::Etcd { &mut spec.etcd_hosts } else { &mut spec.masters };
    if let Some(place) = hosts.iter().position(|host| host.address == lost) {
        hosts.swap_remove(place);
    }
    Ok((lost, spec))
}

/// The lost host of a replacement by the new host that an earlier run began. `old` is its name or its address.
fn begun_replacement(state: &StoredCluster, old: &str, new: HostAddress) -> Option<HostAddress> {
    let leaves = |host: &HostAddress| {
        let master = state.leaving_masters.contains_key(host) && state.joining_masters.contains(&new);
        let etcd = state.leaving_etcd_hosts.contains_key(host) && state.joining_etcd_hosts.contains(&new);
        master || etcd
    };
    let names = |name: &Option<HostName>| name.as_ref().is_some_and(|name| name.as_str() == old);
    let is_old = |address: &HostAddress, name: &Option<HostName>| address.to_string() == old || names(name);
    let mut leaving = state.leaving.iter();
    leaving.find(|&(address, name)| leaves(address) && is_old(address, name)).map(|(address, _)| *address)
}

/// Adds the leaving hosts to an error, because they are not selectable any more.
fn with_leaving_hosts(error: EngineError, state: &StoredCluster) -> EngineError {
    let names: Vec<String> = state
        .leaving
        .iter()
        .map(|(address, name)| name.as_ref().map_or_else(|| address.to_string(), ToString::to_string))
        .collect();
    if names.is_empty() {
        return error;
    }
    error.row("leaving", names.join(" ")).remedy(EngineRemedy::CompleteChange(state.name.clone()))
}

#[cfg(test)]
mod tests {
    use kubeon_plan::sim::cluster;

    use super::*;
    use crate::login_request::LoginRequest;

    fn state() -> StoredCluster {
        let spec = cluster(&["10.0.0.1", "10.0.0.2"], &["10.0.0.3", "10.0.0.4"]);
        StoredCluster::new(spec.name.clone(), spec)
    }

    fn host(address: &str) -> HostRequest {
        HostRequest {
            address: address.parse().unwrap(),
            internal_address: None,
            name: None,
            labels: std::collections::BTreeMap::new(),
            taints: BTreeSet::new(),
            login: LoginRequest::default(),
        }
    }

    fn workers(spec: &DesiredCluster) -> Vec<String> {
        spec.workers.iter().map(|host| host.address.to_string()).collect()
    }

    fn masters(spec: &DesiredCluster) -> Vec<String> {
        spec.masters.iter().map(|host| host.address.to_string()).collect()
    }

    /// A cluster with two hosts of etcd alone.
    fn state_with_etcd_hosts() -> StoredCluster {
        let mut state = state();
        let hosts = ["10.0.0.7", "10.0.0.8"].map(|address| HostSpec::at(address.parse().unwrap()));
        state.spec.etcd_hosts = hosts.into();
        state
    }

    fn etcd_hosts(spec: &DesiredCluster) -> Vec<String> {
        spec.etcd_hosts.iter().map(|host| host.address.to_string()).collect()
    }

    #[test]
    fn hosts_of_etcd_are_added_and_removed() {
        let state = state_with_etcd_hosts();
        let added = |address| AddedHosts { etcd_hosts: vec![host(address)], ..AddedHosts::default() };
        let spec = spec_with(&state, &added("10.0.0.9")).unwrap();
        assert_eq!(etcd_hosts(&spec), ["10.0.0.7", "10.0.0.8", "10.0.0.9"]);
        assert_eq!((masters(&spec), workers(&spec)), (masters(&state.spec), workers(&state.spec)));
        for known in ["10.0.0.1", "10.0.0.3", "10.0.0.7"] {
            assert!(spec_with(&state, &added(known)).is_err(), "{known} belongs to the cluster already");
        }
        let spec = spec_without(&state, "10.0.0.7").unwrap();
        assert_eq!((etcd_hosts(&spec), workers(&spec).len()), (vec!["10.0.0.8".to_owned()], 2));
        let title = spec_without(&state, "@etcd*").unwrap_err().title;
        assert!(title.ends_with("no member of etcd exists after delete"), "{title}");
    }

    #[test]
    fn a_new_host_of_etcd_takes_the_place_of_a_lost_one() {
        let mut state = state_with_etcd_hosts();
        let (lost, spec) = spec_replaced(&state, "10.0.0.7", &host("10.0.0.9")).unwrap();
        assert_eq!(
            (lost.to_string(), etcd_hosts(&spec).concat()),
            ("10.0.0.7".into(), "10.0.0.910.0.0.8".into())
        );
        assert_eq!(masters(&spec), masters(&state.spec));
        // A run that began it is continued by the same command.
        state.leaving.insert(lost, None);
        state.remove_etcd_host(lost, lost);
        state.add_etcd_host("10.0.0.9".parse().unwrap());
        state.spec = spec;
        let (again, same) = spec_replaced(&state, "10.0.0.7", &host("10.0.0.9")).unwrap();
        assert_eq!((again, same), (lost, state.spec.clone()));
    }

    #[test]
    fn hosts_are_added_at_the_end() {
        let added = AddedHosts { workers: vec![host("10.0.0.6"), host("10.0.0.5")], ..AddedHosts::default() };
        let spec = spec_with(&state(), &added).unwrap();
        assert_eq!(workers(&spec), ["10.0.0.3", "10.0.0.4", "10.0.0.6", "10.0.0.5"]);
    }

    #[test]
    fn all_reasons_against_added_hosts_are_reported_at_once() {
        let added = AddedHosts {
            masters: vec![host("10.0.0.2"), host("10.0.0.9")],
            workers: vec![host("10.0.0.9"), host("10.0.0.5"), host("10.0.0.5")],
            etcd_hosts: Vec::new(),
            refusals: vec![Refusal::argument("-w x", "is not an address")],
        };
        let error = spec_with(&state(), &added).unwrap_err();
        let fields: Vec<_> = error.refused.unwrap().others.into_iter().map(|refusal| refusal.field).collect();
        use RefusedField::{Argument, Master, Worker};
        assert_eq!(fields, [Argument, Master, Worker, Worker]);
    }

    #[test]
    fn every_host_but_the_last_master_is_removed() {
        let state = state();
        assert_eq!(workers(&spec_without(&state, "10.0.0.3").unwrap()), ["10.0.0.4"]);
        assert!(workers(&spec_without(&state, "@w*").unwrap()).is_empty());
        assert_eq!(masters(&spec_without(&state, "cp1").unwrap()), ["10.0.0.2"]);
        assert_eq!(workers(&spec_without(&state, "10.0.0.3:22").unwrap()), ["10.0.0.4"]);
        assert!(
            spec_without(&state, "10.0.0.3:2222").is_err(),
            "another port is another machine behind a router"
        );
        let title = |selector| spec_without(&state, selector).unwrap_err().title;
        assert!(title("@cp*").ends_with("no master exists after delete"), "{}", title("@cp*"));
    }

    #[test]
    fn a_new_master_takes_the_place_of_a_lost_one() {
        let mut state = state();
        let (lost, spec) = spec_replaced(&state, "10.0.0.1", &host("10.0.0.9")).unwrap();
        assert_eq!(
            (lost.to_string().as_str(), masters(&spec).concat().as_str()),
            ("10.0.0.1", "10.0.0.910.0.0.2")
        );
        let title = |old, new| spec_replaced(&state, old, &host(new)).unwrap_err().title;
        assert_eq!(title("10.0.0.3", "10.0.0.9"), "10.0.0.3 is not a master of demo");
        assert!(title("@cp*", "10.0.0.9").starts_with("one host is replaced at a time"));
        assert!(spec_replaced(&state, "10.0.0.1", &host("10.0.0.2")).is_err(), "it is a master already");
        // A run that began it is continued by the same command.
        state.leaving.insert(lost, None);
        state.remove_master(lost, lost);
        state.add_master("10.0.0.9".parse().unwrap());
        state.spec = spec;
        let (again, same) = spec_replaced(&state, "10.0.0.1", &host("10.0.0.9")).unwrap();
        assert_eq!((again, same), (lost, state.spec.clone()));
    }

    #[test]
    fn a_leaving_worker_is_named_when_no_node_matches() {
        let mut state = state();
        let leaving = state.spec.workers.pop().unwrap();
        state.leaving.insert(leaving.address, leaving.name);
        let error = spec_without(&state, "10.0.0.4").unwrap_err();
        assert!(error.rows.iter().any(|(subject, _)| subject == "leaving"), "{error}");
    }
}
