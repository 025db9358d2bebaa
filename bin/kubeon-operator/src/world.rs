//! What is known of the meta cluster, by lane. Fed by watches and by the answers to the operator's own writes, so that a
//! turn sees what the turn before it wrote.

mod hidden;
mod table;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kubeon_api::kubernetes_cluster::DeletionPolicy;
use kubeon_api::{Cluster, ClusterOperation, KubernetesCluster};
use kubeon_operations::business::kept;
use kubeon_operations::job_state::{self, JobState};
use kubeon_operations::{Kind, Lane, Meta, Objects, Seen, Subject, Target, cluster};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::Notify;

use hidden::Hidden;
pub(crate) use table::{Gone, Stored, Table, key};

/// Everything that is known.
pub(crate) struct World {
    /// The operator's namespace.
    namespace: String,
    inner: RwLock<Inner>,
    /// What is hidden changed, or a cluster of a namespace where something is.
    held_anew: Notify,
}

#[derive(Default)]
pub(crate) struct Inner {
    pub clusters: Table<Cluster>,
    pub operations: Table<ClusterOperation>,
    pub businesses: Table<KubernetesCluster>,
    pub jobs: Table<Job>,
    pub pods: Table<Pod>,
    metas: HashMap<Target, (Meta, u64)>,
    referrers: HashMap<Target, BTreeSet<Lane>>,
    gone: Gone,
    hidden: Hidden,
}

/// A kind that belongs to lanes.
pub(crate) trait InLane: Sized {
    /// Whether nothing is decided for it while something of its namespace cannot be listed.
    const MAY_BE_HELD: bool = false;

    /// The lane that it belongs to, before an operator in the namespace `own`.
    fn lane(&self, own: &str) -> Option<Lane>;
    fn meta(&self) -> &ObjectMeta;
    fn table(inner: &mut Inner) -> &mut Table<Self>;
    /// ConfigMaps and Secrets whose appearance matters to it, by an operator in the namespace `own`.
    fn refers_to(&self, _own: &str) -> Vec<Target> {
        Vec::new()
    }
    /// Whether it says that the work of an operation ended: somebody waits for that.
    fn has_ended(&self) -> bool {
        false
    }
    /// Whether it is a pod that was told to end, and works.
    fn is_parting(&self) -> bool {
        false
    }
    /// Takes away what no decision reads and what is most of it.
    fn slim(&mut self) {}
}

impl InLane for Cluster {
    fn lane(&self, _own: &str) -> Option<Lane> {
        Some(Lane::Cluster(self.metadata.name.clone()?))
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.clusters
    }
    fn refers_to(&self, _own: &str) -> Vec<Target> {
        cluster::references(self).into_iter().map(|(_, target)| target).collect()
    }
}

impl InLane for ClusterOperation {
    fn lane(&self, _own: &str) -> Option<Lane> {
        Some(Lane::of(self))
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.operations
    }
    fn refers_to(&self, own: &str) -> Vec<Target> {
        cluster::references_of(self, own)
    }
}

impl InLane for KubernetesCluster {
    const MAY_BE_HELD: bool = true;

    fn lane(&self, _own: &str) -> Option<Lane> {
        let (namespace, name) = (self.metadata.namespace.clone()?, self.metadata.name.clone()?);
        Some(Lane::Business { namespace, name })
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.businesses
    }
    fn refers_to(&self, _own: &str) -> Vec<Target> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let reference = self.spec.cluster.auth_config.as_ref().and_then(|auth| auth.credentials_ref.as_ref());
        let named = reference.map(|reference| Target::new(Kind::Secret, namespace, reference.name.as_str()));
        named.into_iter().chain(kept(namespace, name)).collect()
    }
}

/// The lane that a Job or a pod names, if it is where Jobs of that lane are made: whoever may make a pod in one namespace
/// could else hold up, or end, what another one asked for.
fn named_lane(meta: &ObjectMeta, own: &str) -> Option<Lane> {
    let lane = Lane::of_annotations(meta.annotations.as_ref())?;
    (meta.namespace.as_deref() == Some(cluster::home(&lane, own))).then_some(lane)
}

impl InLane for Job {
    fn lane(&self, own: &str) -> Option<Lane> {
        named_lane(&self.metadata, own)
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.jobs
    }
    fn has_ended(&self) -> bool {
        job_state::job_state(self) != JobState::Works
    }
    fn slim(&mut self) {
        let Some(spec) = &mut self.spec else { return };
        spec.template.metadata = None;
        let volumes = spec.template.spec.take().and_then(|pod| pod.volumes);
        spec.template.spec = Some(PodSpec { volumes, ..PodSpec::default() });
    }
}

impl InLane for Pod {
    fn lane(&self, own: &str) -> Option<Lane> {
        named_lane(&self.metadata, own)
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.pods
    }
    fn has_ended(&self) -> bool {
        !job_state::lives(self)
    }
    fn is_parting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() && job_state::lives(self) && job_state::has_log(self)
    }
    fn slim(&mut self) {
        self.spec = None;
    }
}

/// The objects of one lane.
pub(crate) struct Room {
    pub subject: Subject,
    pub operations: Vec<Arc<ClusterOperation>>,
    pub jobs: Vec<Arc<Job>>,
    pub pods: Vec<Arc<Pod>>,
}

impl World {
    /// Nothing is known yet. `namespace` is the operator's own.
    pub fn new(namespace: String) -> Self {
        Self { namespace, inner: RwLock::default(), held_anew: Notify::new() }
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write()
    }

    /// Takes an object in, unless a newer one is known or it is known to be gone. The lanes that it matters to.
    pub fn apply<K: InLane>(&self, mut object: K) -> Vec<Lane> {
        object.slim();
        let Some(lane) = object.lane(&self.namespace) else { return Vec::new() };
        let (meta, targets) = (object.meta().clone(), object.refers_to(&self.namespace));
        self.store(&meta, lane, targets, Seen::Is(Arc::new(object)))
    }

    /// Takes in that an object is there and cannot be read.
    pub fn apply_unreadable<K: InLane>(&self, meta: &ObjectMeta, lane: Lane, why: String) -> Vec<Lane> {
        self.store::<K>(meta, lane, Vec::new(), Seen::Unreadable(why))
    }

    fn store<K: InLane>(
        &self,
        meta: &ObjectMeta,
        lane: Lane,
        targets: Vec<Target>,
        object: Seen<Arc<K>>,
    ) -> Vec<Lane> {
        let mut inner = self.write();
        if meta.uid.as_ref().is_some_and(|uid| inner.gone.holds(uid)) {
            return Vec::new();
        }
        let version = table::version(meta);
        let stored = Stored { object, lane: lane.clone(), version, targets: targets.clone() };
        let Some(before) = K::table(&mut inner).put(key(meta), stored) else { return Vec::new() };
        if K::MAY_BE_HELD && meta.namespace.as_deref().is_some_and(|of| inner.hidden.hides(of)) {
            self.held_anew.notify_one();
        }
        if let Some((_, old)) = &before {
            inner.forget(&lane, old);
        }
        for target in targets {
            inner.referrers.entry(target).or_default().insert(lane.clone());
        }
        let mut lanes = vec![lane];
        lanes.extend(before.map(|(lane, _)| lane));
        lanes.dedup();
        lanes
    }

    /// Takes in that an object is gone.
    pub fn remove<K: InLane>(&self, meta: &ObjectMeta) -> Vec<Lane> {
        let mut inner = self.write();
        if let Some(uid) = &meta.uid {
            inner.gone.add(uid);
        }
        let Some((lane, targets)) = K::table(&mut inner).remove(&key(meta)) else { return Vec::new() };
        inner.forget(&lane, &targets);
        vec![lane]
    }

    /// A list of the kind ended: what is not on it is gone. The lanes of that.
    pub fn keep<K: InLane>(&self, listed: &HashSet<String>, namespace: Option<&str>) -> Vec<Lane> {
        K::table(&mut self.write()).keep(listed, namespace)
    }

    /// Takes in what is known of a ConfigMap or Secret. The lanes that it matters to, if it appeared or its owners changed.
    pub fn apply_meta(&self, target: Target, meta: &ObjectMeta) -> Vec<Lane> {
        let known = Meta::of(meta);
        let version = table::version(meta);
        let mut inner = self.write();
        if meta.uid.as_ref().is_some_and(|uid| inner.gone.holds(uid)) {
            return Vec::new();
        }
        if inner.metas.get(&target).is_some_and(|(_, before)| *before >= version) {
            return Vec::new();
        }
        let lanes =
            inner.referrers.get(&target).map(|lanes| lanes.iter().cloned().collect()).unwrap_or_default();
        inner.metas.insert(target, (known, version));
        lanes
    }

    /// Takes in that a ConfigMap or Secret is gone.
    pub fn remove_meta(&self, target: &Target, uid: Option<&str>) -> Vec<Lane> {
        let mut inner = self.write();
        if let Some(uid) = uid {
            inner.gone.add(uid);
        }
        inner.metas.remove(target);
        inner.referrers.get(target).map(|lanes| lanes.iter().cloned().collect()).unwrap_or_default()
    }

    /// The version of a ConfigMap or Secret that was seen, where versions are numbers.
    pub fn version(&self, target: &Target) -> Option<u64> {
        self.read().metas.get(target).map(|(_, version)| *version).filter(|version| *version != u64::MAX)
    }

    /// ConfigMaps or Secrets of a namespace that are known.
    pub fn metas_of(&self, kind: Kind, namespace: &str) -> Vec<Target> {
        let inner = self.read();
        let found = inner.metas.keys().filter(|target| target.kind == kind && target.namespace == namespace);
        found.cloned().collect()
    }

    /// When a pod ended, if it did and says so.
    pub fn pod_ended(&self, pod: &Target) -> Option<Timestamp> {
        let found = self.read().pods.get(&format!("{}/{}", pod.namespace, pod.name));
        found.object().and_then(|pod| job_state::ended_at(pod))
    }

    /// The objects of one lane.
    pub fn room(&self, lane: &Lane) -> Room {
        let inner = self.read();
        let subject = match lane {
            Lane::Cluster(name) => Subject::Cluster(inner.clusters.get(name)),
            Lane::Business { namespace, name } => Subject::Business(inner.business(namespace, name)),
        };
        Room {
            subject,
            operations: inner.operations.of(lane),
            jobs: inner.jobs.of(lane),
            pods: inner.pods.of(lane),
        }
    }

    /// A list of this kind was refused in this namespace. Whether that is new.
    pub fn refused(&self, namespace: &str, kind: &str, said: &str) -> bool {
        self.hide(namespace, |hidden| hidden.refused(namespace, kind, said))
    }

    /// A list of this kind was taken in. Whether one was refused before.
    pub fn answered(&self, namespace: &str, kind: &str) -> bool {
        self.hide(namespace, |hidden| hidden.answered(namespace, kind))
    }

    /// Changes what is hidden in a namespace.
    fn hide(&self, namespace: &str, change: impl FnOnce(&mut Hidden) -> bool) -> bool {
        let mut inner = self.write();
        let before = inner.hidden.why(namespace);
        let answer = change(&mut inner.hidden);
        if inner.hidden.why(namespace) != before {
            self.held_anew.notify_one();
        }
        answer
    }

    /// Why nothing is decided for clusters of some namespaces, a sentence for each.
    pub fn hidden(&self) -> Vec<String> {
        self.read().hidden.all()
    }

    /// Objects for which nothing is decided, and why.
    pub fn held(&self) -> Vec<(Arc<KubernetesCluster>, String)> {
        let inner = self.read();
        let why = |object: &Arc<KubernetesCluster>| {
            let namespace = object.metadata.namespace.as_deref()?;
            Some((Arc::clone(object), inner.hidden.why(namespace)?))
        };
        inner.businesses.all().filter(|object| !needs_no_job(object)).filter_map(why).collect()
    }

    /// Waits until [`Self::held`] may have another answer than when it was asked last, or its objects are others by now.
    pub async fn held_anew(&self) {
        self.held_anew.notified().await;
    }

    /// Every lane that has something.
    pub fn lanes(&self) -> BTreeSet<Lane> {
        let inner = self.read();
        let tables =
            [inner.clusters.lanes(), inner.operations.lanes(), inner.businesses.lanes(), inner.jobs.lanes()];
        tables.into_iter().flatten().collect()
    }

    /// How many objects of each kind are known.
    pub fn sizes(&self) -> BTreeMap<&'static str, usize> {
        let inner = self.read();
        [
            ("Cluster", inner.clusters.len()),
            ("ClusterOperation", inner.operations.len()),
            ("KubernetesCluster", inner.businesses.len()),
            ("Job", inner.jobs.len()),
            ("Pod", inner.pods.len()),
        ]
        .into()
    }
}

/// Whether it only waits for its finalizer to be taken away, the hosts as they are. No Job is needed for that, and a
/// namespace that is being deleted, the operator's rights in it first, waits for it.
fn needs_no_job(object: &KubernetesCluster) -> bool {
    object.metadata.deletion_timestamp.is_some()
        && object.spec.deletion_policy == Some(DeletionPolicy::Retain)
        && object.status.as_ref().is_none_or(|status| status.operation.is_none())
}

impl Inner {
    /// An object as decisions may see it: where a Job may be that nobody was told of, what works goes on and nothing begins,
    /// as when the object itself cannot be read.
    fn business(&self, namespace: &str, name: &str) -> Seen<Arc<KubernetesCluster>> {
        let object = self.businesses.get(&format!("{namespace}/{name}"));
        let free = object.object().is_some_and(|object| needs_no_job(object));
        match self.hidden.why(namespace) {
            Some(why) if !free => Seen::Unreadable(why),
            _ => object,
        }
    }

    fn forget(&mut self, lane: &Lane, targets: &[Target]) {
        let still: BTreeSet<Target> =
            [self.clusters.targets(lane), self.operations.targets(lane), self.businesses.targets(lane)]
                .into_iter()
                .flatten()
                .collect();
        for target in targets.iter().filter(|target| !still.contains(target)) {
            if let Some(lanes) = self.referrers.get_mut(target) {
                lanes.remove(lane);
                if lanes.is_empty() {
                    self.referrers.remove(target);
                }
            }
        }
    }
}

impl Objects for World {
    fn meta(&self, target: &Target) -> Option<Meta> {
        let inner = self.read();
        let known = inner.metas.get(target).map(|(meta, _)| meta.clone());
        // It may be there: who needs it finds out by asking for it. As somebody's own it gets no owner from here.
        let unseen = || Meta { controlled: true, ..Meta::default() };
        known.or_else(|| inner.hidden.holds(target).then(unseen))
    }
}

#[cfg(test)]
mod tests;
