//! A cluster out of a snapshot of etcd: on its own hosts after `destroy`, or on others.

use std::fs::File;

use kubeon_plan::{HostSpec, Refusal};
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

/// The target of a cluster that is made out of a snapshot. A cluster that is not known on this machine is read from the
/// file beside the snapshot.
///
/// # Errors
/// Refuses a damaged snapshot, and one that is not known as a snapshot of the cluster.
pub fn target(
    engine: &Engine<'_>,
    request: RestoreRequest<'_>,
    options: TargetOptions,
) -> Result<ClusterTarget, EngineError> {
    let snapshot = request.snapshot.check()?;
    let flags = options.logins.clone();
    let mut state = known_or_imported(engine, &request)?;
    let Some(taken) = state.snapshots.get(&snapshot.sha256).copied() else {
        let error = EngineError::refused(format!(
            "{} is not known as a snapshot of {}",
            request.snapshot.place, state.name
        ));
        let remedy = match request.snapshot.place.state() {
            SnapshotPlace::File(file) => {
                Some(EngineRemedy::ImportState { cluster: state.name.clone(), file })
            }
            SnapshotPlace::Object(_) => None,
        };
        return Err(error.row("sha256", snapshot.sha256).remedy(remedy));
    };
    let part = restored_snapshot::pack(&engine.store.restore_folder(&state.name), &request.snapshot.file)?;
    state.restoring = Some(part);
    (state.status, state.version) = (Status::Creating, None);
    state.spec.version = taken.version;
    state.bundle.clear();
    (state.leaving, state.joining) = Default::default();
    (state.leaving_masters, state.joining_masters) = Default::default();
    let added: Vec<HostRequest> = request.masters.iter().chain(&request.workers).cloned().collect();
    if let Some(declared) = &request.declared {
        take_hosts(&mut state, declared)?;
    } else if !added.is_empty() {
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
    declared.named.keep_others(&mut settings, &state.spec.settings);
    if settings != state.spec.settings {
        let reason =
            "has other settings than the cluster of the snapshot; leave them out, and change them afterwards";
        return Err(refused("spec.cluster", String::new(), reason.to_owned()));
    }
    (state.spec.masters, state.spec.workers) = (spec.masters.clone(), spec.workers.clone());
    state.logins.retain(|host, _| spec.hosts().any(|declared| declared.address == *host));
    Ok(())
}

/// Removes the packed snapshot of a cluster that is not being restored, such as one whose restore was refused.
///
/// # Errors
/// When it cannot be removed.
pub fn forget_unused(engine: &Engine<'_>, name: &str) -> Result<(), EngineError> {
    let name = engine.name(Some(name))?;
    let restores = engine.store.exists(&name) && engine.load(&name)?.restoring.is_some();
    let folder = engine.store.restore_folder(&name);
    if restores || !folder.exists() {
        return Ok(());
    }
    restored_snapshot::remove(engine, &name)
}

fn known_or_imported(
    engine: &Engine<'_>,
    request: &RestoreRequest<'_>,
) -> Result<StoredCluster, EngineError> {
    let name = engine.name(Some(request.name))?;
    if !engine.store.exists(&name) {
        let place = request.snapshot.place.state();
        let file = File::open(state_file(&request.snapshot.file)).map_err(|error| {
            EngineError::refused(format!("Cluster[{name}] not exist, and {place} cannot be read"))
                .row("cause", error.to_string())
        })?;
        let lock = engine.store.lock(&name, "kubeon etcd restore")?;
        engine.store.import(&lock, file)?;
        engine.output.info(&format!("{name}: its state and keys come from {place}"));
    }
    engine.load(&name)
}
