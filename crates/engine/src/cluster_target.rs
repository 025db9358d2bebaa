//! The target of a change: the desired specification and the stored state of a cluster.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::kubernetes_cluster::FirewallMode;
use kubeon_api::{HostAddress, Version};
use kubeon_plan::{Artifacts, DesiredCluster, HostSpec, Intent, MaxUnavailable, Note, Valid};
use kubeon_store::Status;

use crate::bundles;
use crate::change_bundles::{self, ChangeBundles};
use crate::cluster_request::{self, ClusterRequest};
use crate::engine::{self, Engine, StoredCluster};
use crate::error::{EngineError, note_text};
use crate::host_change::{self, LeavingWorkerPolicy};
use crate::login_merge::{keep_undeclared, merge_remembered};
use crate::login_request::{HostLoginRequest, LoginRequests};
use crate::remedy::EngineRemedy;

/// A cluster with its desired specification and its stored state.
pub struct ClusterTarget {
    /// The desired specification.
    pub spec: Valid<DesiredCluster>,
    /// Notes for the user.
    pub notes: Vec<Note>,
    /// How to log in to each host.
    pub logins: BTreeMap<HostAddress, HostLoginRequest>,
    /// The stored state; a new state with a new UID if none is stored.
    pub state: StoredCluster,
    /// Whether the state is stored.
    pub known: bool,
    /// Hosts to skip.
    pub skip_hosts: Vec<HostAddress>,
    /// Leaving masters that are lost: the change is refused if one of them answers.
    pub lost_hosts: BTreeSet<HostAddress>,
    /// Hosts whose address changes: the change is refused if one of them does not answer at the new one.
    pub moved_hosts: BTreeSet<HostAddress>,
    /// The workers that the change concerns, besides those that leave; `None` if it concerns all hosts.
    pub concerned: Option<BTreeSet<HostAddress>>,
    /// Names of the hosts that this change removes.
    pub newly_leaving: Vec<String>,
    /// Time limit for draining a leaving worker, in seconds.
    pub drain_seconds: u32,
    /// Whether nodes keep their pods while their kubelet changes to another minor version.
    pub skip_evict: bool,
    /// Ignored checks.
    pub ignore: BTreeSet<String>,
    /// How many workers may be unavailable at the same time while services restart.
    pub max_unavailable: MaxUnavailable,
    /// The versions to which the cluster changes afterwards. Its hosts need disk space for them before the first change.
    pub later_versions: Vec<Version>,
}

/// Options of a change besides the specification.
#[derive(Debug, Clone)]
pub struct TargetOptions {
    /// How to log in to all hosts and to the hosts of a role.
    pub logins: LoginRequests,
    /// Addresses of hosts to skip.
    pub skip_hosts: Vec<String>,
    /// How to handle workers that are leaving and are requested again.
    pub leaving_workers: LeavingWorkerPolicy,
    /// Time limit for draining a node, in seconds.
    pub drain_seconds: u32,
    /// Whether nodes keep their pods while their kubelet changes to another minor version.
    pub skip_evict: bool,
    /// Ignored checks.
    pub ignore: BTreeSet<String>,
    /// How many workers may be unavailable at the same time while services restart.
    pub max_unavailable: MaxUnavailable,
}

impl Default for TargetOptions {
    fn default() -> Self {
        Self {
            logins: LoginRequests::default(),
            skip_hosts: Vec::new(),
            leaving_workers: LeavingWorkerPolicy::Refuse,
            drain_seconds: Intent::DRAIN_SECONDS,
            skip_evict: false,
            ignore: BTreeSet::new(),
            max_unavailable: MaxUnavailable::default(),
        }
    }
}

impl ClusterTarget {
    /// The target of a complete request, for a new or a stored cluster.
    ///
    /// # Errors
    /// Refuses a request that cannot be planned for any state of the hosts, with all reasons at once.
    pub fn requested(
        engine: &Engine<'_>,
        request: ClusterRequest,
        options: TargetOptions,
    ) -> Result<Self, EngineError> {
        let ClusterRequest { spec, named: settings, notes, logins } = request;
        if !engine.store.exists(&spec.name) {
            let (spec, _) = kubeon_plan::validate((*spec).clone(), &engine.supported()?)?;
            let state = StoredCluster::new(spec.name.clone(), (*spec).clone());
            let skip_hosts = engine::skip_hosts(&options.skip_hosts, &spec, &state)?;
            return Ok(Self {
                spec,
                notes,
                logins,
                state,
                known: false,
                skip_hosts,
                lost_hosts: BTreeSet::new(),
                moved_hosts: BTreeSet::new(),
                concerned: None,
                newly_leaving: Vec::new(),
                drain_seconds: options.drain_seconds,
                skip_evict: options.skip_evict,
                ignore: options.ignore,
                max_unavailable: options.max_unavailable,
                later_versions: Vec::new(),
            });
        }
        let mut state = engine.load(&spec.name)?;
        let given_up = give_up_trial(&mut state, spec.version);
        let mut named = with_stored_hosts(&spec, &state);
        settings.keep_others(&mut named.settings, &state.spec.settings);
        let mut target = Self::changed(engine, state, named, options)?;
        keep_undeclared(&mut target.logins, |host| logins.contains_key(host), &target.state.logins);
        target.logins.extend(logins);
        target.notes = notes.into_iter().chain(given_up).collect();
        Ok(target)
    }

    /// The target of a stored cluster with its stored specification.
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

    /// The target of a stored cluster with another specification and its remembered logins.
    ///
    /// # Errors
    /// Refuses a specification that cannot be planned. After hosts were written to, refuses any change except
    /// of the hosts and of settings that can change.
    pub fn changed(
        engine: &Engine<'_>,
        mut state: StoredCluster,
        spec: DesiredCluster,
        options: TargetOptions,
    ) -> Result<Self, EngineError> {
        let TargetOptions {
            logins: flags,
            skip_hosts,
            leaving_workers,
            drain_seconds,
            skip_evict,
            ignore,
            max_unavailable,
        } = options;
        refuse_destroying(&state)?;
        let mut newly_leaving = Vec::new();
        // Before anything is written to a host the request may still change.
        if spec != state.spec && state.may_be_on_hosts() {
            newly_leaving = host_change::apply(&mut state, &spec, leaving_workers)?;
        }
        let (spec, notes) = cluster_request::stored_spec(spec, &engine.supported()?)?;
        let skip_hosts = engine::skip_hosts(&skip_hosts, &spec, &state)?;
        let hosts = spec.hosts().map(|host| host.address).chain(state.leaving.keys().copied());
        let logins = merge_remembered(hosts, &spec.masters, &flags, &state.logins);
        Ok(Self {
            spec,
            notes,
            logins,
            state,
            known: true,
            skip_hosts,
            lost_hosts: BTreeSet::new(),
            moved_hosts: BTreeSet::new(),
            concerned: None,
            newly_leaving,
            drain_seconds,
            skip_evict,
            ignore,
            max_unavailable,
            later_versions: Vec::new(),
        })
    }

    /// Limits the change to the masters and to the workers that join or leave: the other workers are not
    /// contacted. A cluster that was never finished is not limited, and neither is one whose masters change, which every
    /// worker must know, one with hosts that kubeon does not run yet, or one whose firewalls kubeon manages: every host lets in each
    /// other host.
    pub(crate) fn limit_to_changed_workers(&mut self) {
        let managed = self.spec.settings.firewall == FirewallMode::Manage;
        let settled = !self.state.changes_masters() && self.state.taken_over.is_empty();
        if self.state.status == Status::Running && !managed && settled {
            self.concerned = Some(joining(&self.spec, &self.state));
        }
    }

    /// Prints the notes as warnings.
    pub(crate) fn warn(&self, engine: &Engine<'_>) {
        self.notes.iter().for_each(|note| engine.output.warn(&note_text(note)));
        // An inconsistent catalogue has been refused before.
        if let Ok(Some(warning)) = bundles::end_of_life_warning(self.spec.version, engine::today()) {
            engine.output.warn(&warning);
        }
    }

    /// The bundles of the change.
    pub(crate) fn bundles(&self, engine: &Engine<'_>) -> Result<ChangeBundles, EngineError> {
        let (version, trial) = (self.spec.version, self.state.trial);
        change_bundles::of_change(&engine.environment, version, trial, &self.later_versions)
    }

    /// The intent of the target: the input of plans.
    /// `artifacts` are those of the bundle of this machine's architecture, and of the others.
    pub(crate) fn intent(&self, (artifacts, other_artifacts): (Artifacts, Vec<Artifacts>)) -> Intent {
        let intent = engine::intent(self.spec.clone(), &self.state, artifacts, self.skip_hosts.clone());
        let mut intent = Intent {
            other_artifacts,
            drain_seconds: self.drain_seconds,
            skip_evict: self.skip_evict,
            lost_hosts: self.lost_hosts.clone(),
            moved_hosts: self.moved_hosts.clone(),
            ignore: self.ignore.clone(),
            max_unavailable: self.max_unavailable,
            ..intent
        };
        if let Some(workers) = &self.concerned {
            intent.limit_to(workers);
        }
        intent
    }
}

/// A cluster whose removal began may have lost its data on some hosts: it would come back empty.
fn refuse_destroying(state: &StoredCluster) -> Result<(), EngineError> {
    if state.status != Status::Destroying {
        return Ok(());
    }
    let error = EngineError::refused(format!("{} is being destroyed", state.name));
    Err(error.remedy(EngineRemedy::CompleteDestroy(state.name.clone())))
}

/// Ends the trial of another version if the request has the version that the cluster still has: its masters go back.
fn give_up_trial(state: &mut StoredCluster, requested: Version) -> Option<Note> {
    let trial = state.trial.take_if(|_| requested == state.spec.version)?;
    Some(Note {
        host: None,
        text: format!("the change to {trial} ends here: {requested} is requested again"),
    })
}

/// The workers of the specification whose addition begins now or is not finished.
pub(crate) fn joining(spec: &DesiredCluster, state: &StoredCluster) -> BTreeSet<HostAddress> {
    let is_new = |host: &&HostSpec| {
        let stored = state.spec.workers.iter().any(|stored| stored.address == host.address);
        !stored || state.joining.contains(&host.address)
    };
    spec.workers.iter().filter(is_new).map(|host| host.address).collect()
}

/// The specification with the stored node names and internal addresses: a node keeps them.
fn with_stored_hosts(spec: &DesiredCluster, state: &StoredCluster) -> DesiredCluster {
    let stored = state.spec.hosts().map(|host| (host.address, host.name.clone()));
    let leaving = state.leaving.iter().map(|(address, name)| (*address, name.clone()));
    let names: BTreeMap<_, _> = leaving.chain(stored).collect();
    let internal = |address| {
        state.spec.hosts().find(|host| host.address == address).and_then(|host| host.internal_address)
    };
    let named = |hosts: &[HostSpec]| {
        hosts
            .iter()
            .cloned()
            .map(|mut host| {
                host.internal_address = host.internal_address.or_else(|| internal(host.address));
                host.name = host.name.or_else(|| names.get(&host.address).cloned().flatten());
                host
            })
            .collect()
    };
    DesiredCluster {
        masters: named(&spec.masters),
        workers: named(&spec.workers),
        etcd_hosts: named(&spec.etcd_hosts),
        ..spec.clone()
    }
}
