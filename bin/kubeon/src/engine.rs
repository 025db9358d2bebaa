//! All wiring between the command line and the crates below: state, hosts, bundle, keys, the wheel.
//!
//! ```text
//!   Engine ─┬─ store     state of clusters on this machine
//!           ├─ contact   logins + host keys ──► SshHosts (ProbeHost, ActHost)
//!           ├─ artifacts bundle ──► what plans name, and the bytes behind it
//!           └─ run       look ─► act, again where that may help
//! ```

pub mod artifacts;
pub mod checked;
pub mod contact;
pub mod entrance;
pub mod hold;
pub mod host_keys;
pub mod hosts_file;
pub mod interrupt;
pub mod keys;
pub mod kubeconfig;
pub mod login;
pub mod memory;
pub mod run;
pub mod said;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use kubeon_api::{ClusterName, HostAddress, Version};
use kubeon_plan::{ClusterSpec, HostSpec, Intent, LoadBalancer, Valid};
use kubeon_ports::Clock;
use kubeon_store::{Addresses, ClusterState, Lock, Store, StoreError};

use crate::cli_error::{CliError, chain};
use crate::cmd::Context;
use crate::selector::Member;

/// The state of a cluster as this program keeps it.
pub type State = ClusterState<ClusterSpec>;

/// What commands on clusters work with.
pub struct Engine<'a> {
    /// Environment and words.
    pub context: &'a Context<'a>,
    /// State on this machine.
    pub store: Store,
}

impl<'a> Engine<'a> {
    /// Nothing is read or written yet.
    ///
    /// # Errors
    /// Refuses when the environment names no place for state.
    pub fn new(context: &'a Context<'a>) -> Result<Self, CliError> {
        let base = context
            .environment
            .state_folder()
            .ok_or_else(|| CliError::refused(StoreError::NoHome.to_string()))?;
        Ok(Self { context, store: Store::new(base) })
    }

    /// The cluster that was named, or else the one that `use` chose.
    ///
    /// # Errors
    /// Refuses when none was named and none is chosen, or the name cannot be one.
    pub fn name(&self, given: Option<&str>) -> Result<ClusterName, CliError> {
        if let Some(text) = given {
            return text.parse().map_err(|error: kubeon_api::NameError| CliError::refused(error.to_string()));
        }
        let known = || {
            let names = self.store.list().unwrap_or_default();
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            if names.is_empty() { "none is here yet".to_owned() } else { names.join(" ") }
        };
        self.store.current().map_err(stop)?.ok_or_else(|| {
            CliError::refused("no cluster is named, and none is chosen")
                .row("clusters", known())
                .hint("choose one with: kubeon use NAME")
        })
    }

    /// The state of a cluster.
    ///
    /// # Errors
    /// Refuses when there is none or it cannot be read.
    pub fn load(&self, name: &ClusterName) -> Result<State, CliError> {
        self.store.load(name).map_err(stop)
    }

    /// The state of the cluster that was named or chosen.
    ///
    /// # Errors
    /// As for [`Engine::name`] and [`Engine::load`].
    pub fn find(&self, given: Option<&str>) -> Result<State, CliError> {
        self.load(&self.name(given)?)
    }

    /// The right to change a cluster whose state was read as this, or, when it is not `known`, was not there.
    ///
    /// # Errors
    /// Refuses while another command has it, and when another command changed the state since it was read.
    pub fn lock(&self, state: &State, known: bool, command: &str) -> Result<Lock, CliError> {
        self.store.lock_as_read(&state.name, command, known.then_some(state)).map_err(stop)
    }

    /// The supported versions, in order.
    ///
    /// # Errors
    /// When the catalogue contradicts itself.
    pub fn supported(&self) -> Result<Vec<Version>, CliError> {
        Ok(crate::cmd::view::catalogue()?.versions().collect())
    }
}

/// How a failure of the local state ends a command.
pub fn stop(error: StoreError) -> CliError {
    match &error {
        StoreError::File { .. } | StoreError::WrongLock { .. } => CliError::failed(chain(&error)),
        _ => CliError::refused(error.to_string()),
    }
}

/// Writes down what is wanted, with the addresses that follow from it.
pub fn want(state: &mut State, spec: ClusterSpec) {
    let load_balancer = match &spec.load_balancer {
        LoadBalancer::Haproxy => Ipv4Addr::LOCALHOST,
        LoadBalancer::External { address, .. } => *address,
    };
    let services = spec.service_cidr;
    state.addresses =
        Addresses { api: services.nth(1), dns: services.nth(10), load_balancer: Some(load_balancer) };
    state.spec = spec;
}

/// What plans are made from.
pub fn intent(
    spec: Valid<ClusterSpec>,
    state: &State,
    artifacts: kubeon_plan::Artifacts,
    without: Vec<HostAddress>,
) -> Intent {
    let (returning, leaving): (Vec<_>, Vec<_>) = state
        .leaving
        .iter()
        .partition(|(address, _)| spec.workers.iter().any(|host| host.address == **address));
    let leaving = leaving.into_iter().map(|(address, name)| HostSpec {
        address: *address,
        name: name.clone(),
        labels: BTreeMap::new(),
    });
    let (leaving, returning) =
        (leaving.collect(), returning.into_iter().map(|(address, _)| *address).collect());
    Intent { without, leaving, returning, ..Intent::new(spec, &state.uid, state.generation, artifacts) }
}

/// The nodes of a cluster as selectors see them.
pub fn members(spec: &ClusterSpec) -> Vec<Member> {
    let member = |host: &HostSpec, master| Member {
        name: host.name.as_ref().map_or_else(|| host.address.to_string(), ToString::to_string),
        address: host.address.ip(),
        master,
    };
    let masters = spec.masters.iter().map(|host| member(host, true));
    masters.chain(spec.workers.iter().map(|host| member(host, false))).collect()
}

/// Addresses that were given to be left out.
///
/// # Errors
/// Refuses what is no address, or no host of the cluster or about to leave it.
pub fn without(given: &[String], spec: &ClusterSpec, state: &State) -> Result<Vec<HostAddress>, CliError> {
    let mut addresses = Vec::new();
    for text in given {
        let address =
            text.parse::<HostAddress>().map_err(|error| CliError::refused(format!("--without {error}")))?;
        let known = spec.hosts().any(|host| host.address == address);
        if !known && !state.leaving.contains_key(&address) {
            return Err(CliError::refused(format!("--without {address} is no host of {}", spec.name)));
        }
        addresses.push(address);
    }
    Ok(addresses)
}

/// Checks that may fail.
///
/// # Errors
/// Refuses what is no check, or cannot be ignored.
pub fn ignored(given: &[String]) -> Result<BTreeSet<String>, CliError> {
    for name in given {
        kubeon_plan::precheck::may_be_ignored(name)
            .map_err(|why| CliError::refused(format!("--ignore {why}")))?;
    }
    Ok(given.iter().cloned().collect())
}

/// The clock of this machine.
pub struct MachineClock;

impl Clock for MachineClock {
    fn now_seconds(&self) -> i64 {
        jiff::Timestamp::now().as_second()
    }
}
