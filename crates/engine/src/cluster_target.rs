//! The cluster that a change is about: what it should be, and what is stored of it.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::HostAddress;
use kubeon_plan::{Artifacts, DesiredCluster, HostSpec, Intent, Note, Valid};

use crate::cluster_request::{self, ClusterRequest};
use crate::engine::{self, Engine, StoredCluster};
use crate::error::EngineError;
use crate::login_merge::{keep_undeclared, merge_remembered};
use crate::login_request::{HostLoginRequest, LoginRequests};
use crate::worker_change::{self, Back};

/// A cluster and what it should be.
pub struct ClusterTarget {
    /// What it should be.
    pub spec: Valid<DesiredCluster>,
    /// What the user should know.
    pub notes: Vec<Note>,
    /// How to log in to each host.
    pub logins: BTreeMap<HostAddress, HostLoginRequest>,
    /// What is stored of it; a new identity when nothing is.
    pub state: StoredCluster,
    /// Whether it is stored.
    pub known: bool,
    /// Hosts to leave out.
    pub skip_hosts: Vec<HostAddress>,
    /// Workers that leave with this change, by name.
    pub newly_leaving: Vec<String>,
    /// Seconds that their pods may take to go elsewhere.
    pub drain_seconds: u32,
    /// Checks that may fail.
    pub ignore: BTreeSet<String>,
}

/// Options of a change, besides what the cluster should be.
#[derive(Debug, Clone)]
pub struct TargetOptions {
    /// How to log in to all hosts and to those of a role.
    pub logins: LoginRequests,
    /// Addresses of hosts to leave out.
    pub skip_hosts: Vec<String>,
    /// What is done about workers that are leaving and asked for again.
    pub back: Back,
    /// Seconds that the pods of a leaving worker may take to go elsewhere.
    pub drain_seconds: u32,
    /// Checks that may fail.
    pub ignore: BTreeSet<String>,
}

impl Default for TargetOptions {
    fn default() -> Self {
        Self {
            logins: LoginRequests::default(),
            skip_hosts: Vec::new(),
            back: Back::Refused,
            drain_seconds: Intent::DRAIN_SECONDS,
            ignore: BTreeSet::new(),
        }
    }
}

impl ClusterTarget {
    /// A cluster that is requested as a whole, new or stored.
    ///
    /// # Errors
    /// Refuses, with every reason at once, what cannot be planned whatever the state of the hosts is.
    pub fn requested(
        engine: &Engine<'_>,
        request: ClusterRequest,
        options: TargetOptions,
    ) -> Result<Self, EngineError> {
        let ClusterRequest { spec, notes, logins } = request;
        if !engine.store.exists(&spec.name) {
            let state = StoredCluster::new(spec.name.clone(), (*spec).clone());
            let skip_hosts = engine::skip_hosts(&options.skip_hosts, &spec, &state)?;
            return Ok(Self {
                spec,
                notes,
                logins,
                state,
                known: false,
                skip_hosts,
                newly_leaving: Vec::new(),
                drain_seconds: options.drain_seconds,
                ignore: options.ignore,
            });
        }
        let state = engine.load(&spec.name)?;
        let named = with_names(&spec, &state);
        let mut target = Self::changed(engine, state, named, options)?;
        keep_undeclared(&mut target.logins, |host| logins.contains_key(host), &target.state.logins);
        target.logins.extend(logins);
        target.notes = notes;
        Ok(target)
    }

    /// A stored cluster as it is stored.
    ///
    /// # Errors
    /// As for [`ClusterTarget::changed`].
    pub fn stored(
        engine: &Engine<'_>,
        state: StoredCluster,
        options: TargetOptions,
    ) -> Result<Self, EngineError> {
        let spec = state.spec.clone();
        Self::changed(engine, state, spec, options)
    }

    /// A stored cluster with another specification. Logins are the remembered ones.
    ///
    /// # Errors
    /// Refuses a change of anything but the workers once hosts were written to, and what cannot be planned.
    pub fn changed(
        engine: &Engine<'_>,
        mut state: StoredCluster,
        spec: DesiredCluster,
        options: TargetOptions,
    ) -> Result<Self, EngineError> {
        let TargetOptions { logins: flags, skip_hosts, back, drain_seconds, ignore } = options;
        let mut newly_leaving = Vec::new();
        // Before anything is written to a host the request may still change.
        if spec != state.spec && state.may_be_on_hosts() {
            newly_leaving = worker_change::apply(&mut state, &spec, back)?;
        }
        let (spec, notes) = cluster_request::stored_spec(spec, &engine.supported()?)?;
        let skip_hosts = engine::skip_hosts(&skip_hosts, &spec, &state)?;
        let hosts = spec.hosts().map(|host| host.address).chain(state.leaving.keys().copied());
        let logins = merge_remembered(hosts, &spec.masters, &flags, &state.logins);
        Ok(Self { spec, notes, logins, state, known: true, skip_hosts, newly_leaving, drain_seconds, ignore })
    }

    /// What plans are made from.
    pub fn intent(&self, artifacts: Artifacts) -> Intent {
        let intent = engine::intent(self.spec.clone(), &self.state, artifacts, self.skip_hosts.clone());
        Intent { drain_seconds: self.drain_seconds, ignore: self.ignore.clone(), ..intent }
    }
}

/// The specification with the names that hosts have as nodes already: a node keeps its name.
fn with_names(spec: &DesiredCluster, state: &StoredCluster) -> DesiredCluster {
    let stored = state.spec.hosts().map(|host| (host.address, host.name.clone()));
    let leaving = state.leaving.iter().map(|(address, name)| (*address, name.clone()));
    let names: BTreeMap<_, _> = leaving.chain(stored).collect();
    let named = |hosts: &[HostSpec]| {
        hosts
            .iter()
            .cloned()
            .map(|mut host| {
                host.name = host.name.or_else(|| names.get(&host.address).cloned().flatten());
                host
            })
            .collect()
    };
    DesiredCluster { masters: named(&spec.masters), workers: named(&spec.workers), ..spec.clone() }
}
