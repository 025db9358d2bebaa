//! The observed objects of the meta cluster, by queue key. Watches and the answers to the operator's own
//! writes update them, so that a reconcile sees the writes of the previous one.

mod table;
mod unlistable;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kubeon_api::kubernetes_cluster::DeletionPolicy;
use kubeon_api::{Cluster, ClusterOperation, KubernetesCluster};
use kubeon_operations::job_state::{self, JobState};
use kubeon_operations::kubernetes_cluster::{observer_secret, persisted_objects};
use kubeon_operations::{
    ClusterObject, ObjectKind, ObjectOwnership, ObjectRef, Objects, Observed, QueueKey, cluster, order,
};
use tokio::sync::Notify;

use crate::observation::ObservableCluster;
pub(crate) use table::{CachedObject, ObjectTable, RemovedUids, key};
use unlistable::UnlistableNamespaces;

/// The observed objects.
pub(crate) struct ObjectCache {
    /// The operator's namespace.
    namespace: String,
    inner: RwLock<Inner>,
    /// Notifies when the unlistable namespaces or a cluster in one of them changed.
    held_changed: Notify,
}

#[derive(Default)]
pub(crate) struct Inner {
    pub clusters: ObjectTable<Cluster>,
    pub operations: ObjectTable<ClusterOperation>,
    pub kubernetes_clusters: ObjectTable<KubernetesCluster>,
    pub jobs: ObjectTable<Job>,
    pub pods: ObjectTable<Pod>,
    metas: HashMap<ObjectRef, (ObjectOwnership, u64)>,
    referrers: HashMap<ObjectRef, BTreeSet<QueueKey>>,
    removed: RemovedUids,
    unlistable: UnlistableNamespaces,
}

/// A kind whose objects belong to queue keys.
pub(crate) trait CachedKind: Sized {
    /// Whether its objects are not reconciled while a kind of their namespace cannot be listed.
    const MAY_BE_HELD: bool = false;

    /// The queue key of the object; `own` is the namespace of the operator.
    fn queue_key(&self, own: &str) -> Option<QueueKey>;
    fn meta(&self) -> &ObjectMeta;
    fn table(inner: &mut Inner) -> &mut ObjectTable<Self>;
    /// The ConfigMaps and Secrets that the object refers to; `own` is the namespace of the operator.
    fn refers_to(&self, _own: &str) -> Vec<ObjectRef> {
        Vec::new()
    }
    /// Whether it is a Job or pod that ended: a user waits for the result.
    fn has_ended(&self) -> bool {
        false
    }
    /// Whether it is a pod that terminates and still runs.
    fn is_terminating(&self) -> bool {
        false
    }
    /// Removes large fields that no decision reads.
    fn slim(&mut self) {}
}

impl CachedKind for Cluster {
    fn queue_key(&self, _own: &str) -> Option<QueueKey> {
        Some(QueueKey::Cluster(self.metadata.name.clone()?))
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn table(inner: &mut Inner) -> &mut ObjectTable<Self> {
        &mut inner.clusters
    }
    fn refers_to(&self, _own: &str) -> Vec<ObjectRef> {
        cluster::references(self).into_iter().map(|(_, target)| target).collect()
    }
}

impl CachedKind for ClusterOperation {
    fn queue_key(&self, _own: &str) -> Option<QueueKey> {
        Some(QueueKey::of(self))
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn table(inner: &mut Inner) -> &mut ObjectTable<Self> {
        &mut inner.operations
    }
    fn refers_to(&self, own: &str) -> Vec<ObjectRef> {
        cluster::references_of(self, own)
    }
}

impl CachedKind for KubernetesCluster {
    const MAY_BE_HELD: bool = true;

    fn queue_key(&self, _own: &str) -> Option<QueueKey> {
        let (namespace, name) = (self.metadata.namespace.clone()?, self.metadata.name.clone()?);
        Some(QueueKey::KubernetesCluster { namespace, name })
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn table(inner: &mut Inner) -> &mut ObjectTable<Self> {
        &mut inner.kubernetes_clusters
    }
    fn refers_to(&self, _own: &str) -> Vec<ObjectRef> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let reference = self.spec.cluster.auth_config.as_ref().and_then(|auth| auth.credentials_ref.as_ref());
        let named =
            reference.map(|reference| ObjectRef::new(ObjectKind::Secret, namespace, reference.name.as_str()));
        named.into_iter().chain(persisted_objects(namespace, name)).collect()
    }
}

/// The queue key in the annotation of a Job or pod, if the object is in the namespace of that key's Jobs.
/// Otherwise a user who may create a pod in one namespace could delay or end the operations of another.
fn named_queue_key(meta: &ObjectMeta, own: &str) -> Option<QueueKey> {
    let queue_key = QueueKey::of_annotations(meta.annotations.as_ref())?;
    (meta.namespace.as_deref() == Some(queue_key.job_namespace(own))).then_some(queue_key)
}

impl CachedKind for Job {
    fn queue_key(&self, own: &str) -> Option<QueueKey> {
        named_queue_key(&self.metadata, own)
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn table(inner: &mut Inner) -> &mut ObjectTable<Self> {
        &mut inner.jobs
    }
    fn has_ended(&self) -> bool {
        job_state::job_state(self) != JobState::Running
    }
    fn slim(&mut self) {
        let Some(spec) = &mut self.spec else { return };
        spec.template.metadata = None;
        let PodSpec { service_account_name, volumes, .. } = spec.template.spec.take().unwrap_or_default();
        spec.template.spec = Some(PodSpec { service_account_name, volumes, ..PodSpec::default() });
    }
}

impl CachedKind for Pod {
    fn queue_key(&self, own: &str) -> Option<QueueKey> {
        named_queue_key(&self.metadata, own)
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn table(inner: &mut Inner) -> &mut ObjectTable<Self> {
        &mut inner.pods
    }
    fn has_ended(&self) -> bool {
        !job_state::is_running(self)
    }
    fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() && job_state::is_running(self) && job_state::has_log(self)
    }
    fn slim(&mut self) {
        self.spec = None;
    }
}

/// A kind that users write, so that an object may be one that cannot be parsed.
pub(crate) trait UserKind: CachedKind {
    const KIND: ObjectKind;
}

impl UserKind for Cluster {
    const KIND: ObjectKind = ObjectKind::Cluster;
}

impl UserKind for ClusterOperation {
    const KIND: ObjectKind = ObjectKind::Operation;
}

impl UserKind for KubernetesCluster {
    const KIND: ObjectKind = ObjectKind::KubernetesCluster;
}

/// The objects of one queue key.
pub(crate) struct QueueObjects {
    pub subject: ClusterObject,
    pub operations: Vec<Arc<ClusterOperation>>,
    pub jobs: Vec<Arc<Job>>,
    pub pods: Vec<Arc<Pod>>,
}

impl ObjectCache {
    /// An empty cache. `namespace` is the operator's own.
    pub(crate) fn new(namespace: String) -> Self {
        Self { namespace, inner: RwLock::default(), held_changed: Notify::new() }
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write()
    }

    /// Adds an object, unless a newer version is known or it was removed. Returns the affected queue keys.
    pub(crate) fn apply<K: CachedKind>(&self, mut object: K) -> Vec<QueueKey> {
        object.slim();
        let Some(queue_key) = object.queue_key(&self.namespace) else { return Vec::new() };
        let (meta, targets) = (object.meta().clone(), object.refers_to(&self.namespace));
        self.store(&meta, queue_key, targets, Observed::Found(Arc::new(object)))
    }

    /// Records that an object exists and cannot be parsed.
    pub(crate) fn apply_unreadable<K: UserKind>(
        &self,
        meta: &ObjectMeta,
        queue_key: QueueKey,
        why: String,
    ) -> Vec<QueueKey> {
        self.store::<K>(meta, queue_key, Vec::new(), Observed::Unreadable(why))
    }

    fn store<K: CachedKind>(
        &self,
        meta: &ObjectMeta,
        queue_key: QueueKey,
        targets: Vec<ObjectRef>,
        object: Observed<Arc<K>>,
    ) -> Vec<QueueKey> {
        let mut inner = self.write();
        if meta.uid.as_ref().is_some_and(|uid| inner.removed.holds(uid)) {
            return Vec::new();
        }
        let version = table::version(meta);
        let stored = CachedObject { object, queue_key: queue_key.clone(), version, targets: targets.clone() };
        let Some(before) = K::table(&mut inner).put(key(meta), stored) else { return Vec::new() };
        if K::MAY_BE_HELD && meta.namespace.as_deref().is_some_and(|of| inner.unlistable.hides(of)) {
            self.held_changed.notify_one();
        }
        if let Some((_, old)) = &before {
            inner.forget(&queue_key, old);
        }
        for target in targets {
            inner.referrers.entry(target).or_default().insert(queue_key.clone());
        }
        let mut queue_keys = vec![queue_key];
        queue_keys.extend(before.map(|(queue_key, _)| queue_key));
        queue_keys.dedup();
        queue_keys
    }

    /// Removes an object.
    pub(crate) fn remove<K: CachedKind>(&self, meta: &ObjectMeta) -> Vec<QueueKey> {
        let mut inner = self.write();
        if let Some(uid) = &meta.uid {
            inner.removed.add(uid);
        }
        let Some((queue_key, targets)) = K::table(&mut inner).remove(&key(meta)) else { return Vec::new() };
        inner.forget(&queue_key, &targets);
        vec![queue_key]
    }

    /// Removes the objects of the kind that are not in a completed list. Returns their queue keys.
    pub(crate) fn retain<K: CachedKind>(
        &self,
        listed: &HashSet<String>,
        namespace: Option<&str>,
    ) -> Vec<QueueKey> {
        K::table(&mut self.write()).retain(listed, namespace)
    }

    /// Records the metadata of a ConfigMap or Secret. Returns the affected queue keys.
    pub(crate) fn apply_meta(&self, target: ObjectRef, meta: &ObjectMeta) -> Vec<QueueKey> {
        let known = ObjectOwnership::of(meta);
        let version = table::version(meta);
        let mut inner = self.write();
        if meta.uid.as_ref().is_some_and(|uid| inner.removed.holds(uid)) {
            return Vec::new();
        }
        if inner.metas.get(&target).is_some_and(|(_, before)| *before >= version) {
            return Vec::new();
        }
        let queue_keys = inner
            .referrers
            .get(&target)
            .map(|queue_keys| queue_keys.iter().cloned().collect())
            .unwrap_or_default();
        inner.metas.insert(target, (known, version));
        queue_keys
    }

    /// Removes a ConfigMap or Secret.
    pub(crate) fn remove_meta(&self, target: &ObjectRef, uid: Option<&str>) -> Vec<QueueKey> {
        let mut inner = self.write();
        if let Some(uid) = uid {
            inner.removed.add(uid);
        }
        inner.metas.remove(target);
        inner.referrers.get(target).map(|queue_keys| queue_keys.iter().cloned().collect()).unwrap_or_default()
    }

    /// The observed version of a ConfigMap or Secret, where versions are numbers.
    pub(crate) fn version(&self, target: &ObjectRef) -> Option<u64> {
        self.read().metas.get(target).map(|(_, version)| *version).filter(|version| *version != u64::MAX)
    }

    /// The known ConfigMaps or Secrets of a namespace.
    pub(crate) fn metas_of(&self, kind: ObjectKind, namespace: &str) -> Vec<ObjectRef> {
        let inner = self.read();
        let found = inner.metas.keys().filter(|target| target.kind == kind && target.namespace == namespace);
        found.cloned().collect()
    }

    /// When a pod ended, if it is known.
    pub(crate) fn pod_ended(&self, pod: &ObjectRef) -> Option<Timestamp> {
        let found = self.read().pods.get(&format!("{}/{}", pod.namespace, pod.name));
        found.object().and_then(|pod| job_state::ended_at(pod))
    }

    /// The objects of one queue key.
    pub(crate) fn objects_of(&self, queue_key: &QueueKey) -> QueueObjects {
        let inner = self.read();
        let subject = match queue_key {
            QueueKey::Cluster(name) => ClusterObject::Cluster(inner.clusters.get(name)),
            QueueKey::KubernetesCluster { namespace, name } => {
                ClusterObject::KubernetesCluster(inner.kubernetes_cluster(namespace, name))
            }
        };
        QueueObjects {
            subject,
            operations: inner.operations.of(queue_key),
            jobs: inner.jobs.of(queue_key),
            pods: inner.pods.of(queue_key),
        }
    }

    /// The clusters whose observer has a kubeconfig, without those that are being deleted.
    pub(crate) fn observable(&self) -> Vec<ObservableCluster> {
        let inner = self.read();
        let observable = |object: &Arc<KubernetesCluster>| {
            let queue_key = CachedKind::queue_key(object.as_ref(), &self.namespace)?;
            let QueueKey::KubernetesCluster { namespace, name } = &queue_key else { return None };
            let secret = observer_secret(namespace, name);
            let version = inner.metas.get(&secret)?.1;
            let is_deleted = object.metadata.deletion_timestamp.is_some();
            (!is_deleted).then(|| ObservableCluster {
                object: Arc::clone(object),
                queue_key,
                secret: (secret, version),
            })
        };
        inner.kubernetes_clusters.all().filter_map(observable).collect()
    }

    /// Records that a list of this kind was refused in this namespace. True when that is new.
    pub(crate) fn list_refused(&self, namespace: &str, kind: &str, message: &str) -> bool {
        self.change_unlistable(namespace, |unlistable| unlistable.list_refused(namespace, kind, message))
    }

    /// Records that a list of this kind succeeded. True when the previous one was refused.
    pub(crate) fn list_succeeded(&self, namespace: &str, kind: &str) -> bool {
        self.change_unlistable(namespace, |unlistable| unlistable.list_succeeded(namespace, kind))
    }

    /// Changes the unlistable kinds of a namespace.
    fn change_unlistable(
        &self,
        namespace: &str,
        change: impl FnOnce(&mut UnlistableNamespaces) -> bool,
    ) -> bool {
        let mut inner = self.write();
        let before = inner.unlistable.why(namespace);
        let answer = change(&mut inner.unlistable);
        if inner.unlistable.why(namespace) != before {
            self.held_changed.notify_one();
        }
        answer
    }

    /// The reasons why clusters of some namespaces are not reconciled, one for each namespace.
    pub(crate) fn unlistable(&self) -> Vec<String> {
        self.read().unlistable.all()
    }

    /// The clusters that are not reconciled, and the reasons.
    pub(crate) fn held(&self) -> Vec<(Arc<KubernetesCluster>, String)> {
        let inner = self.read();
        let why = |object: &Arc<KubernetesCluster>| {
            let namespace = object.metadata.namespace.as_deref()?;
            Some((Arc::clone(object), inner.unlistable.why(namespace)?))
        };
        inner.kubernetes_clusters.all().filter(|object| !needs_no_job(object)).filter_map(why).collect()
    }

    /// Waits until [`Self::held`] may return another result than before.
    pub(crate) async fn held_changed(&self) {
        self.held_changed.notified().await;
    }

    /// The operations that have not ended.
    pub(crate) fn open_operations(&self) -> Vec<Arc<ClusterOperation>> {
        self.read().operations.all().filter(|operation| !order::ended(operation)).cloned().collect()
    }

    /// All queue keys that have objects.
    pub(crate) fn queue_keys(&self) -> BTreeSet<QueueKey> {
        let inner = self.read();
        let tables = [
            inner.clusters.queue_keys(),
            inner.operations.queue_keys(),
            inner.kubernetes_clusters.queue_keys(),
            inner.jobs.queue_keys(),
        ];
        tables.into_iter().flatten().collect()
    }

    /// The number of known objects by kind.
    pub(crate) fn sizes(&self) -> BTreeMap<&'static str, usize> {
        let inner = self.read();
        [
            ("Cluster", inner.clusters.len()),
            ("ClusterOperation", inner.operations.len()),
            ("KubernetesCluster", inner.kubernetes_clusters.len()),
            ("Job", inner.jobs.len()),
            ("Pod", inner.pods.len()),
        ]
        .into()
    }
}

/// Whether only the finalizer remains to be removed, while the hosts stay as they are. That needs no Job, and
/// the deletion of a namespace waits for it after the operator's role in the namespace was deleted.
fn needs_no_job(object: &KubernetesCluster) -> bool {
    object.metadata.deletion_timestamp.is_some()
        && object.spec.deletion_policy == Some(DeletionPolicy::Retain)
        && object.status.as_ref().is_none_or(|status| status.operation.is_none())
}

impl Inner {
    /// The object for a decision. Where a Job may exist that is not in the cache, the object counts as
    /// unreadable: running operations continue and no other operation starts.
    fn kubernetes_cluster(&self, namespace: &str, name: &str) -> Observed<Arc<KubernetesCluster>> {
        let object = self.kubernetes_clusters.get(&format!("{namespace}/{name}"));
        let needs_none = object.object().is_some_and(|object| needs_no_job(object));
        match self.unlistable.why(namespace) {
            Some(why) if !needs_none => Observed::Unreadable(why),
            _ => object,
        }
    }

    fn forget(&mut self, queue_key: &QueueKey, targets: &[ObjectRef]) {
        let remaining: BTreeSet<ObjectRef> = [
            self.clusters.targets(queue_key),
            self.operations.targets(queue_key),
            self.kubernetes_clusters.targets(queue_key),
        ]
        .into_iter()
        .flatten()
        .collect();
        for target in targets.iter().filter(|target| !remaining.contains(target)) {
            if let Some(queue_keys) = self.referrers.get_mut(target) {
                queue_keys.remove(queue_key);
                if queue_keys.is_empty() {
                    self.referrers.remove(target);
                }
            }
        }
    }
}

impl Objects for ObjectCache {
    fn meta(&self, target: &ObjectRef) -> Option<ObjectOwnership> {
        let inner = self.read();
        let known = inner.metas.get(target).map(|(meta, _)| meta.clone());
        // The object may exist, so its reader asks the API server. It counts as controlled, so that it gets
        // no owner.
        let unlisted = || ObjectOwnership { controlled: true, ..ObjectOwnership::default() };
        known.or_else(|| inner.unlistable.may_exist(target).then(unlisted))
    }
}

#[cfg(test)]
mod tests;
