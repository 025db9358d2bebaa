//! The changes that the harness's own watches received, with their times.

use std::collections::HashMap;
use std::time::Instant;

use futures::{Stream, StreamExt as _};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use parking_lot::{Mutex, MutexGuard};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

/// The time of the first event, by name of the object.
pub(super) type FirstSeen = HashMap<String, Instant>;

/// The events received so far.
#[derive(Debug, Default)]
pub(super) struct Sightings {
    /// Objects that a Cluster owns, by `ConfigMap/name` and name of the Cluster.
    pub(super) owned: HashMap<(String, String), Instant>,
    /// Clusters with the status of a reconciled one.
    pub(super) reconciled: FirstSeen,
    /// Operations that were created.
    pub(super) operations: FirstSeen,
    /// Operations whose status is that of a success.
    pub(super) succeeded: FirstSeen,
    /// Operations' Jobs that were created.
    pub(super) jobs: FirstSeen,
    /// Operations' Jobs that ended.
    pub(super) ended: FirstSeen,
    /// The time at which the fake Job controller sent the end of a Job.
    pub(super) ending: FirstSeen,
    /// Holders of leases in the operator's namespace, in the order of their changes.
    pub(super) holders: Vec<(Instant, String)>,
    /// Errors of the harness itself.
    pub(super) errors: Vec<String>,
}

/// The shared events with a counter of changes, so that a task can wait for the next change.
#[derive(Default)]
pub(super) struct SharedSightings {
    sightings: Mutex<Sightings>,
    pub(super) changes: watch::Sender<u64>,
}

impl SharedSightings {
    /// Changes the events and wakes the waiting tasks.
    pub(super) fn note(&self, change: impl FnOnce(&mut Sightings)) {
        change(&mut self.sightings());
        self.changes.send_modify(|count| *count += 1);
    }

    pub(super) fn sightings(&self) -> MutexGuard<'_, Sightings> {
        self.sightings.lock()
    }
}

/// Whether a cluster owns the objects that it refers to and its status is that of a reconciled one.
pub(super) fn is_done(sightings: &Sightings, name: &str, references: &[String]) -> bool {
    done_at(sightings, name, references).is_some()
}

/// The time of the last of these events.
pub(super) fn done_at(sightings: &Sightings, name: &str, references: &[String]) -> Option<Instant> {
    let mut last = *sightings.reconciled.get(name)?;
    for reference in references {
        last = last.max(*sightings.owned.get(&(reference.clone(), name.to_owned()))?);
    }
    Some(last)
}

/// Every object when it is created and changed. The watcher recovers from errors.
pub(super) fn applied<K>(api: Api<K>) -> impl Stream<Item = K>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let stream = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
    stream.filter_map(|object| async { object.ok() })
}
