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
use kubeon_operations::{ObjectKind, ObjectRef, QueueKey, names};
use serde::de::DeserializeOwned;

use crate::cache::{CachedKind, key};
use crate::context::OperatorContext;
use crate::initial_lists::WatchedList;
use crate::log_follower::log_of;

/// Begins every watch.
pub(crate) fn start(context: &Arc<OperatorContext>, client: &Client) {
    guarded::<Cluster>(context, client);
    guarded::<ClusterOperation>(context, client);
    guarded::<KubernetesCluster>(context, client);
    let own = context.settings().namespace.clone();
    let mut namespaces = context.settings().watched.clone();
    namespaces.push(own);
    namespaces.sort();
    namespaces.dedup();
    for namespace in namespaces {
        labelled::<Job>(context, client, &namespace);
        labelled::<Pod>(context, client, &namespace);
        metas::<ConfigMap>(context, client, &namespace, ObjectKind::ConfigMap);
        metas::<Secret>(context, client, &namespace, ObjectKind::Secret);
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
fn follow<S: Sink>(
    context: &Arc<OperatorContext>,
    api: Api<S::Object>,
    labels: Option<&'static str>,
    sink: S,
) {
    let place = WatchedList::new(&S::Object::kind(&()), sink.namespace());
    context.listed.begun(&place);
    context.metrics.watches(&place.kind);
    let context = Arc::clone(context);
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
                    answered(&context, &place);
                }
                Ok(Event::Apply(object)) => sink.changed(object),
                Ok(Event::Delete(object)) => sink.gone(&object),
                Err(error) => failed(&context, &place, &error),
            }
        }
    });
}

/// All objects of a place were listed.
fn answered(context: &OperatorContext, place: &WatchedList) {
    if let Some(namespace) = &place.namespace
        && context.cache.answered(namespace, &place.kind)
    {
        tracing::info!(kind = place.kind, namespace, "it can be listed again");
        context.wake(context.cache.queue_keys().into_iter().collect());
    }
    context.listed.ended(place);
}

/// A list or a watch went wrong. A list that is refused may be so for ever, as when its namespace was deleted and the
/// operator's rights with it: clusters of other namespaces do not wait for it.
fn failed(context: &OperatorContext, place: &WatchedList, error: &watcher::Error) {
    context.watch_failed(&place.kind, error);
    let (Some(namespace), Some(said)) = (&place.namespace, refusal(error)) else { return };
    // What every `Cluster` needs is there, and the limit of the history.
    if *namespace == context.settings().namespace {
        return;
    }
    // Before it is not waited for any longer: nobody may take what is not seen for not there.
    if context.cache.refused(namespace, &place.kind, said) {
        let kind = &place.kind;
        tracing::warn!(
            kind,
            namespace,
            said,
            "it cannot be listed; nothing is done for clusters of the namespace until it can"
        );
    }
    context.listed.ended(place);
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
    context: Arc<OperatorContext>,
    kind: PhantomData<fn(K)>,
}

fn guarded<K>(context: &Arc<OperatorContext>, client: &Client)
where
    K: CachedKind + Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    follow(
        context,
        Api::all(client.clone()),
        None,
        Guarded::<K> { context: Arc::clone(context), kind: PhantomData },
    );
}

impl<K> Sink for Guarded<K>
where
    K: CachedKind + Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    type Object = DeserializeGuard<K>;

    fn listed(&self, object: Self::Object) {
        self.changed(object);
    }

    fn changed(&self, object: Self::Object) {
        self.context.wake(take(&self.context, object));
    }

    fn gone(&self, object: &Self::Object) {
        self.context.unreadable.forget(&K::kind(&()), object.meta());
        self.context.wake(self.context.cache.remove::<K>(object.meta()));
    }

    fn only(&self, listed: &HashSet<String>) {
        self.context.unreadable.only(&K::kind(&()), listed);
        self.context.wake(self.context.cache.keep::<K>(listed, None));
    }
}

fn take<K>(context: &OperatorContext, object: DeserializeGuard<K>) -> Vec<QueueKey>
where
    K: CachedKind + Resource<DynamicType = ()>,
{
    match object.0 {
        Ok(object) => {
            context.unreadable.forget(&K::kind(&()), CachedKind::meta(&object));
            context.cache.apply(object)
        }
        Err(invalid) => {
            let kind = K::kind(&()).into_owned();
            let Some(queue_key) = queue_key_of_unreadable(&kind, &invalid.metadata) else {
                return Vec::new();
            };
            context.tell_unreadable(&kind, &invalid.metadata, &invalid.error);
            context.cache.apply_unreadable::<K>(&invalid.metadata, queue_key, invalid.error)
        }
    }
}

/// The lane of an object that cannot be read. An operation's is not known, and none waits for it.
fn queue_key_of_unreadable(kind: &str, meta: &ObjectMeta) -> Option<QueueKey> {
    let name = meta.name.clone()?;
    match kind {
        "Cluster" => Some(QueueKey::Cluster(name)),
        "KubernetesCluster" => Some(QueueKey::KubernetesCluster { namespace: meta.namespace.clone()?, name }),
        _ => Some(QueueKey::Cluster(format!("unreadable operation {name}"))),
    }
}

/// Jobs and pods of operations, in one namespace.
struct Labelled<K> {
    context: Arc<OperatorContext>,
    namespace: String,
    kind: PhantomData<fn(K)>,
}

fn labelled<K>(context: &Arc<OperatorContext>, client: &Client, namespace: &str)
where
    K: CachedKind + Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let api = Api::namespaced(client.clone(), namespace);
    let sink =
        Labelled::<K> { context: Arc::clone(context), namespace: namespace.to_owned(), kind: PhantomData };
    follow(context, api, Some(names::OPERATION_LABEL), sink);
}

impl<K> Sink for Labelled<K>
where
    K: CachedKind + Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    type Object = K;

    fn namespace(&self) -> Option<&str> {
        Some(&self.namespace)
    }

    fn listed(&self, object: K) {
        self.context.wake(self.context.cache.apply(object));
    }

    fn changed(&self, object: K) {
        if object.is_terminating() {
            self.context.listen(CachedKind::meta(&object));
        }
        let ended = object.has_ended();
        let queue_keys = self.context.cache.apply(object);
        if ended { self.context.hurry(queue_keys) } else { self.context.wake(queue_keys) }
    }

    fn gone(&self, object: &K) {
        let pod = log_of(CachedKind::meta(object));
        if !self.context.log_follower.holds(&pod) {
            self.context.wake(self.context.cache.remove::<K>(CachedKind::meta(object)));
            return;
        }
        self.changed(object.clone());
        let (context, meta) = (Arc::clone(&self.context), CachedKind::meta(object).clone());
        tokio::spawn(async move {
            context.log_follower.over(&pod, context.role()).await;
            context.wake(context.cache.remove::<K>(&meta));
        });
    }

    fn only(&self, listed: &HashSet<String>) {
        self.context.wake(self.context.cache.keep::<K>(listed, Some(&self.namespace)));
    }
}

/// ConfigMaps or Secrets of a namespace: that they are there, and whose they are. Never their content.
struct Metas<K> {
    context: Arc<OperatorContext>,
    namespace: String,
    kind: ObjectKind,
    resource: PhantomData<fn(K)>,
}

fn metas<K>(context: &Arc<OperatorContext>, client: &Client, namespace: &str, kind: ObjectKind)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let api = Api::namespaced(client.clone(), namespace);
    let (own, namespace) = (Arc::clone(context), namespace.to_owned());
    follow(context, api, None, Metas::<K> { context: own, namespace, kind, resource: PhantomData });
}

impl<K> Metas<K> {
    fn at(&self, meta: &ObjectMeta) -> ObjectRef {
        ObjectRef::new(self.kind, &self.namespace, meta.name.clone().unwrap_or_default())
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
        self.context.seen(self.at(&object.metadata), &object.metadata);
    }

    fn gone(&self, object: &Self::Object) {
        let target = self.at(&object.metadata);
        self.context.wake(self.context.cache.remove_meta(&target, object.metadata.uid.as_deref()));
        self.context.configured(&target);
    }

    fn only(&self, listed: &HashSet<String>) {
        let known = self.context.cache.metas_of(self.kind, &self.namespace);
        for target in known {
            if !listed.contains(&format!("{}/{}", target.namespace, target.name)) {
                self.context.wake(self.context.cache.remove_meta(&target, None));
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
