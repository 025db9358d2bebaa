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
use kube::runtime::watcher;
use kubeon_api::{Cluster, ClusterOperation, KubernetesCluster};
use kubeon_link_kube::{Client, DeserializeGuard, Event, PartialObjectMeta, watch};
use kubeon_operations::{Kind, Lane, Target, names};
use serde::de::DeserializeOwned;

use crate::listed::Place;
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

    /// The namespace that is watched; every one when there is none.
    fn namespace(&self) -> Option<&str> {
        None
    }
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
    let place = Place::new(&S::Object::kind(&()), sink.namespace());
    shared.listed.begun(&place);
    shared.metrics.watches(&place.kind);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let mut events = watch(api, labels);
        let mut listed = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => {
                    listed.insert(key(object.meta()));
                    sink.listed(object);
                }
                Ok(Event::InitDone) => {
                    sink.only(&std::mem::take(&mut listed));
                    answered(&shared, &place);
                }
                Ok(Event::Apply(object)) => sink.changed(object),
                Ok(Event::Delete(object)) => sink.gone(&object),
                Err(error) => failed(&shared, &place, &error),
            }
        }
    });
}

/// All objects of a place were listed.
fn answered(shared: &Shared, place: &Place) {
    if let Some(namespace) = &place.namespace
        && shared.world.answered(namespace, &place.kind)
    {
        tracing::info!(kind = place.kind, namespace, "it can be listed again");
        shared.wake(shared.world.lanes().into_iter().collect());
    }
    shared.listed.ended(place);
}

/// A list or a watch went wrong. A list that is refused may be so for ever, as when its namespace was deleted and the
/// operator's rights with it: clusters of other namespaces do not wait for it.
fn failed(shared: &Shared, place: &Place, error: &watcher::Error) {
    shared.watch_failed(&place.kind, error);
    let (Some(namespace), Some(said)) = (&place.namespace, refusal(error)) else { return };
    // What every `Cluster` needs is there, and the limit of the history.
    if *namespace == shared.settings().namespace {
        return;
    }
    // Before it is not waited for any longer: nobody may take what is not seen for not there.
    if shared.world.refused(namespace, &place.kind, said) {
        let kind = &place.kind;
        tracing::warn!(
            kind,
            namespace,
            said,
            "it cannot be listed; nothing is done for clusters of the namespace until it can"
        );
    }
    shared.listed.ended(place);
}

/// What the API server said to a list that it does not answer for want of a right, or of the namespace.
fn refusal(error: &watcher::Error) -> Option<&str> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
            Some(status.message.as_str())
        }
        _ => None,
    }
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

    fn namespace(&self) -> Option<&str> {
        Some(&self.namespace)
    }

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

    fn namespace(&self) -> Option<&str> {
        Some(&self.namespace)
    }

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

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_list_is_refused_for_want_of_a_right_or_of_its_namespace_and_for_nothing_else() {
        let answer = |code| kube::Error::Api(Box::new(Status::failure("no", "Reason").with_code(code)));
        for (code, said) in
            [(403, Some("no")), (404, Some("no")), (401, None), (410, None), (429, None), (500, None)]
        {
            assert_eq!(refusal(&watcher::Error::InitialListFailed(answer(code))), said, "{code}");
        }
        // What was listed is known.
        assert_eq!(refusal(&watcher::Error::WatchStartFailed(answer(403))), None);
    }
}
