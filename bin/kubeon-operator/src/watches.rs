//! Every watch, and what its events mean for the world.

use std::collections::HashSet;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Resource};
use kubeon_api::{Cluster, ClusterOperation, KubernetesCluster};
use kubeon_link_kube::{Client, DeserializeGuard, Event, PartialObjectMeta, watch};
use kubeon_operations::{Kind, Lane, Target, names};
use serde::de::DeserializeOwned;

use crate::parting::log_of;
use crate::shared::Shared;
use crate::world::{InLane, key};

/// Begins every watch.
pub(crate) fn start(shared: &Arc<Shared>, client: &Client) {
    guarded::<Cluster>(shared, client);
    guarded::<ClusterOperation>(shared, client);
    guarded::<KubernetesCluster>(shared, client);
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

/// What the events of one watch mean.
trait Sink: Send + 'static {
    type Object: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static;

    /// An object was listed.
    fn listed(&self, object: Self::Object);
    /// An object is new, or another one than before.
    fn changed(&self, object: Self::Object);
    fn gone(&self, object: &Self::Object);
    /// All were listed, under these names: what has another is gone.
    fn only(&self, listed: &HashSet<String>);
}

/// Tells a sink of everything that happens, for ever.
fn follow<S: Sink>(shared: &Arc<Shared>, api: Api<S::Object>, labels: Option<&'static str>, sink: S) {
    shared.listed.begun();
    shared.metrics.watches(&S::Object::kind(&()));
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let mut events = watch(api, labels);
        let mut listed = HashSet::new();
        let mut first = true;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => {
                    listed.insert(key(object.meta()));
                    sink.listed(object);
                }
                Ok(Event::InitDone) => {
                    sink.only(&std::mem::take(&mut listed));
                    if std::mem::take(&mut first) {
                        shared.listed.ended();
                    }
                }
                Ok(Event::Apply(object)) => sink.changed(object),
                Ok(Event::Delete(object)) => sink.gone(&object),
                Err(error) => shared.watch_failed(&S::Object::kind(&()), &error),
            }
        }
    });
}

/// Objects of a kind that people write, as they were read or as they could not be.
struct Guarded<K> {
    shared: Arc<Shared>,
    kind: PhantomData<fn(K)>,
}

fn guarded<K>(shared: &Arc<Shared>, client: &Client)
where
    K: InLane + Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    follow(
        shared,
        Api::all(client.clone()),
        None,
        Guarded::<K> { shared: Arc::clone(shared), kind: PhantomData },
    );
}

impl<K> Sink for Guarded<K>
where
    K: InLane + Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    type Object = DeserializeGuard<K>;

    fn listed(&self, object: Self::Object) {
        self.changed(object);
    }

    fn changed(&self, object: Self::Object) {
        self.shared.wake(take(&self.shared, object));
    }

    fn gone(&self, object: &Self::Object) {
        self.shared.unreadable.forget(&K::kind(&()), object.meta());
        self.shared.wake(self.shared.world.remove::<K>(object.meta()));
    }

    fn only(&self, listed: &HashSet<String>) {
        self.shared.unreadable.only(&K::kind(&()), listed);
        self.shared.wake(self.shared.world.keep::<K>(listed, None));
    }
}

fn take<K>(shared: &Shared, object: DeserializeGuard<K>) -> Vec<Lane>
where
    K: InLane + Resource<DynamicType = ()>,
{
    match object.0 {
        Ok(object) => {
            shared.unreadable.forget(&K::kind(&()), InLane::meta(&object));
            shared.world.apply(object)
        }
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

/// Jobs and pods of operations, in one namespace.
struct Labelled<K> {
    shared: Arc<Shared>,
    namespace: String,
    kind: PhantomData<fn(K)>,
}

fn labelled<K>(shared: &Arc<Shared>, client: &Client, namespace: &str)
where
    K: InLane + Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let api = Api::namespaced(client.clone(), namespace);
    let sink =
        Labelled::<K> { shared: Arc::clone(shared), namespace: namespace.to_owned(), kind: PhantomData };
    follow(shared, api, Some(names::OPERATION_LABEL), sink);
}

impl<K> Sink for Labelled<K>
where
    K: InLane + Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    type Object = K;

    fn listed(&self, object: K) {
        self.shared.wake(self.shared.world.apply(object));
    }

    fn changed(&self, object: K) {
        if object.is_parting() {
            self.shared.listen(InLane::meta(&object));
        }
        let ended = object.has_ended();
        let lanes = self.shared.world.apply(object);
        if ended { self.shared.hurry(lanes) } else { self.shared.wake(lanes) }
    }

    fn gone(&self, object: &K) {
        let pod = log_of(InLane::meta(object));
        if !self.shared.parting.holds(&pod) {
            self.shared.wake(self.shared.world.remove::<K>(InLane::meta(object)));
            return;
        }
        self.changed(object.clone());
        let (shared, meta) = (Arc::clone(&self.shared), InLane::meta(object).clone());
        tokio::spawn(async move {
            shared.parting.over(&pod).await;
            shared.wake(shared.world.remove::<K>(&meta));
        });
    }

    fn only(&self, listed: &HashSet<String>) {
        self.shared.wake(self.shared.world.keep::<K>(listed, Some(&self.namespace)));
    }
}

/// ConfigMaps or Secrets of a namespace: that they are there, and whose they are. Never their content.
struct Metas<K> {
    shared: Arc<Shared>,
    namespace: String,
    kind: Kind,
    resource: PhantomData<fn(K)>,
}

fn metas<K>(shared: &Arc<Shared>, client: &Client, namespace: &str, kind: Kind)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let api = Api::namespaced(client.clone(), namespace);
    let (own, namespace) = (Arc::clone(shared), namespace.to_owned());
    follow(shared, api, None, Metas::<K> { shared: own, namespace, kind, resource: PhantomData });
}

impl<K> Metas<K> {
    fn at(&self, meta: &ObjectMeta) -> Target {
        Target::new(self.kind, &self.namespace, meta.name.clone().unwrap_or_default())
    }
}

impl<K> Sink for Metas<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    type Object = PartialObjectMeta<K>;

    fn listed(&self, object: Self::Object) {
        self.changed(object);
    }

    fn changed(&self, object: Self::Object) {
        self.shared.seen(self.at(&object.metadata), &object.metadata);
    }

    fn gone(&self, object: &Self::Object) {
        let target = self.at(&object.metadata);
        self.shared.wake(self.shared.world.remove_meta(&target, object.metadata.uid.as_deref()));
        self.shared.configured(&target);
    }

    fn only(&self, listed: &HashSet<String>) {
        let known = self.shared.world.metas_of(self.kind, &self.namespace);
        for target in known {
            if !listed.contains(&format!("{}/{}", target.namespace, target.name)) {
                self.shared.wake(self.shared.world.remove_meta(&target, None));
            }
        }
    }
}
