//! The engine: the clusters that are stored on this machine, and values that are derived from their state.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use kubeon_api::kubernetes_cluster::LoadBalancer;
use kubeon_api::{ClusterName, HostAddress, HostRole, Version};
use kubeon_plan::{DesiredCluster, HostSpec, Intent, PartInfo, SnapshotRestore, Valid};
use kubeon_ports::Clock;
use kubeon_store::{Addresses, ClusterLock, ClusterState, Status, Store, StoreError};

use crate::environment::EngineEnvironment;
use crate::error::EngineError;
use crate::output::EngineOutput;
use crate::remedy::{EngineRemedy, RefusedInput};
use crate::selector::Member;

/// The state of a cluster, as it is stored on this machine.
pub type StoredCluster = ClusterState<DesiredCluster>;

/// Operates on the clusters of this machine.
pub struct Engine<'a> {
    /// Files and names of this machine.
    pub environment: EngineEnvironment,
    /// Receives messages and answers questions.
    pub output: &'a dyn EngineOutput,
    /// State on this machine.
    pub store: Store,
}

impl<'a> Engine<'a> {
    /// Creates an engine. It reads and writes no file.
    ///
    /// # Errors
    /// Refuses when the environment names no state folder.
    pub fn new(environment: EngineEnvironment, output: &'a dyn EngineOutput) -> Result<Self, EngineError> {
        let base = environment.state_folder.clone().ok_or(StoreError::NoHome)?;
        Ok(Self { environment, output, store: Store::new(base) })
    }

    /// The given cluster name, else the cluster that `kubeon use` chose.
    ///
    /// # Errors
    /// Refuses when no cluster is given or chosen, or the name is invalid.
    pub fn name(&self, given: Option<&str>) -> Result<ClusterName, EngineError> {
        if let Some(text) = given {
            return text
                .parse()
                .map_err(|error: kubeon_api::NameError| EngineError::refused(error.to_string()));
        }
        let stored_names = || {
            let names = self.store.list().unwrap_or_default();
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            if names.is_empty() { "none yet".to_owned() } else { names.join(" ") }
        };
        self.store.current()?.ok_or_else(|| {
            EngineError::refused("no cluster is named, and none is chosen")
                .row("clusters", stored_names())
                .remedy(EngineRemedy::ChooseCluster)
        })
    }

    /// The names of the stored clusters, sorted. Warns of files that are named like states and are none.
    ///
    /// # Errors
    /// When the folder of the state cannot be read.
    pub fn stored_names(&self) -> Result<Vec<ClusterName>, EngineError> {
        let contents = self.store.contents()?;
        for path in &contents.others {
            self.output.warn(&format!("{} is no state of a cluster and is not listed", path.display()));
        }
        Ok(contents.clusters)
    }

    /// The state of a cluster.
    ///
    /// # Errors
    /// Refuses when no state is stored or it cannot be read.
    pub fn load(&self, name: &ClusterName) -> Result<StoredCluster, EngineError> {
        Ok(self.store.load(name)?)
    }

    /// The state of the given or chosen cluster.
    ///
    /// # Errors
    /// As for [`Engine::name`] and [`Engine::load`].
    pub fn find(&self, given: Option<&str>) -> Result<StoredCluster, EngineError> {
        self.load(&self.name(given)?)
    }

    /// Locks a cluster. `state` is the state as it was read; `known` is false when no state was stored.
    ///
    /// # Errors
    /// Refuses when another command holds the lock or changed the state since it was read.
    pub fn lock(
        &self,
        state: &StoredCluster,
        known: bool,
        command: &str,
    ) -> Result<ClusterLock, EngineError> {
        Ok(self.store.lock_as_read(&state.name, command, known.then_some(state))?)
    }

    /// The supported versions in ascending order.
    ///
    /// # Errors
    /// When the embedded catalogue is inconsistent.
    pub fn supported(&self) -> Result<Vec<Version>, EngineError> {
        Ok(crate::bundles::catalogue()?.versions().collect())
    }
}

/// Stores the specification and the addresses that are derived from it in the state.
pub fn set_spec(state: &mut StoredCluster, spec: DesiredCluster) {
    let services = spec.settings.service_cidr;
    let load_balancer = match spec.settings.load_balancer {
        LoadBalancer::Haproxy => Some(Ipv4Addr::LOCALHOST),
        LoadBalancer::External { .. } | LoadBalancer::Updater => {
            spec.settings.load_balancer.address(services)
        }
    };
    state.addresses = Addresses { api: services.nth(1), dns: services.nth(10), load_balancer };
    if spec.has_external_etcd() {
        state.has_etcd_hosts();
    }
    // A host that comes back after its removal is as any new one.
    state.taken_over.retain(|address| spec.hosts().any(|host| host.address == *address));
    state.spec = spec;
}

/// The intent of a cluster: the input of plans.
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
    let leaving = leaving.into_iter().map(|(address, name)| {
        let spec = HostSpec { name: name.clone(), ..HostSpec::at(*address) };
        let internal = state.leaving_masters.get(address).or_else(|| state.leaving_etcd_hosts.get(address));
        spec.with_internal_address(internal.copied())
    });
    let (leaving, returning) =
        (leaving.collect(), returning.into_iter().map(|(address, _)| *address).collect());
    // The bundle of an upgrade that is not complete was recorded when it began.
    let same_version = state.version.is_none_or(|version| version == spec.version)
        || state.status == Status::Upgrading && state.spec.version == spec.version;
    let bundle_in_use = if same_version { state.bundle.clone() } else { BTreeMap::new() };
    let restore = state.restoring.as_ref().map(|part| SnapshotRestore {
        attempt: part.attempt.clone(),
        snapshot: PartInfo {
            digest: part.digest.clone(),
            size: part.size,
            unpacked_size: part.unpacked_size,
            version: "of etcd".to_owned(),
        },
    });
    Intent {
        restore,
        trial: state.trial,
        nodes_at: state.nodes_at,
        bundle_in_use,
        skip_hosts,
        leaving,
        leaving_masters: state.leaving_masters.keys().copied().collect(),
        joining_masters: state.joining_masters.clone(),
        known_masters: state.known_masters.clone(),
        leaving_etcd_hosts: state.leaving_etcd_hosts.keys().copied().collect(),
        joining_etcd_hosts: state.joining_etcd_hosts.clone(),
        taken_over: state.taken_over.clone(),
        returning,
        keys: state.keys,
        ..Intent::new(spec, &state.uid, state.generation, artifacts)
    }
}

/// The hosts of a cluster, for selectors: masters, workers, then the hosts of etcd alone.
pub fn members(spec: &DesiredCluster) -> Vec<Member> {
    spec.hosts_with_roles().map(|(role, host)| member(host, role)).collect()
}

/// The hosts of the members of etcd.
pub fn etcd_members(spec: &DesiredCluster) -> Vec<Member> {
    spec.member_hosts().iter().map(|host| member(host, spec.member_role())).collect()
}

fn member(host: &HostSpec, role: HostRole) -> Member {
    Member {
        name: host.name.as_ref().map_or_else(|| host.address.to_string(), ToString::to_string),
        address: host.address.ip(),
        role,
    }
}

/// The hosts to skip.
///
/// # Errors
/// Refuses an invalid address, and a host that neither belongs to the cluster nor is leaving it.
pub fn skip_hosts(
    given: &[String],
    spec: &DesiredCluster,
    state: &StoredCluster,
) -> Result<Vec<HostAddress>, EngineError> {
    let mut addresses = Vec::new();
    for text in given {
        let refused = |reason: String| {
            let input = RefusedInput::SkippedHost(text.clone());
            EngineError::input("a host cannot be skipped", input, reason)
        };
        let address = text.parse::<HostAddress>().map_err(|error| refused(error.to_string()))?;
        let known = spec.hosts().any(|host| host.address == address);
        if !known && !state.leaving.contains_key(&address) {
            return Err(refused(format!("is not a host of {}", spec.name)));
        }
        addresses.push(address);
    }
    Ok(addresses)
}

/// The names of the checks that are ignored.
///
/// # Errors
/// Refuses an unknown check, and a check that cannot be ignored.
pub fn ignored_checks(given: &[String]) -> Result<BTreeSet<String>, EngineError> {
    for name in given {
        kubeon_plan::precheck::may_be_ignored(name).map_err(|why| {
            EngineError::input("a check cannot be ignored", RefusedInput::IgnoredCheck(name.clone()), why)
        })?;
    }
    Ok(given.iter().cloned().collect())
}

/// The date of this machine, in its time zone.
pub(crate) fn today() -> jiff::civil::Date {
    jiff::Zoned::now().date()
}

/// The clock of this machine.
pub struct MachineClock;

impl Clock for MachineClock {
    fn now_seconds(&self) -> i64 {
        jiff::Timestamp::now().as_second()
    }
}
