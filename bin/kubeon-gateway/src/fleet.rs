//! All clusters and operations of the meta cluster, kept by watches. Passwords and keys are dropped before an object is kept.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;

use futures::StreamExt as _;
use kube::api::Api;
use kube::{Client, Resource, ResourceExt as _};
use kubeon_api::{ClusterOperation, KubernetesCluster};
use kubeon_link_kube::{DeserializeGuard, Event, watch};
use kubeon_operations::kubernetes_cluster::without_secrets;
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::broadcast;

/// How many changes a slow reader of a stream may be behind.
const CHANGES: usize = 4096;

/// The namespace, empty for kinds without one, and the name of an object.
pub(crate) type ObjectKey = (String, String);

/// A change of an object.
#[derive(Debug)]
pub(crate) enum FleetChange<K> {
    Added(Arc<K>),
    Modified(Arc<K>),
    Deleted(Arc<K>),
}

impl<K> Clone for FleetChange<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(object) => Self::Added(object.clone()),
            Self::Modified(object) => Self::Modified(object.clone()),
            Self::Deleted(object) => Self::Deleted(object.clone()),
        }
    }
}

/// All objects of one kind that can be read.
pub(crate) struct WatchedObjects<K> {
    state: RwLock<WatchState<K>>,
    changes: broadcast::Sender<FleetChange<K>>,
    /// Drops what must not be kept.
    strip: fn(&mut K),
}

struct WatchState<K> {
    objects: BTreeMap<ObjectKey, Arc<K>>,
    /// The objects of a list that is not complete yet.
    listing: BTreeMap<ObjectKey, Arc<K>>,
    listed: bool,
}

impl<K: Resource<DynamicType = ()>> WatchedObjects<K> {
    fn new(strip: fn(&mut K)) -> Self {
        let state = WatchState { objects: BTreeMap::new(), listing: BTreeMap::new(), listed: false };
        Self { state: RwLock::new(state), changes: broadcast::Sender::new(CHANGES), strip }
    }

    fn apply(&self, event: Event<DeserializeGuard<K>>) {
        let mut state = self.state.write();
        match event {
            Event::Init => state.listing.clear(),
            Event::InitApply(object) => {
                let key = key_of(&object);
                if let Some(object) = self.readable(object) {
                    state.listing.insert(key, object);
                }
            }
            Event::InitDone => {
                let listing = std::mem::take(&mut state.listing);
                let before = std::mem::replace(&mut state.objects, listing);
                state.listed = true;
                self.announce_relisted(&before, &state.objects);
            }
            Event::Apply(object) => {
                let key = key_of(&object);
                match self.readable(object) {
                    Some(object) => {
                        let known = state.objects.insert(key, object.clone());
                        let change = if known.is_some() { FleetChange::Modified } else { FleetChange::Added };
                        self.announce(change(object));
                    }
                    None => self.remove(&mut state, &key),
                }
            }
            Event::Delete(object) => self.remove(&mut state, &key_of(&object)),
        }
    }

    fn remove(&self, state: &mut WatchState<K>, key: &ObjectKey) {
        if let Some(object) = state.objects.remove(key) {
            self.announce(FleetChange::Deleted(object));
        }
    }

    /// The object without what must not be kept. One that cannot be read must not hide the others.
    fn readable(&self, object: DeserializeGuard<K>) -> Option<Arc<K>> {
        match object.0 {
            Ok(mut object) => {
                (self.strip)(&mut object);
                Some(Arc::new(object))
            }
            Err(invalid) => {
                let name = invalid.metadata.name.unwrap_or_default();
                tracing::warn!(name, error = %invalid.error, "an object cannot be read and is left out");
                None
            }
        }
    }

    fn announce_relisted(&self, before: &BTreeMap<ObjectKey, Arc<K>>, now: &BTreeMap<ObjectKey, Arc<K>>) {
        for (key, object) in now {
            match before.get(key) {
                None => self.announce(FleetChange::Added(object.clone())),
                Some(old) if old.resource_version() != object.resource_version() => {
                    self.announce(FleetChange::Modified(object.clone()));
                }
                Some(_) => {}
            }
        }
        for (_, object) in before.iter().filter(|(key, _)| !now.contains_key(*key)) {
            self.announce(FleetChange::Deleted(object.clone()));
        }
    }

    /// An error only means that nobody listens.
    fn announce(&self, change: FleetChange<K>) {
        let _ = self.changes.send(change);
    }

    /// Whether all objects were listed once.
    pub(crate) fn is_listed(&self) -> bool {
        self.state.read().listed
    }

    /// One object.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.state.read().objects.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// The objects after `after` that match, in order.
    pub(crate) fn select(&self, after: Option<&ObjectKey>, matches: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let start = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        let state = self.state.read();
        state
            .objects
            .range((start, Bound::Unbounded))
            .map(|(_, object)| object)
            .filter(|object| matches(object))
            .cloned()
            .collect()
    }

    /// All objects now, and every later change.
    pub(crate) fn subscribe(&self) -> (Vec<Arc<K>>, broadcast::Receiver<FleetChange<K>>) {
        // Changes are announced under this lock, so none is missed or seen twice.
        let state = self.state.read();
        (state.objects.values().cloned().collect(), self.changes.subscribe())
    }
}

/// The key of an object.
pub(crate) fn key_of<K: Resource>(object: &K) -> ObjectKey {
    (object.meta().namespace.clone().unwrap_or_default(), object.meta().name.clone().unwrap_or_default())
}

/// All clusters and operations.
pub(crate) struct Fleet {
    pub clusters: WatchedObjects<KubernetesCluster>,
    pub operations: WatchedObjects<ClusterOperation>,
}

impl Fleet {
    /// Starts the watches; they end with the returned value's last owner.
    pub(crate) fn start(client: &Client) -> Arc<Self> {
        let fleet = Arc::new(Self {
            clusters: WatchedObjects::new(strip_credentials),
            operations: WatchedObjects::new(|_| {}),
        });
        follow(&fleet, Api::all(client.clone()), "KubernetesCluster", |fleet| &fleet.clusters);
        follow(&fleet, Api::all(client.clone()), "ClusterOperation", |fleet| &fleet.operations);
        fleet
    }

    /// What the gateway still waits for before it can answer.
    pub(crate) fn waits_for(&self) -> Option<&'static str> {
        if !self.clusters.is_listed() {
            return Some("the list of all KubernetesClusters");
        }
        (!self.operations.is_listed()).then_some("the list of all ClusterOperations")
    }
}

fn strip_credentials(cluster: &mut KubernetesCluster) {
    let spec = without_secrets(&cluster.spec);
    cluster.spec.cluster = spec.cluster;
}

fn follow<K>(
    fleet: &Arc<Fleet>,
    api: Api<DeserializeGuard<K>>,
    kind: &'static str,
    objects: fn(&Fleet) -> &WatchedObjects<K>,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let mut events = watch(api, None);
    let fleet = Arc::downgrade(fleet);
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            let Some(fleet) = fleet.upgrade() else { return };
            match event {
                Ok(event) => objects(&fleet).apply(event),
                Err(error) => tracing::warn!(kind, %error, "a watch was interrupted; it is restarted"),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use kubeon_api::kubeonkube::ClusterOperationSpec;

    use super::*;

    fn operation(name: &str, version: &str) -> DeserializeGuard<ClusterOperation> {
        let mut operation = ClusterOperation::new(name, ClusterOperationSpec::default());
        operation.metadata.resource_version = Some(version.to_owned());
        DeserializeGuard(Ok(operation))
    }

    fn names(objects: &[Arc<ClusterOperation>]) -> Vec<String> {
        objects.iter().map(|object| object.name_any()).collect()
    }

    #[test]
    fn an_object_that_cannot_be_read_hides_no_other() {
        let all = WatchedObjects::<ClusterOperation>::new(|_| {});
        let unreadable = |name: &str| -> DeserializeGuard<ClusterOperation> {
            let text =
                format!(r#"{{"apiVersion":"a/v1","kind":"K","metadata":{{"name":"{name}"}},"spec":7}}"#);
            serde_json::from_str(&text).unwrap()
        };
        for event in [
            Event::Init,
            Event::InitApply(operation("a", "1")),
            Event::InitApply(unreadable("b")),
            Event::InitDone,
            Event::Apply(unreadable("c")),
        ] {
            all.apply(event);
        }
        assert_eq!(names(&all.subscribe().0), ["a"]);
        all.apply(Event::Apply(unreadable("a")));
        assert!(all.subscribe().0.is_empty(), "a state that is no longer true is not shown");
    }

    #[test]
    fn a_reader_sees_every_change_once_also_when_a_watch_lists_again() {
        let all = WatchedObjects::<ClusterOperation>::new(|_| {});
        for event in
            [Event::Init, Event::InitApply(operation("a", "1")), Event::InitApply(operation("b", "2"))]
        {
            all.apply(event);
        }
        assert!(!all.is_listed() && all.get("", "a").is_none(), "an incomplete list is not shown");
        all.apply(Event::InitDone);
        let (now, mut changes) = all.subscribe();
        assert_eq!(names(&now), ["a", "b"]);
        for event in
            [Event::Init, Event::InitApply(operation("b", "3")), Event::InitApply(operation("c", "4"))]
        {
            all.apply(event);
        }
        all.apply(Event::InitDone);
        let seen: Vec<String> = std::iter::from_fn(|| changes.try_recv().ok())
            .map(|change| match change {
                FleetChange::Added(object) => format!("+{}", object.name_any()),
                FleetChange::Modified(object) => format!("~{}", object.name_any()),
                FleetChange::Deleted(object) => format!("-{}", object.name_any()),
            })
            .collect();
        assert_eq!(seen, ["~b", "+c", "-a"]);
        assert_eq!(names(&all.select(Some(&(String::new(), "b".to_owned())), |_| true)), ["c"]);
    }
}
