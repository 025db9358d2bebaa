//! What the harness's own watches saw of the operator's work, and when.

use std::collections::HashMap;
use std::time::Instant;

use futures::{Stream, StreamExt as _};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use parking_lot::{Mutex, MutexGuard};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

/// When something was first seen.
pub(super) type FirstSeen = HashMap<String, Instant>;

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Sightings {
    /// Objects that a Cluster owns: `ConfigMap/name`, of the Cluster's own name.
    pub(super) owned: HashMap<(String, String), Instant>,
    /// Clusters whose status says that they were reconciled.
    pub(super) reconciled: FirstSeen,
    /// Operations that were created.
    pub(super) operations: FirstSeen,
    /// Operations whose status says that they ended well.
    pub(super) succeeded: FirstSeen,
    /// Operations' Jobs that were created.
    pub(super) jobs: FirstSeen,
    /// Operations' Jobs that ended.
    pub(super) ended: FirstSeen,
    /// When the fake Job controller said so.
    pub(super) ending: FirstSeen,
    /// Holders of leases in the operator's namespace, as they changed.
    pub(super) holders: Vec<(Instant, String)>,
    /// What went wrong in the harness itself.
    pub(super) errors: Vec<String>,
}

/// What the watches write, and the number of changes, so that others can wait for the next.
#[derive(Default)]
pub(super) struct SharedSightings {
    sightings: Mutex<Sightings>,
    pub(super) changes: watch::Sender<u64>,
}

impl SharedSightings {
    /// Changes what was seen, and wakes who waits for it.
    pub(super) fn note(&self, change: impl FnOnce(&mut Sightings)) {
        change(&mut self.sightings());
        self.changes.send_modify(|count| *count += 1);
    }

    pub(super) fn sightings(&self) -> MutexGuard<'_, Sightings> {
        self.sightings.lock()
    }
}

/// Whether a cluster owns what it refers to, and its status says that it was reconciled.
pub(super) fn is_done(sightings: &Sightings, name: &str, references: &[String]) -> bool {
    done_at(sightings, name, references).is_some()
}

/// When the last of it was seen.
pub(super) fn done_at(sightings: &Sightings, name: &str, references: &[String]) -> Option<Instant> {
    let mut last = *sightings.reconciled.get(name)?;
    for reference in references {
        last = last.max(*sightings.owned.get(&(reference.clone(), name.to_owned()))?);
    }
    Some(last)
}

/// Every object as it comes and changes. Errors are the watcher's to mend.
pub(super) fn applied<K>(api: Api<K>) -> impl Stream<Item = K>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let stream = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
    stream.filter_map(|object| async { object.ok() })
}
