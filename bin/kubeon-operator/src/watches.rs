//! Every watch, and what its events mean for the world.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Resource};
use kubeon_api::{Cluster, ClusterOperation, KubernetesCluster};
use kubeon_link_kube::{Client, DeserializeGuard, Event, PartialObjectMeta, watch};
use kubeon_operations::{Kind, Lane, Target, names};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::turn::Shared;
use crate::world::{InLane, key};

/// How many watches have listed what there is.
#[derive(Default)]
pub(crate) struct Listed {
    open: AtomicUsize,
    changed: Notify,
}

impl Listed {
    fn begun(&self) {
        self.open.fetch_add(1, Ordering::SeqCst);
    }

    fn ended(&self) {
        if self.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.changed.notify_waiters();
        }
    }

    /// Waits until every watch has listed what there is.
    pub async fn all(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_done() {
                return;
            }
            changed.await;
        }
    }

    /// Whether every watch has listed what there is.
    pub fn is_done(&self) -> bool {
        self.open.load(Ordering::SeqCst) == 0
    }
}

/// Begins every watch.
pub(crate) fn start(shared: &Arc<Shared>, client: &Client) {
    guarded::<Cluster>(shared, Api::all(client.clone()));
    guarded::<ClusterOperation>(shared, Api::all(client.clone()));
    guarded::<KubernetesCluster>(shared, Api::all(client.clone()));
    let own = shared.settings().namespace.clone();
    let mut namespaces = shared.settings().watched.clone();
    namespaces.push(own);
    namespaces.sort();
    namespaces.dedup();
    for namespace in namespaces {
        labelled::<Job>(shared, client, &namespace);
        labelled::<Pod>(shared, client, &namespace);
        metas::<ConfigMap>(shared, client, &namespace, Kind::ConfigMap);
        metas::<Secret>(shared, client, &namespace, Kind::Secret);
    }
}

/// An object of a kind that people write, as it was read or as it could not be.
fn guarded<K>(shared: &Arc<Shared>, api: Api<DeserializeGuard<K>>)
where
    K: InLane + Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    shared.listed.begun();
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let mut events = watch(api, None);
        let mut listed = HashSet::new();
        let mut first = true;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => {
                    listed.insert(key(object.meta()));
                    shared.wake(take(&shared, object));
                }
                Ok(Event::InitDone) => {
                    shared.wake(shared.world.keep::<K>(&listed, None));
                    listed = HashSet::new();
                    if std::mem::take(&mut first) {
                        shared.listed.ended();
                    }
                }
                Ok(Event::Apply(object)) => shared.wake(take(&shared, object)),
                Ok(Event::Delete(object)) => shared.wake(shared.world.remove::<K>(object.meta())),
                Err(error) => shared.watch_failed(&K::kind(&()), &error),
            }
        }
    });
}

fn take<K>(shared: &Shared, object: DeserializeGuard<K>) -> Vec<Lane>
where
    K: InLane + Resource<DynamicType = ()>,
{
    match object.0 {
        Ok(object) => shared.world.apply(object),
        Err(invalid) => {
            let kind = K::kind(&()).into_owned();
            let Some(lane) = lane_of_unreadable(&kind, &invalid.metadata) else { return Vec::new() };
            shared.tell_unreadable(&kind, &invalid.metadata, &invalid.error);
            shared.world.apply_unreadable::<K>(&invalid.metadata, lane, invalid.error)
        }
    }
}

/// The lane of an object that cannot be read. An operation's is not known, and none waits for it.
fn lane_of_unreadable(kind: &str, meta: &ObjectMeta) -> Option<Lane> {
    let name = meta.name.clone()?;
    match kind {
        "Cluster" => Some(Lane::Cluster(name)),
        "KubernetesCluster" => Some(Lane::Business { namespace: meta.namespace.clone()?, name }),
        _ => Some(Lane::Cluster(format!("unreadable operation {name}"))),
    }
}

/// Jobs and pods of operations.
fn labelled<K>(shared: &Arc<Shared>, client: &Client, namespace: &str)
where
    K: InLane + Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    shared.listed.begun();
    let (shared, namespace) = (Arc::clone(shared), namespace.to_owned());
    let api: Api<K> = Api::namespaced(client.clone(), &namespace);
    tokio::spawn(async move {
        let mut events = watch(api, Some(names::OPERATION_LABEL));
        let mut listed = HashSet::new();
        let mut first = true;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => {
                    listed.insert(key(InLane::meta(&object)));
                    shared.wake(shared.world.apply(object));
                }
                Ok(Event::InitDone) => {
                    shared.wake(shared.world.keep::<K>(&listed, Some(&namespace)));
                    listed = HashSet::new();
                    if std::mem::take(&mut first) {
                        shared.listed.ended();
                    }
                }
                Ok(Event::Apply(object)) => {
                    let ended = object.has_ended();
                    let lanes = shared.world.apply(object);
                    if ended { shared.hurry(lanes) } else { shared.wake(lanes) }
                }
                Ok(Event::Delete(object)) => shared.wake(shared.world.remove::<K>(InLane::meta(&object))),
                Err(error) => shared.watch_failed(&K::kind(&()), &error),
            }
        }
    });
}

/// ConfigMaps and Secrets of a namespace: that they are there, and whose they are. Never their content.
fn metas<K>(shared: &Arc<Shared>, client: &Client, namespace: &str, kind: Kind)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    shared.listed.begun();
    let (shared, namespace) = (Arc::clone(shared), namespace.to_owned());
    let api: Api<PartialObjectMeta<K>> = Api::namespaced(client.clone(), &namespace);
    tokio::spawn(async move {
        let at = |meta: &ObjectMeta| Target::new(kind, &namespace, meta.name.clone().unwrap_or_default());
        let mut events = watch(api, None);
        let mut listed = HashSet::new();
        let mut first = true;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => {
                    let target = at(&object.metadata);
                    listed.insert(target.clone());
                    shared.seen(target, &object.metadata);
                }
                Ok(Event::InitDone) => {
                    for target in shared.world.metas_of(kind, &namespace) {
                        if !listed.contains(&target) {
                            shared.wake(shared.world.remove_meta(&target, None));
                        }
                    }
                    listed = HashSet::new();
                    if std::mem::take(&mut first) {
                        shared.listed.ended();
                    }
                }
                Ok(Event::Apply(object)) => shared.seen(at(&object.metadata), &object.metadata),
                Ok(Event::Delete(object)) => {
                    let target = at(&object.metadata);
                    shared.wake(shared.world.remove_meta(&target, object.metadata.uid.as_deref()));
                    shared.configured(&target);
                }
                Err(error) => shared.watch_failed(kind.as_str(), &error),
            }
        }
    });
}
