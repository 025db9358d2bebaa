//! What the harness's own watches see of the operator's work, and when.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ApiResource, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use parking_lot::{Mutex, MutexGuard};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::candidate::Candidate;
use super::jobs;

/// When something was first seen.
pub(super) type Seen = HashMap<String, Instant>;

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Sights {
    /// Objects that a Cluster owns: `ConfigMap/name`, of the Cluster's own name.
    pub(super) owned: HashMap<(String, String), Instant>,
    /// Clusters whose status says that they were reconciled.
    pub(super) reconciled: Seen,
    /// Operations that were created.
    pub(super) operations: Seen,
    /// Operations whose status says that they ended well.
    pub(super) succeeded: Seen,
    /// Operations' Jobs that were created.
    pub(super) jobs: Seen,
    /// Operations' Jobs that ended.
    pub(super) ended: Seen,
    /// When the fake Job controller said so.
    pub(super) ending: Seen,
    /// Holders of leases in the operator's namespace, as they changed.
    pub(super) holders: Vec<(Instant, String)>,
    /// What went wrong in the harness itself.
    pub(super) errors: Vec<String>,
}

/// Watches that run until this is dropped.
pub(super) struct World {
    shared: Arc<Shared>,
    _watches: JoinSet<()>,
}

/// What the watches write.
pub(super) struct Shared {
    sights: Mutex<Sights>,
    changes: watch::Sender<u64>,
}

impl Shared {
    /// Changes what was seen, and wakes who waits for it.
    pub(super) fn note(&self, change: impl FnOnce(&mut Sights)) {
        change(&mut self.sights());
        self.changes.send_modify(|count| *count += 1);
    }

    fn sights(&self) -> MutexGuard<'_, Sights> {
        self.sights.lock()
    }
}

/// The kinds of a candidate, as the API server names them.
#[derive(Debug, Clone)]
pub(super) struct Kinds {
    pub(super) cluster: ApiResource,
    pub(super) operation: ApiResource,
}

impl World {
    /// Begins to watch, with a fake Job controller among the watchers.
    pub(super) fn watch(client: &Client, candidate: &Arc<Candidate>, kinds: &Kinds) -> Self {
        let shared = Arc::new(Shared { sights: Mutex::default(), changes: watch::Sender::default() });
        let mut watches = JoinSet::new();
        let (namespace, owner) = (candidate.namespace.as_str(), &kinds.cluster.kind);
        let config_maps = Api::<PartialObjectMeta<ConfigMap>>::namespaced(client.clone(), namespace);
        watches.spawn(owned("ConfigMap", config_maps, owner.clone(), Arc::clone(&shared)));
        let secrets = Api::<PartialObjectMeta<Secret>>::namespaced(client.clone(), namespace);
        watches.spawn(owned("Secret", secrets, owner.clone(), Arc::clone(&shared)));
        let clusters = Api::all_with(client.clone(), &kinds.cluster);
        watches.spawn(reconciled(clusters, Arc::clone(candidate), Arc::clone(&shared)));
        let operations = Api::all_with(client.clone(), &kinds.operation);
        watches.spawn(succeeded(operations, Arc::clone(candidate), Arc::clone(&shared)));
        watches.spawn(holders(Api::namespaced(client.clone(), namespace), Arc::clone(&shared)));
        let jobs = Api::namespaced(client.clone(), namespace);
        watches.spawn(jobs::complete(jobs, Arc::clone(candidate), Arc::clone(&shared)));
        Self { shared, _watches: watches }
    }

    /// Looks at what was seen.
    pub(super) fn look<T>(&self, at: impl FnOnce(&Sights) -> T) -> T {
        at(&self.shared.sights())
    }

    /// Waits until `enough` of what was seen. False when it was not within `limit`.
    pub(super) async fn until(&self, limit: Duration, enough: impl Fn(&Sights) -> bool) -> Result<bool> {
        let mut changes = self.shared.changes.subscribe();
        let waiting = async {
            loop {
                changes.borrow_and_update();
                if self.look(|sights| enough(sights) || !sights.errors.is_empty()) {
                    return;
                }
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let in_time = tokio::time::timeout(limit, waiting).await.is_ok();
        if let Some(error) = self.look(|sights| sights.errors.first().cloned()) {
            bail!("the harness itself: {error}");
        }
        Ok(in_time)
    }
}

/// Every object as it comes and changes. Errors are the watcher's to mend.
pub(super) fn applied<K>(api: Api<K>) -> impl Stream<Item = K>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let stream = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
    stream.filter_map(|object| async { object.ok() })
}

async fn owned<K>(kind: &'static str, api: Api<PartialObjectMeta<K>>, owner: String, shared: Arc<Shared>)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let mut stream = std::pin::pin!(applied(api));
    while let Some(object) = stream.next().await {
        let now = Instant::now();
        for reference in object.owner_references().iter().filter(|reference| reference.kind == owner) {
            let key = (format!("{kind}/{}", object.name_any()), reference.name.clone());
            shared.note(|sights| {
                sights.owned.entry(key).or_insert(now);
            });
        }
    }
}

async fn reconciled(api: Api<DynamicObject>, candidate: Arc<Candidate>, shared: Arc<Shared>) {
    let mut stream = std::pin::pin!(applied(api));
    while let Some(cluster) = stream.next().await {
        let now = Instant::now();
        let value = candidate.reconciled.as_deref().map(|pointer| cluster.data.pointer(pointer));
        if !matches!(value, Some(None)) {
            shared.note(|sights| {
                sights.reconciled.entry(cluster.name_any()).or_insert(now);
            });
        }
    }
}

async fn succeeded(api: Api<DynamicObject>, candidate: Arc<Candidate>, shared: Arc<Shared>) {
    let mut stream = std::pin::pin!(applied(api));
    while let Some(operation) = stream.next().await {
        let now = Instant::now();
        let status = operation.data.pointer(&candidate.status).and_then(|status| status.as_str());
        let done = status == Some(candidate.succeeded.as_str());
        shared.note(|sights| {
            sights.operations.entry(operation.name_any()).or_insert(now);
            if done {
                sights.succeeded.entry(operation.name_any()).or_insert(now);
            }
        });
    }
}

async fn holders(api: Api<Lease>, shared: Arc<Shared>) {
    let mut stream = std::pin::pin!(applied(api));
    while let Some(lease) = stream.next().await {
        let now = Instant::now();
        let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        shared.note(|sights| {
            if sights.holders.last().is_none_or(|(_, last)| *last != holder) {
                sights.holders.push((now, holder));
            }
        });
    }
}
