//! The watches, and the handling of their events.

use std::collections::HashSet;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Resource};
use kube::runtime::watcher;
use kubeon_api::{Cluster, ClusterOperation, KubernetesCluster};
use kubeon_link_kube::{Client, DeserializeGuard, Event, PartialObjectMeta, watch, watch_whole};
use kubeon_operations::{ObjectKind, ObjectRef, QueueKey, names};
use serde::de::DeserializeOwned;

use crate::cache::{CachedKind, UserKind, key};
use crate::context::OperatorContext;
use crate::initial_lists::WatchedList;
use crate::log_follower::log_of;

/// Starts all watches.
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

/// Handles the events of one watch.
trait Sink: Send + 'static {
    type Object: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static;

    /// The watched namespace; `None` for all namespaces.
    fn namespace(&self) -> Option<&str> {
        None
    }
    /// The watch of the objects, without fields that the operator does not read.
    fn watch(
        &self,
        api: Api<Self::Object>,
        labels: Option<&str>,
    ) -> BoxStream<'static, Result<Event<Self::Object>, watcher::Error>> {
        watch(api, labels)
    }
    /// An object was listed.
    fn listed(&self, object: Self::Object);
    /// An object was created or changed.
    fn changed(&self, object: Self::Object);
    fn deleted(&self, object: &Self::Object);
    /// A list was completed: objects whose name is not in it were deleted.
    fn list_completed(&self, listed: &HashSet<String>);
}

/// Passes the events of a watch to a sink, without end.
fn follow<S: Sink>(
    context: &Arc<OperatorContext>,
    api: Api<S::Object>,
    labels: Option<&'static str>,
    sink: S,
) {
    let list = WatchedList::new(&S::Object::kind(&()), sink.namespace());
    context.listed.started(&list);
    context.metrics.watches(&list.kind);
    let context = Arc::clone(context);
    tokio::spawn(async move {
        let mut events = sink.watch(api, labels);
        let mut listed = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => {
                    listed.insert(key(object.meta()));
                    sink.listed(object);
                }
                Ok(Event::InitDone) => {
                    sink.list_completed(&std::mem::take(&mut listed));
                    list_succeeded(&context, &list);
                }
                Ok(Event::Apply(object)) => sink.changed(object),
                Ok(Event::Delete(object)) => sink.deleted(&object),
                Err(error) => watch_failed(&context, &list, &error),
            }
        }
    });
}

/// A list was completed.
fn list_succeeded(context: &OperatorContext, list: &WatchedList) {
    if let Some(namespace) = &list.namespace
        && context.cache.list_succeeded(namespace, &list.kind)
    {
        tracing::info!(kind = list.kind, namespace, "the list is permitted again");
        context.wake(context.cache.queue_keys().into_iter().collect());
    }
    context.listed.ended(list);
}

/// A list or a watch failed. A list may be refused permanently, for example when its namespace was deleted
/// together with the operator's role. Clusters of other namespaces do not wait for it.
fn watch_failed(context: &OperatorContext, list: &WatchedList, error: &watcher::Error) {
    context.watch_failed(&list.kind, error);
    let (Some(namespace), Some(message)) = (&list.namespace, refusal(error)) else { return };
    // The operator's namespace is required: it has the objects of every `Cluster`, and the history limit.
    if *namespace == context.settings().namespace {
        return;
    }
    // Mark the list as refused before the operator stops waiting for it, so that unlisted objects do not
    // count as missing.
    if context.cache.list_refused(namespace, &list.kind, message) {
        let kind = &list.kind;
        tracing::warn!(
            kind,
            namespace,
            message,
            "the list is refused; clusters of the namespace are not reconciled until it is permitted"
        );
    }
    context.listed.ended(list);
}

/// The message of the API server when it refuses a list because of a missing permission or namespace.
fn refusal(error: &watcher::Error) -> Option<&str> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
            Some(status.message.as_str())
        }
        _ => None,
    }
}

/// Objects of a kind that users write, including objects that cannot be parsed.
struct Guarded<K> {
    context: Arc<OperatorContext>,
    kind: PhantomData<fn(K)>,
}

fn guarded<K>(context: &Arc<OperatorContext>, client: &Client)
where
    K: UserKind + Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
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
    K: UserKind + Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    type Object = DeserializeGuard<K>;

    fn listed(&self, object: Self::Object) {
        self.changed(object);
    }

    fn changed(&self, object: Self::Object) {
        self.context.wake(apply(&self.context, object));
    }

    fn deleted(&self, object: &Self::Object) {
        self.context.unreadable.forget(K::KIND, object.meta());
        self.context.wake(self.context.cache.remove::<K>(object.meta()));
    }

    fn list_completed(&self, listed: &HashSet<String>) {
        self.context.unreadable.retain(K::KIND, listed);
        self.context.wake(self.context.cache.retain::<K>(listed, None));
    }
}

fn apply<K: UserKind>(context: &OperatorContext, object: DeserializeGuard<K>) -> Vec<QueueKey> {
    match object.0 {
        Ok(object) => {
            context.unreadable.forget(K::KIND, object.meta());
            context.cache.apply(object)
        }
        Err(invalid) => {
            let Some(queue_key) = queue_key_of_unreadable(K::KIND, &invalid.metadata) else {
                return Vec::new();
            };
            context.report_unreadable(K::KIND, &invalid.metadata, &invalid.error);
            context.cache.apply_unreadable::<K>(&invalid.metadata, queue_key, invalid.error)
        }
    }
}

/// The queue key of an object that cannot be parsed. The key of an operation is unknown, so it gets a key of
/// its own.
fn queue_key_of_unreadable(kind: ObjectKind, meta: &ObjectMeta) -> Option<QueueKey> {
    let name = meta.name.clone()?;
    match kind {
        ObjectKind::Cluster => Some(QueueKey::Cluster(name)),
        ObjectKind::KubernetesCluster => {
            Some(QueueKey::KubernetesCluster { namespace: meta.namespace.clone()?, name })
        }
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
            self.context.follow_log(CachedKind::meta(&object));
        }
        let ended = object.has_ended();
        let queue_keys = self.context.cache.apply(object);
        if ended { self.context.wake_urgently(queue_keys) } else { self.context.wake(queue_keys) }
    }

    fn deleted(&self, object: &K) {
        let pod = log_of(CachedKind::meta(object));
        if !self.context.log_follower.holds(&pod) {
            self.context.wake(self.context.cache.remove::<K>(CachedKind::meta(object)));
            return;
        }
        self.changed(object.clone());
        let (context, meta) = (Arc::clone(&self.context), CachedKind::meta(object).clone());
        tokio::spawn(async move {
            context.log_follower.release(&pod, context.role()).await;
            context.wake(context.cache.remove::<K>(&meta));
        });
    }

    fn list_completed(&self, listed: &HashSet<String>) {
        self.context.wake(self.context.cache.retain::<K>(listed, Some(&self.namespace)));
    }
}

/// The metadata of ConfigMaps or Secrets of a namespace, without their content.
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
    fn target_of(&self, meta: &ObjectMeta) -> ObjectRef {
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

    /// The field managers say who wrote a kubeconfig. The cache does not keep them.
    fn watch(
        &self,
        api: Api<Self::Object>,
        labels: Option<&str>,
    ) -> BoxStream<'static, Result<Event<Self::Object>, watcher::Error>> {
        watch_whole(api, labels)
    }

    fn listed(&self, object: Self::Object) {
        self.changed(object);
    }

    fn changed(&self, object: Self::Object) {
        self.context.metadata_changed(self.target_of(&object.metadata), &object.metadata);
    }

    fn deleted(&self, object: &Self::Object) {
        let target = self.target_of(&object.metadata);
        self.context.wake(self.context.cache.remove_meta(&target, object.metadata.uid.as_deref()));
        self.context.check_config(&target);
    }

    fn list_completed(&self, listed: &HashSet<String>) {
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
    fn a_list_is_refused_only_without_a_permission_or_its_namespace() {
        let answer = |code| kube::Error::Api(Box::new(Status::failure("no", "Reason").with_code(code)));
        for (code, message) in
            [(403, Some("no")), (404, Some("no")), (401, None), (410, None), (429, None), (500, None)]
        {
            assert_eq!(refusal(&watcher::Error::InitialListFailed(answer(code))), message, "{code}");
        }
        // The objects of a failed watch were listed before.
        assert_eq!(refusal(&watcher::Error::WatchStartFailed(answer(403))), None);
    }
}
