//! The way back to an earlier version after an upgrade: its snapshot, and what is lost since.

use std::collections::BTreeMap;
use std::fs::File;

use jiff::Timestamp;
use kubeon_api::{HostAddress, Version};
use kubeon_store::Store;

use crate::bundles;
use crate::engine::{Engine, StoredCluster};
use crate::error::EngineError;
use crate::etcd_snapshot::state_file;
use crate::ready_master::ReadyMaster;
use crate::remedy::EngineRemedy;
use crate::restore::made_out_of;
use crate::snapshot_folder;
use crate::snapshot_storage::FetchedSnapshot;

/// The snapshot to which a cluster goes back.
#[derive(Debug)]
pub struct RollbackPoint {
    /// The snapshot.
    pub snapshot: FetchedSnapshot,
    /// When it was taken, UTC.
    pub taken_at: Timestamp,
    /// The version that the cluster had.
    pub version: Version,
    /// The state beside the snapshot.
    before: StoredCluster,
}

/// This snapshot, or the newest one of an earlier version that an upgrade took.
///
/// # Errors
/// Refuses a snapshot that is damaged, not of this cluster, or of the version that it has; one from before its hosts or keys
/// changed, and one without its bundle. Refuses when there is none.
pub fn point(
    engine: &Engine<'_>,
    state: &StoredCluster,
    snapshot: Option<FetchedSnapshot>,
) -> Result<RollbackPoint, EngineError> {
    let known = match snapshot {
        Some(snapshot) => {
            let sha256 = snapshot.check()?.sha256;
            earlier(state, snapshot, &sha256)?
        }
        None => newest(engine, state)?,
    };
    let before = before_of_same_cluster(state, &known.snapshot)?;
    bundles::find(&engine.environment, known.version)?;
    let KnownSnapshot { snapshot, taken_at, version } = known;
    Ok(RollbackPoint { snapshot, taken_at, version, before })
}

/// The state of the cluster that is made out of the snapshot, with its own settings. The snapshot is packed for the hosts, and no state is
/// stored.
///
/// # Errors
/// Refuses when the state beside the snapshot does not know it; fails when it cannot be packed.
pub fn returned(engine: &Engine<'_>, point: &RollbackPoint) -> Result<StoredCluster, EngineError> {
    made_out_of(engine, point.before.clone(), &point.snapshot)
}

/// A snapshot that the state of its cluster knows.
struct KnownSnapshot {
    snapshot: FetchedSnapshot,
    taken_at: Timestamp,
    version: Version,
}

/// The version that the cluster has, or the one to which it changes.
fn newest_version(state: &StoredCluster) -> Version {
    state.version.map_or(state.spec.version, |version| version.max(state.spec.version))
}

fn earlier(
    state: &StoredCluster,
    snapshot: FetchedSnapshot,
    sha256: &str,
) -> Result<KnownSnapshot, EngineError> {
    let refused = |why: String| EngineError::refused(format!("{}: {why}", snapshot.place));
    let saved = state.snapshots.get(sha256);
    let saved = saved.ok_or_else(|| refused(format!("is not known as a snapshot of {}", state.name)))?;
    if saved.version >= newest_version(state) {
        return Err(refused(format!("is of {}, which is no earlier version", saved.version)).remedy(
            EngineRemedy::RestoreAfterDestroy {
                cluster: state.name.clone(),
                snapshot: snapshot.place.to_string(),
            },
        ));
    }
    Ok(KnownSnapshot { taken_at: saved.taken_at, version: saved.version, snapshot })
}

/// The newest snapshot in the folder of upgrades. Snapshots of other versions are left out, and damaged ones with a warning.
fn newest(engine: &Engine<'_>, state: &StoredCluster) -> Result<KnownSnapshot, EngineError> {
    let folder = snapshot_folder::of_upgrades(engine, state.name.as_str());
    let mut points = Vec::new();
    for snapshot in snapshot_folder::snapshots(&folder)?.into_iter().map(FetchedSnapshot::plain) {
        match snapshot.check() {
            Ok(file) => points.extend(earlier(state, snapshot, &file.sha256).ok()),
            Err(error) => engine.output.warn(&format!("left out: {error}")),
        }
    }
    points.into_iter().max_by_key(|point| point.taken_at).ok_or_else(|| {
        EngineError::refused(format!("there is no snapshot of {} from before an upgrade", state.name))
            .row("searched", folder.display().to_string())
            .row("instead", "name one with --snapshot FILE")
    })
}

/// The state beside the snapshot. Refuses a snapshot from before the hosts or the keys of the cluster changed: the cluster of the
/// snapshot is another one.
fn before_of_same_cluster(
    state: &StoredCluster,
    snapshot: &FetchedSnapshot,
) -> Result<StoredCluster, EngineError> {
    let before = state_of(state, snapshot)?;
    let refused = |what: &str| {
        EngineError::refused(format!("the {what} of {} changed after {}", state.name, snapshot.place)).remedy(
            EngineRemedy::RestoreAfterDestroy {
                cluster: state.name.clone(),
                snapshot: snapshot.place.to_string(),
            },
        )
    };
    if before.keys != state.keys {
        return Err(refused("keys"));
    }
    if hosts(&before) != hosts(state) {
        return Err(refused("hosts"));
    }
    Ok(before)
}

fn hosts(state: &StoredCluster) -> BTreeMap<HostAddress, bool> {
    state.spec.hosts_with_roles().map(|(role, host)| (host.address, role.is_master())).collect()
}

/// The state beside the snapshot.
fn state_of(state: &StoredCluster, snapshot: &FetchedSnapshot) -> Result<StoredCluster, EngineError> {
    let place = snapshot.place.state();
    let unreadable =
        |cause: String| EngineError::refused(format!("{place} cannot be read")).row("cause", cause);
    let file = File::open(state_file(&snapshot.file)).map_err(|error| unreadable(error.to_string()))?;
    let folder = tempfile::tempdir().map_err(|error| unreadable(error.to_string()))?;
    let store = Store::new(folder.path().to_owned());
    let lock = store.lock(&state.name, "kubeon rollback")?;
    store.import(&lock, file)?;
    Ok(store.load(&state.name)?)
}

/// The objects that users or programs created after a time, counted by their kinds. Changes of older objects are not among them.
///
/// # Errors
/// When kubectl fails on the master.
pub async fn created_since(
    master: &ReadyMaster,
    time: Timestamp,
) -> Result<BTreeMap<String, usize>, EngineError> {
    Ok(newer(&master.creation_times().await?, time))
}

/// Counts the lines `KIND TIME` with a later time.
fn newer(text: &str, time: Timestamp) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some(kind), Some(Ok(created))) = (words.next(), words.next().map(str::parse::<Timestamp>))
            && created > time
        {
            *kinds.entry(kind.to_owned()).or_default() += 1;
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use kubeon_plan::sim::cluster;
    use kubeon_store::{SavedSnapshot, Status};
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::environment::EngineEnvironment;
    use crate::output::SilentOutput;

    #[test]
    fn the_cluster_that_returns_continues_with_the_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let state_folder = Some(folder.path().join("state"));
        let environment = EngineEnvironment { state_folder, ..EngineEnvironment::default() };
        let engine = Engine::new(environment, &SilentOutput).unwrap();
        let (page, file) = ([7_u8; 512], folder.path().join("demo.db"));
        std::fs::write(&file, [&page[..], &Sha256::digest(page)].concat()).unwrap();
        let (snapshot, spec) = (FetchedSnapshot::plain(file), cluster(&["10.0.0.1"], &[]));
        let (version, taken_at) = (spec.version, Timestamp::UNIX_EPOCH);
        let mut before = StoredCluster::new(spec.name.clone(), spec);
        (before.status, before.version) = (Status::Running, Some(version));
        let mut point = RollbackPoint { snapshot, taken_at, version, before };
        assert!(returned(&engine, &point).unwrap_err().title.contains("is not known as a snapshot of demo"));

        let sha256 = point.snapshot.check().unwrap().sha256;
        point.before.remember_snapshot(sha256, SavedSnapshot { taken_at, version });
        let state = returned(&engine, &point).unwrap();
        assert_eq!((state.status, state.version), (Status::Creating, None));
        let packed = state.restoring.as_ref().unwrap().digest.as_str();
        assert!(engine.store.restore_folder(&state.name).join(packed).is_file());
        assert!(!engine.store.exists(&state.name), "it is stored when the hosts are clean");
    }

    #[test]
    fn newer_objects_are_counted_by_kind() {
        let text = "Service 2026-01-01T10:00:00Z\nService   2026-01-01T12:00:01Z\n\nSecret x\nJob 2026-01-02T00:00:00Z\n";
        let found = newer(text, "2026-01-01T12:00:00Z".parse().unwrap());
        assert_eq!(found, BTreeMap::from([("Job".to_owned(), 1), ("Service".to_owned(), 1)]));
    }
}
