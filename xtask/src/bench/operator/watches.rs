//! The harness's own watches of the objects that the operator changes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ApiResource, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::candidate::Candidate;
use super::jobs;
use super::sightings::{SharedSightings, Sightings, applied};

/// Watches that run until this value is dropped.
pub(super) struct Watches {
    shared: Arc<SharedSightings>,
    _watches: JoinSet<()>,
}

/// The kinds of a candidate, as the API server names them.
#[derive(Debug, Clone)]
pub(super) struct Kinds {
    pub(super) cluster: ApiResource,
    pub(super) operation: ApiResource,
}

impl Watches {
    /// Starts the watches and the fake Job controller.
    pub(super) fn watch(client: &Client, candidate: &Arc<Candidate>, kinds: &Kinds) -> Self {
        let shared = Arc::new(SharedSightings::default());
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

    /// Reads the events received so far.
    pub(super) fn read<T>(&self, evaluate: impl FnOnce(&Sightings) -> T) -> T {
        evaluate(&self.shared.sightings())
    }

    /// Waits until `enough` holds; false if it does not within `limit`.
    pub(super) async fn until(&self, limit: Duration, enough: impl Fn(&Sightings) -> bool) -> Result<bool> {
        let mut changes = self.shared.changes.subscribe();
        let waiting = async {
            loop {
                changes.borrow_and_update();
                if self.read(|sightings| enough(sightings) || !sightings.errors.is_empty()) {
                    return;
                }
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let in_time = tokio::time::timeout(limit, waiting).await.is_ok();
        if let Some(error) = self.read(|sightings| sightings.errors.first().cloned()) {
            bail!("the harness failed: {error}");
        }
        Ok(in_time)
    }
}

async fn owned<K>(
    kind: &'static str,
    api: Api<PartialObjectMeta<K>>,
    owner: String,
    shared: Arc<SharedSightings>,
) where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let mut stream = std::pin::pin!(applied(api));
    while let Some(object) = stream.next().await {
        let now = Instant::now();
        for reference in object.owner_references().iter().filter(|reference| reference.kind == owner) {
            let key = (format!("{kind}/{}", object.name_any()), reference.name.clone());
            shared.note(|sightings| {
                sightings.owned.entry(key).or_insert(now);
            });
        }
    }
}

async fn reconciled(api: Api<DynamicObject>, candidate: Arc<Candidate>, shared: Arc<SharedSightings>) {
    let mut stream = std::pin::pin!(applied(api));
    while let Some(cluster) = stream.next().await {
        let now = Instant::now();
        let value = candidate.reconciled.as_deref().map(|pointer| cluster.data.pointer(pointer));
        if !matches!(value, Some(None)) {
            shared.note(|sightings| {
                sightings.reconciled.entry(cluster.name_any()).or_insert(now);
            });
        }
    }
}

async fn succeeded(api: Api<DynamicObject>, candidate: Arc<Candidate>, shared: Arc<SharedSightings>) {
    let mut stream = std::pin::pin!(applied(api));
    while let Some(operation) = stream.next().await {
        let now = Instant::now();
        let status = operation.data.pointer(&candidate.status).and_then(|status| status.as_str());
        let done = status == Some(candidate.succeeded.as_str());
        shared.note(|sightings| {
            sightings.operations.entry(operation.name_any()).or_insert(now);
            if done {
                sightings.succeeded.entry(operation.name_any()).or_insert(now);
            }
        });
    }
}

async fn holders(api: Api<Lease>, shared: Arc<SharedSightings>) {
    let mut stream = std::pin::pin!(applied(api));
    while let Some(lease) = stream.next().await {
        let now = Instant::now();
        let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        shared.note(|sightings| {
            if sightings.holders.last().is_none_or(|(_, last)| *last != holder) {
                sightings.holders.push((now, holder));
            }
        });
    }
}
