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
use crate::way_back::way_back;

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
    /// Whether the change only puts parts onto the hosts. Another one does the rest.
    pub only_parts: bool,
    /// How many versions follow in other runs, whose bundles are not on this machine.
    pub unseen_versions: u32,
    /// Ignored checks.
    pub ignore: BTreeSet<String>,
    /// How many workers may be unavailable at the same time while services restart.
    pub max_unavailable: MaxUnavailable,
    /// The versions to which the cluster changes afterwards. Its hosts need disk space for them before the first change.
    pub later_versions: Vec<Version>,
    /// Whether the change goes on with an upgrade that is not complete. Otherwise it changes hosts only, and the version is not taken.
    pub continues_upgrade: bool,
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
    /// How many versions follow in other runs, whose bundles are not on this machine.
    pub unseen_versions: u32,
    /// Ignored checks.
    pub ignore: BTreeSet<String>,
    /// How many workers may be unavailable at the same time while services restart.
    pub max_unavailable: MaxUnavailable,
    /// Whether only the masters and the workers that join or leave are contacted, as far as the request changes nothing else.
    pub only_changed_workers: bool,
}

impl Default for TargetOptions {
    fn default() -> Self {
        Self {
            logins: LoginRequests::default(),
            skip_hosts: Vec::new(),
            leaving_workers: LeavingWorkerPolicy::Refuse,
            drain_seconds: Intent::DRAIN_SECONDS,
            skip_evict: false,
            unseen_versions: 0,
            ignore: BTreeSet::new(),
            max_unavailable: MaxUnavailable::default(),
            only_changed_workers: false,
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
                only_parts: false,
                unseen_versions: options.unseen_versions,
                ignore: options.ignore,
                max_unavailable: options.max_unavailable,
                later_versions: Vec::new(),
                continues_upgrade: true,
            });
        }
        let mut state = engine.load(&spec.name)?;
        let given_up = give_up_upgrade(&mut state, spec.version);
        let mut named = with_stored_hosts(&spec, &state);
        let kept = keep_open_version(&mut named, &state);
        settings.keep_others(&mut named, &state.spec);
        let mtu = other_mtu(&state, &named);
        let limited = options.only_changed_workers && differ_in_workers_only(&named, &state.spec);
        let mut target = Self::changed(engine, state, named, options)?;
        keep_undeclared(&mut target.logins, |host| logins.contains_key(host), &target.state.logins);
        target.logins.extend(logins);
        target.notes = notes.into_iter().chain(given_up).chain(kept).chain(mtu).collect();
        if limited {
            target.limit_to_changed_workers();
        }
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
            unseen_versions,
            ignore,
            max_unavailable,
            only_changed_workers: _,
        } = options;
        refuse_destroying(&state)?;
        // Only a range that an older version permitted may cover ports of the cluster's own programs.
        let stored_ports = state.spec.settings.node_ports;
        let mtu = other_mtu(&state, &spec);
        let mut newly_leaving = Vec::new();
        // Before anything is written to a host the request may still change.
        if spec != state.spec && state.may_be_on_hosts() {
            newly_leaving = host_change::apply(&mut state, &spec, leaving_workers)?;
        }
        let (spec, mut notes) = cluster_request::stored_spec(spec, &engine.supported()?)?;
        if spec.settings.node_ports != stored_ports
            && let Some(refusal) = kubeon_plan::node_ports_refusal(&spec)
        {
            return Err(EngineError::refusals(spec.name.as_str(), vec![refusal], &notes));
        }
        notes.extend(mtu);
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
            only_parts: false,
            unseen_versions,
            ignore,
            max_unavailable,
            later_versions: Vec::new(),
            continues_upgrade: true,
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
        let (version, trial, nodes_at) = (self.spec.version, self.state.trial, self.state.nodes_at);
        change_bundles::of_change(&engine.environment, version, trial, nodes_at, &self.later_versions)
    }

    /// The intent of the target: the input of plans.
    /// `artifacts` are those of the bundle of this machine's architecture, and of the others.
    pub(crate) fn intent(&self, (artifacts, other_artifacts): (Artifacts, Vec<Artifacts>)) -> Intent {
        let intent = engine::intent(self.spec.clone(), &self.state, artifacts, self.skip_hosts.clone());
        let mut intent = Intent {
            other_artifacts,
            drain_seconds: self.drain_seconds,
            skip_evict: self.skip_evict,
            only_parts: self.only_parts,
            unseen_versions: self.unseen_versions,
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

/// Ends an upgrade that can be aborted if the request has the version of before: the cluster goes back.
fn give_up_upgrade(state: &mut StoredCluster, requested: Version) -> Option<Note> {
    let back = way_back(state.clone()).ok().filter(|back| back.keeps == requested)?;
    *state = back.state;
    let text = format!("the change to {} ends here: {requested} is requested again", back.given_up);
    Some(Note { host: None, text })
}

/// Whether the specifications are the same except for workers that only one of them has.
fn differ_in_workers_only(requested: &DesiredCluster, stored: &DesiredCluster) -> bool {
    let known: BTreeMap<HostAddress, &HostSpec> =
        stored.workers.iter().map(|host| (host.address, host)).collect();
    let unchanged = |host: &HostSpec| known.get(&host.address).is_none_or(|stored| *stored == host);
    let same_workers = DesiredCluster { workers: stored.workers.clone(), ..requested.clone() };
    same_workers == *stored && requested.workers.iter().all(unchanged)
}

/// What another size of the packets of pods does to pods that run.
fn other_mtu(state: &StoredCluster, requested: &DesiredCluster) -> Option<Note> {
    let (before, now) = (state.spec.settings.mtu, requested.settings.mtu);
    let size = now.map_or_else(|| "as large as the links allow".to_owned(), |bytes| format!("{bytes} bytes"));
    let text = format!(
        "network.mtu becomes {size}: containerd restarts on one node after another, and pods that run keep the size that they \
         have until they are created again"
    );
    (before != now && state.may_be_on_hosts()).then_some(Note { host: None, text })
}

/// Goes on with an upgrade that is not complete: if the request has the version that is tried, or if it changes masters or hosts of etcd
/// and has the version before, to which the cluster cannot go back. Such an upgrade may wait for the very host that the request replaces.
fn keep_open_version(requested: &mut DesiredCluster, state: &StoredCluster) -> Option<Note> {
    if state.status != Status::Upgrading || requested.version == state.spec.version {
        return None;
    }
    let addresses = |hosts: &[HostSpec]| hosts.iter().map(|host| host.address).collect::<BTreeSet<_>>();
    let changes_members = addresses(&requested.masters) != addresses(&state.spec.masters)
        || addresses(&requested.etcd_hosts) != addresses(&state.spec.etcd_hosts);
    let is_before = state.trial.is_none() && Some(requested.version) == state.version;
    if state.trial != Some(requested.version) && !(is_before && changes_members) {
        return None;
    }
    requested.version = state.spec.version;
    let version = state.trial.unwrap_or(state.spec.version);
    Some(Note { host: None, text: format!("the change to {version}, which is not complete, goes on") })
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

#[cfg(test)]
mod tests {
    use kubeon_plan::sim::cluster;

    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn an_upgrade_that_waits_for_a_lost_master_goes_on_when_a_request_replaces_it() {
        let spec =
            |masters: &[&str], of: &str| DesiredCluster { version: version(of), ..cluster(masters, &[]) };
        let old = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
        let new = ["10.0.0.9", "10.0.0.2", "10.0.0.3"];
        let mut state = StoredCluster::new("demo".parse().unwrap(), spec(&old, "v1.37.2"));
        (state.version, state.status) = (Some(version("v1.36.3")), Status::Upgrading);
        let kept = |state: &StoredCluster, mut requested: DesiredCluster| {
            let note = keep_open_version(&mut requested, state);
            (note.is_some(), requested.version.to_string())
        };
        assert_eq!(kept(&state, spec(&new, "v1.36.3")), (true, "v1.37.2".to_owned()));
        assert_eq!(kept(&state, spec(&old, "v1.36.3")), (false, "v1.36.3".to_owned()), "no host changes");
        assert_eq!(kept(&state, spec(&new, "v1.38.1")), (false, "v1.38.1".to_owned()), "another version");
        (state.trial, state.spec.version) = (state.spec.version.into(), version("v1.36.3"));
        assert_eq!(kept(&state, spec(&old, "v1.37.2")), (true, "v1.36.3".to_owned()), "it is tried");
        state.status = Status::Running;
        assert_eq!(kept(&state, spec(&old, "v1.37.2")), (false, "v1.37.2".to_owned()));
    }
    /// In a meta cluster this is the way to replace a lost master for which an upgrade waits.
    #[test]
    fn the_old_version_in_a_request_ends_an_upgrade_and_the_request_may_replace_a_master() {
        let spec =
            |masters: &[&str], of: &str| DesiredCluster { version: version(of), ..cluster(masters, &[]) };
        let old = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
        let open = |trial: Option<&str>, of: &str| {
            let mut state = StoredCluster::new("demo".parse().unwrap(), spec(&old, of));
            (state.version, state.status) = (Some(version("v1.36.3")), Status::Upgrading);
            state.trial = trial.map(version);
            state
        };
        let ends = |mut state: StoredCluster| {
            let note = give_up_upgrade(&mut state, version("v1.36.3"));
            (note.map(|note| note.text), state)
        };
        for (state, given_up) in
            [(open(Some("v1.37.2"), "v1.36.3"), "v1.37.2"), (open(None, "v1.36.4"), "v1.36.4")]
        {
            let (note, mut state) = ends(state);
            let text = format!("the change to {given_up} ends here: v1.36.3 is requested again");
            assert_eq!(note, Some(text));
            assert_eq!((state.trial, state.spec.version), (None, version("v1.36.3")));
            let requested = spec(&["10.0.0.9", "10.0.0.2", "10.0.0.3"], "v1.36.3");
            assert_eq!(keep_open_version(&mut requested.clone(), &state), None, "it does not go on");
            let left = host_change::apply(&mut state, &requested, LeavingWorkerPolicy::TakeBack).unwrap();
            assert_eq!(left, ["10.0.0.1"]);
            assert_eq!(state.joining_masters, BTreeSet::from(["10.0.0.9".parse().unwrap()]));
        }
        let (note, state) = ends(open(None, "v1.37.2"));
        assert_eq!((note, state.spec.version), (None, version("v1.37.2")), "it cannot go back");
        let mut running = open(None, "v1.36.3");
        running.status = Status::Running;
        assert_eq!(ends(running).0, None);
    }
}
