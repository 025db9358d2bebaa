//! Changes the address of a host that stays in its cluster: the machine, its data and the name of its node stay the same.

use std::net::SocketAddrV4;

use kubeon_api::{HostAddress, HostRole};
use kubeon_plan::HostSpec;
use kubeon_store::Status;

use crate::cluster_target::{ClusterTarget, TargetOptions};
use crate::engine::{Engine, StoredCluster, members};
use crate::error::EngineError;
use crate::login::DEFAULT_PORT;
use crate::login_merge::refuse_unused_flags;
use crate::remedy::EngineRemedy;
use crate::selector::Selector;

/// The new addresses of a host.
#[derive(Debug, Clone, Copy)]
pub struct NewAddress {
    /// The address to log in at, which identifies the host.
    pub login: HostAddress,
    /// Its own address in the cluster's network. `None`: it keeps the one that it has, and a host that has none uses the
    /// address of its login.
    pub internal: Option<HostAddress>,
}

/// The target of a cluster in which a host has another address. A host that has the address already is left as it is, so that
/// a run that was interrupted continues.
///
/// # Errors
/// Refuses a selector that does not select one host, an address of another host, and a cluster with an incomplete change.
pub fn readdressed(
    engine: &Engine<'_>,
    mut state: StoredCluster,
    host: &str,
    to: NewAddress,
    options: TargetOptions,
) -> Result<ClusterTarget, EngineError> {
    let flags = options.logins.clone();
    let before = move_host(&mut state, host, to)?;
    let mut target = ClusterTarget::stored(engine, state, options)?;
    target.moved_hosts.insert(to.login);
    if let Some(login) = target.logins.get_mut(&to.login) {
        login.formerly = before;
    }
    refuse_unused_flags(&flags, &target.spec.masters, &target.logins)?;
    Ok(target)
}

/// Changes the address of a host in the state. Returns the address and port at which it was logged in to before; `None` if it
/// has the address already.
fn move_host(
    state: &mut StoredCluster,
    host: &str,
    to: NewAddress,
) -> Result<Option<SocketAddrV4>, EngineError> {
    refuse_incomplete(state)?;
    let continues = state.spec.hosts().any(|known| known.address == to.login && has_address(known, to));
    let Some(from) = selected(state, host, to, continues)? else { return Ok(None) };
    let other = |known: &HostSpec| known.address != from;
    let taken = state.spec.hosts().filter(|known| other(known)).find(|known| {
        let addresses = [known.address, known.cluster_address()];
        addresses.contains(&to.login) || to.internal.is_some_and(|internal| addresses.contains(&internal))
    });
    if let Some(taken) = taken {
        let name = taken.name.as_ref().map_or_else(|| taken.address.to_string(), ToString::to_string);
        return Err(EngineError::refused(format!("{} is the address of {name} in {}", to.login, state.name)));
    }
    let spec = &mut state.spec;
    for known in spec.masters.iter_mut().chain(&mut spec.workers).chain(&mut spec.etcd_hosts) {
        if known.address == from {
            let internal = to.internal.or(known.internal_address);
            *known = HostSpec { address: to.login, ..known.clone() }.with_internal_address(internal);
        }
    }
    if state.joining.remove(&from) {
        state.joining.insert(to.login);
    }
    let login = state.logins.remove(&from);
    let port = login.as_ref().map_or(DEFAULT_PORT, |login| login.port);
    state.logins.extend(login.map(|login| (to.login, login)));
    Ok(Some(SocketAddrV4::new(from.ip(), port)))
}

fn has_address(known: &HostSpec, to: NewAddress) -> bool {
    to.internal.is_none_or(|internal| known.cluster_address() == internal)
}

/// The address of the selected host; `None` if it has the new addresses already.
fn selected(
    state: &StoredCluster,
    host: &str,
    to: NewAddress,
    continues: bool,
) -> Result<Option<HostAddress>, EngineError> {
    let selector = Selector::parse(&format!("{}@{}", state.name, host.trim_start_matches('@')))?;
    let chosen = match selector.choose(&members(&state.spec)) {
        // The old address is forgotten as soon as the change begins.
        Err(_) if continues && host.parse::<HostAddress>().is_ok() => return Ok(None),
        chosen => chosen?,
    };
    let [member] = chosen.as_slice() else {
        let names: Vec<&str> = chosen.iter().map(|member| member.name.as_str()).collect();
        let title = format!("the address of one host changes at a time: {host} selects {}", names.join(", "));
        return Err(EngineError::refused(title));
    };
    if member.role == HostRole::Etcd {
        let title =
            format!("the address of {} cannot change: it runs etcd alone; replace the host", member.name);
        return Err(EngineError::refused(title));
    }
    let address = HostAddress::from(member.address);
    Ok(Some(address).filter(|address| *address != to.login || !continues))
}

fn refuse_incomplete(state: &StoredCluster) -> Result<(), EngineError> {
    let name = &state.name;
    let refused = |reason, remedy| {
        let error = EngineError::refused(format!("the address of a host of {name} cannot change yet"));
        Err(error.row("cause", reason).remedy(remedy))
    };
    if state.version.is_none() {
        let remedy = EngineRemedy::CompleteOrDestroy(name.clone());
        return refused("its creation is not complete", remedy);
    }
    if state.status != Status::Running || state.changes_members() || !state.leaving.is_empty() {
        return refused("another change is not complete", EngineRemedy::CompleteChange(name.clone()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kubeon_plan::sim::cluster;
    use kubeon_store::HostLogin;

    use super::*;

    fn state() -> StoredCluster {
        let spec = cluster(&["10.0.0.1", "10.0.0.2"], &["10.0.0.3"]);
        let mut state = StoredCluster::new(spec.name.clone(), spec);
        (state.status, state.version) = (Status::Running, Some(state.spec.version));
        let login = |port| HostLogin { user: "root".to_owned(), port, key_files: vec![], jump: None };
        state.logins.insert(address("10.0.0.1"), login(2222));
        state
    }

    fn address(text: &str) -> HostAddress {
        text.parse().unwrap()
    }

    fn to(login: &str) -> NewAddress {
        NewAddress { login: address(login), internal: None }
    }

    fn hosts(state: &StoredCluster) -> Vec<String> {
        state.spec.hosts().map(|host| host.address.to_string()).collect()
    }

    #[test]
    fn a_host_keeps_its_place_and_its_login() {
        let mut state = state();
        let before = move_host(&mut state, "10.0.0.1", to("10.0.0.9")).unwrap();
        assert_eq!(before, Some("10.0.0.1:2222".parse().unwrap()));
        assert_eq!(hosts(&state), ["10.0.0.9", "10.0.0.2", "10.0.0.3"]);
        assert_eq!(state.logins.keys().copied().collect::<Vec<_>>(), [address("10.0.0.9")]);
        // The same command continues an interrupted run.
        let same = state.clone();
        assert_eq!(move_host(&mut state, "10.0.0.1", to("10.0.0.9")).unwrap(), None);
        assert_eq!(move_host(&mut state, "10.0.0.9", to("10.0.0.9")).unwrap(), None);
        assert_eq!(state, same);
        // A host that was never logged in to has the default port.
        let before = move_host(&mut state, "10.0.0.3", to("10.0.0.8")).unwrap();
        assert_eq!(before, Some("10.0.0.3:22".parse().unwrap()));
    }

    #[test]
    fn a_host_keeps_its_internal_address_unless_another_one_is_given() {
        let mut state = state();
        let internal = Some(address("192.168.0.1"));
        move_host(&mut state, "10.0.0.1", NewAddress { internal, ..to("10.0.0.9") }).unwrap();
        assert_eq!(state.spec.masters[0].internal_address, internal);
        move_host(&mut state, "10.0.0.9", to("10.0.0.8")).unwrap();
        assert_eq!(state.spec.masters[0].internal_address, internal);
        let own = Some(address("10.0.0.8"));
        move_host(&mut state, "10.0.0.8", NewAddress { internal: own, ..to("10.0.0.8") }).unwrap();
        assert_eq!(state.spec.masters[0].internal_address, None);
    }

    #[test]
    fn a_wrong_host_or_address_is_refused() {
        let title =
            |host: &str, new: &str| move_host(&mut state(), host, to(new)).map(drop).unwrap_err().title;
        assert_eq!(title("10.0.0.1", "10.0.0.3"), "10.0.0.3 is the address of 10.0.0.3 in demo");
        assert!(title("@all", "10.0.0.9").starts_with("the address of one host changes at a time"));
        assert!(move_host(&mut state(), "10.0.0.7", to("10.0.0.9")).is_err(), "no such host");
        let mut external = state();
        external.spec.etcd_hosts = vec![HostSpec::at(address("10.0.0.5"))];
        let error = move_host(&mut external, "10.0.0.5", to("10.0.0.9")).unwrap_err();
        assert!(error.title.ends_with("it runs etcd alone; replace the host"), "{error}");
        let mut new = state();
        new.version = None;
        let error = move_host(&mut new, "10.0.0.1", to("10.0.0.9")).unwrap_err();
        assert_eq!(error.title, "the address of a host of demo cannot change yet");
    }
}
