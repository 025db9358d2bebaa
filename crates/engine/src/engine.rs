//! What every change of a cluster works with: its state on this machine, and what follows from it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use kubeon_api::kubernetes_cluster::LoadBalancer;
use kubeon_api::{ClusterName, HostAddress, Version};
use kubeon_plan::{DesiredCluster, HostSpec, Intent, Valid};
use kubeon_ports::Clock;
use kubeon_store::{Addresses, ClusterLock, ClusterState, Store, StoreError};

use crate::environment::EngineEnvironment;
use crate::error::EngineError;
use crate::output::EngineOutput;
use crate::selector::Member;

/// What is stored of a cluster on this machine.
pub type StoredCluster = ClusterState<DesiredCluster>;

/// Works on the clusters of this machine.
pub struct Engine<'a> {
    /// Files and names of this machine.
    pub environment: EngineEnvironment,
    /// Receives messages and answers questions.
    pub output: &'a dyn EngineOutput,
    /// State on this machine.
    pub store: Store,
}

impl<'a> Engine<'a> {
    /// Reads and writes nothing yet.
    ///
    /// # Errors
    /// Refuses when the environment names no folder for state.
    pub fn new(environment: EngineEnvironment, output: &'a dyn EngineOutput) -> Result<Self, EngineError> {
        let base = environment.state_folder.clone().ok_or(StoreError::NoHome)?;
        Ok(Self { environment, output, store: Store::new(base) })
    }

    /// The cluster that was named, or else the one that `use` chose.
    ///
    /// # Errors
    /// Refuses when none was named and none is chosen, or the name cannot be one.
    pub fn name(&self, given: Option<&str>) -> Result<ClusterName, EngineError> {
        if let Some(text) = given {
            return text
                .parse()
                .map_err(|error: kubeon_api::NameError| EngineError::refused(error.to_string()));
        }
        let known = || {
            let names = self.store.list().unwrap_or_default();
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            if names.is_empty() { "none is here yet".to_owned() } else { names.join(" ") }
        };
        self.store.current()?.ok_or_else(|| {
            EngineError::refused("no cluster is named, and none is chosen")
                .row("clusters", known())
                .hint("choose one with: kubeon use NAME")
        })
    }

    /// The state of a cluster.
    ///
    /// # Errors
    /// Refuses when there is none or it cannot be read.
    pub fn load(&self, name: &ClusterName) -> Result<StoredCluster, EngineError> {
        Ok(self.store.load(name)?)
    }

    /// The state of the cluster that was named or chosen.
    ///
    /// # Errors
    /// As for [`Engine::name`] and [`Engine::load`].
    pub fn find(&self, given: Option<&str>) -> Result<StoredCluster, EngineError> {
        self.load(&self.name(given)?)
    }

    /// The right to change a cluster whose state was read as this, or, when it is not `known`, was not there.
    ///
    /// # Errors
    /// Refuses while another command has it, and when another command changed the state since it was read.
    pub fn lock(
        &self,
        state: &StoredCluster,
        known: bool,
        command: &str,
    ) -> Result<ClusterLock, EngineError> {
        Ok(self.store.lock_as_read(&state.name, command, known.then_some(state))?)
    }

    /// The supported versions, in order.
    ///
    /// # Errors
    /// When the catalogue contradicts itself.
    pub fn supported(&self) -> Result<Vec<Version>, EngineError> {
        Ok(crate::bundles::catalogue()?.versions().collect())
    }
}

/// Stores the specification in the state, with the addresses that follow from it.
pub fn set_spec(state: &mut StoredCluster, spec: DesiredCluster) {
    let balancer = &spec.settings.load_balancer;
    let load_balancer = match balancer {
        LoadBalancer::Haproxy => Some(Ipv4Addr::LOCALHOST),
        LoadBalancer::External { .. } | LoadBalancer::Updater => {
            balancer.external().map(|(address, _)| address)
        }
    };
    let services = spec.settings.service_cidr;
    state.addresses = Addresses { api: services.nth(1), dns: services.nth(10), load_balancer };
    state.spec = spec;
}

/// What plans are made from.
pub fn intent(
    spec: Valid<DesiredCluster>,
    state: &StoredCluster,
    artifacts: kubeon_plan::Artifacts,
    skip_hosts: Vec<HostAddress>,
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
    Intent { skip_hosts, leaving, returning, ..Intent::new(spec, &state.uid, state.generation, artifacts) }
}

/// The nodes of a cluster as selectors see them.
pub fn members(spec: &DesiredCluster) -> Vec<Member> {
    let member = |host: &HostSpec, master| Member {
        name: host.name.as_ref().map_or_else(|| host.address.to_string(), ToString::to_string),
        address: host.address.ip(),
        master,
    };
    let masters = spec.masters.iter().map(|host| member(host, true));
    masters.chain(spec.workers.iter().map(|host| member(host, false))).collect()
}

/// The hosts to leave out.
///
/// # Errors
/// Refuses what is no address, and a host that neither is in the cluster nor is leaving it.
pub fn skip_hosts(
    given: &[String],
    spec: &DesiredCluster,
    state: &StoredCluster,
) -> Result<Vec<HostAddress>, EngineError> {
    let mut addresses = Vec::new();
    for text in given {
        let address = text
            .parse::<HostAddress>()
            .map_err(|error| EngineError::refused(format!("--without {error}")))?;
        let known = spec.hosts().any(|host| host.address == address);
        if !known && !state.leaving.contains_key(&address) {
            return Err(EngineError::refused(format!("--without {address} is no host of {}", spec.name)));
        }
        addresses.push(address);
    }
    Ok(addresses)
}

/// The checks that may fail.
///
/// # Errors
/// Refuses a name that is no check, and a check that cannot be ignored.
pub fn ignored_checks(given: &[String]) -> Result<BTreeSet<String>, EngineError> {
    for name in given {
        kubeon_plan::precheck::may_be_ignored(name)
            .map_err(|why| EngineError::refused(format!("--ignore {why}")))?;
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
