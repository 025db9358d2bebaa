//! A cluster out of a snapshot of etcd: on its own hosts after `destroy`, or on others.

use std::fs::File;

use kubeon_plan::{HostSpec, Refusal, RefusedField};
use kubeon_store::Status;

use crate::cluster_request::{ClusterRequest, HostRequest};
use crate::cluster_target::{ClusterTarget, TargetOptions};
use crate::engine::{Engine, StoredCluster};
use crate::error::EngineError;
use crate::etcd_snapshot::state_file;
use crate::login_merge::refuse_unused_flags;
use crate::login_request::HostLoginRequest;
use crate::remedy::EngineRemedy;
use crate::restored_snapshot;
use crate::snapshot_place::SnapshotPlace;
use crate::snapshot_storage::FetchedSnapshot;

/// The command that holds the lock.
const COMMAND: &str = "kubeon etcd restore";

/// What a cluster is restored from, and onto which hosts.
#[derive(Debug)]
pub struct RestoreRequest<'a> {
    /// The cluster.
    pub name: &'a str,
    /// The snapshot.
    pub snapshot: &'a FetchedSnapshot,
    /// The masters; empty for those of the stored cluster.
    pub masters: Vec<HostRequest>,
    /// The workers; if masters are given, these are all workers.
    pub workers: Vec<HostRequest>,
    /// A declaration of the same cluster instead of masters and workers.
    pub declared: Option<ClusterRequest>,
}

/// The target of a cluster that is made out of a snapshot.
///
/// # Errors
/// Refuses a damaged snapshot, and one that is not known as a snapshot of the cluster.
pub fn target(
    engine: &Engine<'_>,
    request: RestoreRequest<'_>,
    options: TargetOptions,
) -> Result<ClusterTarget, EngineError> {
    let flags = options.logins.clone();
    let mut state = made_out_of(engine, engine.find(Some(request.name))?, request.snapshot)?;
    let added: Vec<HostRequest> = request.masters.iter().chain(&request.workers).cloned().collect();
    if let Some(declared) = &request.declared {
        take_hosts(&mut state, declared)?;
    } else if !added.is_empty() {
        if let Some(host) = state.spec.etcd_hosts.first() {
            let reason =
                "etcd of this cluster has hosts of its own: name all hosts in a file (-f), with etcdList";
            let refusal = Refusal::new(RefusedField::EtcdHost, host.address, reason);
            return Err(EngineError::refusals(state.name.as_str(), vec![refusal], &[]));
        }
        state.spec.masters = request.masters.into_iter().map(HostSpec::from).collect();
        state.spec.workers = request.workers.into_iter().map(HostSpec::from).collect();
        state.logins.retain(|host, _| added.iter().any(|added| added.address == *host));
    }
    let mut target = ClusterTarget::stored(engine, state, options)?;
    target.logins.extend(request.declared.into_iter().flat_map(|declared| declared.logins));
    for HostRequest { address, login, .. } in added {
        target.logins.insert(address, HostLoginRequest { flags: login, ..HostLoginRequest::default() });
    }
    refuse_unused_flags(&flags, &target.spec.masters, &target.logins)?;
    Ok(target)
}

/// The state of a cluster that is made out of a snapshot, from a state that knows the snapshot. The snapshot is packed for the hosts,
/// and no state is stored.
///
/// # Errors
/// As for [`target`]; fails when the snapshot cannot be packed.
pub(crate) fn made_out_of(
    engine: &Engine<'_>,
    mut state: StoredCluster,
    snapshot: &FetchedSnapshot,
) -> Result<StoredCluster, EngineError> {
    let found = snapshot.check()?;
    let Some(taken) = state.snapshots.get(&found.sha256).copied() else {
        let error =
            EngineError::refused(format!("{} is not known as a snapshot of {}", snapshot.place, state.name));
        let remedy = match snapshot.place.state() {
            SnapshotPlace::File(file) => {
                Some(EngineRemedy::ImportState { cluster: state.name.clone(), file })
            }
            SnapshotPlace::Object(_) => None,
        };
        return Err(error.row("sha256", found.sha256).remedy(remedy));
    };
    let part = restored_snapshot::pack(&engine.store.restore_folder(&state.name), &snapshot.file)?;
    // An unfinished restore of the same snapshot continues.
    let unfinished = state.restoring.take().filter(|unfinished| unfinished.digest == part.digest);
    state.restoring = unfinished.or(Some(part));
    (state.status, state.version, state.nodes_at) = (Status::Creating, None, None);
    // The snapshot may be of a cluster that tried another version: its data is of its own one.
    (state.trial, state.upgrading_to) = (None, None);
    state.spec.version = taken.version;
    state.bundle.clear();
    (state.leaving, state.joining) = Default::default();
    (state.leaving_masters, state.joining_masters) = Default::default();
    (state.leaving_etcd_hosts, state.joining_etcd_hosts) = Default::default();
    state.known_masters.clear();
    Ok(state)
}

/// Takes the hosts of a declaration. Everything else must be as in the snapshot.
fn take_hosts(state: &mut StoredCluster, declared: &ClusterRequest) -> Result<(), EngineError> {
    let refused = |field: &str, value: String, reason: String| {
        let refusal = Refusal::setting(format!("{field} {value}").trim_end(), reason);
        EngineError::refusals(state.name.as_str(), vec![refusal], &[])
    };
    let spec = &declared.spec;
    if spec.name != state.name {
        return Err(refused(
            "metadata.name",
            spec.name.to_string(),
            format!("the snapshot is of {}", state.name),
        ));
    }
    if spec.version != state.spec.version {
        let reason =
            format!("the snapshot is of {}; declare that, and upgrade afterwards", state.spec.version);
        return Err(refused("spec.cluster.kubeVersion", spec.version.to_string(), reason));
    }
    let mut settings = spec.settings.clone();
    declared.named.keep_settings(&mut settings, &state.spec.settings);
    if settings != state.spec.settings {
        let reason =
            "has other settings than the cluster of the snapshot; leave them out, and change them afterwards";
        return Err(refused("spec.cluster", String::new(), reason.to_owned()));
    }
    (state.spec.masters, state.spec.workers) = (spec.masters.clone(), spec.workers.clone());
    state.spec.etcd_hosts.clone_from(&spec.etcd_hosts);
    state.logins.retain(|host, _| spec.hosts().any(|declared| declared.address == *host));
    Ok(())
}

/// Reads the state and the keys beside the snapshot, if this machine does not know the cluster, and returns what was read.
///
/// # Errors
/// When there is no state beside it, or another command holds the lock.
pub fn import_if_unknown(
    engine: &Engine<'_>,
    name: &str,
    snapshot: &FetchedSnapshot,
) -> Result<Option<StoredCluster>, EngineError> {
    let name = engine.name(Some(name))?;
    if engine.store.exists(&name) {
        return Ok(None);
    }
    let place = snapshot.place.state();
    let file = File::open(state_file(&snapshot.file)).map_err(|error| {
        EngineError::refused(format!("Cluster[{name}] not exist, and {place} cannot be read"))
            .row("cause", error.to_string())
    })?;
    let lock = engine.store.lock(&name, COMMAND)?;
    engine.store.import(&lock, file)?;
    engine.output.info(&format!("{name}: its state and keys come from {place}"));
    engine.load(&name).map(Some)
}

/// Removes what a refused restore left: the packed snapshot of a cluster that is not being restored, and the state that was
/// imported for it. That state names the hosts of the cluster at the time of the snapshot, which may serve: a later command must
/// not take them for those of this cluster.
///
/// # Errors
/// When it cannot be removed.
pub fn forget_unused(
    engine: &Engine<'_>,
    name: &str,
    imported: Option<&StoredCluster>,
) -> Result<(), EngineError> {
    let name = engine.name(Some(name))?;
    let stored = if engine.store.exists(&name) { Some(engine.load(&name)?) } else { None };
    if stored.as_ref().is_some_and(|stored| stored.restoring.is_some()) {
        return Ok(());
    }
    if engine.store.restore_folder(&name).exists() {
        restored_snapshot::remove(engine, &name)?;
    }
    if imported.is_none() || stored.as_ref() != imported {
        return Ok(());
    }
    let lock = engine.store.lock(&name, COMMAND)?;
    Ok(engine.store.remove(&lock, &name)?)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use kubeon_plan::sim::cluster;

    use super::*;
    use crate::environment::EngineEnvironment;
    use crate::output::SilentOutput;

    fn engine(folder: &std::path::Path) -> Engine<'static> {
        let state_folder = Some(folder.to_owned());
        Engine::new(EngineEnvironment { state_folder, ..EngineEnvironment::default() }, &SilentOutput)
            .unwrap()
    }

    /// A snapshot with the state of a running cluster beside it.
    fn saved(folder: &std::path::Path) -> FetchedSnapshot {
        let engine = engine(&folder.join("control"));
        let spec = cluster(&["10.0.0.1"], &[]);
        let mut state = StoredCluster::new(spec.name.clone(), spec);
        state.status = Status::Running;
        let lock = engine.store.lock(&state.name, "test").unwrap();
        engine.store.save(&lock, &mut state).unwrap();
        let file: PathBuf = folder.join("demo.db");
        engine.store.export(&state.name, &File::create(state_file(&file)).unwrap()).unwrap();
        FetchedSnapshot::plain(file)
    }

    #[test]
    fn a_refused_restore_leaves_no_state_and_one_that_began_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let snapshot = saved(folder.path());
        let engine = engine(&folder.path().join("other"));
        let name: kubeon_api::ClusterName = "demo".parse().unwrap();
        let imported = import_if_unknown(&engine, name.as_str(), &snapshot).unwrap();
        assert_eq!(imported.as_ref().map(|state| state.status), Some(Status::Running));
        assert_eq!(import_if_unknown(&engine, name.as_str(), &snapshot).unwrap(), None, "it is known now");
        forget_unused(&engine, name.as_str(), imported.as_ref()).unwrap();
        assert!(!engine.store.exists(&name));

        let imported = import_if_unknown(&engine, name.as_str(), &snapshot).unwrap();
        let mut begun = imported.clone().unwrap();
        begun.status = Status::Creating;
        let lock = engine.store.lock(&name, "test").unwrap();
        engine.store.save(&lock, &mut begun).unwrap();
        drop(lock);
        forget_unused(&engine, name.as_str(), imported.as_ref()).unwrap();
        assert!(engine.store.exists(&name));
    }

    #[test]
    fn a_snapshot_without_its_state_is_refused_on_another_machine() {
        let folder = tempfile::tempdir().unwrap();
        let snapshot = FetchedSnapshot::plain(folder.path().join("demo.db"));
        let error = import_if_unknown(&engine(folder.path()), "demo", &snapshot).unwrap_err();
        assert!(error.title.contains("demo.db.state cannot be read"), "{error}");
    }
}
