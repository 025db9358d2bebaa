//! The input of a decision: one cluster, its operations, and their Jobs and pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kubeon_api::labels;
use kubeon_api::{Cluster, ClusterOperation, DataRef, KubernetesCluster};

use crate::observed_health::ObservedHealth;
use crate::queue_key::QueueKey;
use crate::settings::OperatorSettings;
use crate::write::{NeedsReads, ObjectKind, ObjectRef};

/// An object that may be missing or unreadable.
#[derive(Debug, Clone)]
pub enum Observed<T> {
    /// It exists.
    Found(T),
    /// It exists, but it cannot be parsed; the text says why.
    Unreadable(String),
    /// It does not exist.
    Absent,
}

impl<T> Observed<T> {
    /// The object, if it was read.
    pub fn object(&self) -> Option<&T> {
        match self {
            Self::Found(object) => Some(object),
            Self::Unreadable(_) | Self::Absent => None,
        }
    }
}

/// The cluster that a queue key names.
#[derive(Debug, Clone)]
pub enum ClusterObject {
    /// A `Cluster`.
    Cluster(Observed<Arc<Cluster>>),
    /// A `KubernetesCluster`.
    KubernetesCluster(Observed<Arc<KubernetesCluster>>),
}

impl ClusterObject {
    /// The region of a `KubernetesCluster`.
    #[must_use]
    pub fn region(&self) -> Option<&str> {
        match self {
            Self::KubernetesCluster(observed) => {
                let region = observed.object()?.spec.cluster.region.as_ref()?;
                Some(region.as_str()).filter(|region| !region.is_empty())
            }
            Self::Cluster(_) => None,
        }
    }

    /// The object and its UID; `None` when it was not read.
    #[must_use]
    pub fn target(&self) -> Option<(ObjectRef, String)> {
        let (kind, meta) = match self {
            Self::Cluster(observed) => (ObjectKind::Cluster, &observed.object()?.metadata),
            Self::KubernetesCluster(observed) => {
                (ObjectKind::KubernetesCluster, &observed.object()?.metadata)
            }
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Some((ObjectRef::new(kind, text(&meta.namespace), text(&meta.name)), text(&meta.uid)))
    }
}

/// The ownership of a ConfigMap or Secret, which is known without its content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectOwnership {
    /// UIDs of its owners.
    pub owners: Vec<String>,
    /// Whether one of the owners is its controller.
    pub controlled: bool,
    /// The cluster of a persisted object, which a runner writes.
    pub cluster: Option<String>,
    /// The UID of the `Cluster` that a persisted object belongs to. Objects of a `KubernetesCluster` have none.
    pub cluster_uid: Option<String>,
    /// The Job whose runner may write it.
    pub job: Option<String>,
    /// The pod that wrote it, if it is the log of a pod that was stopped.
    pub pod: Option<String>,
    /// The number of bytes of the values of a log.
    pub stored_bytes: Option<u64>,
    /// Whether somebody else than a runner changed the kubeconfig in a Secret after a runner wrote it.
    pub edited: bool,
}

impl ObjectOwnership {
    /// The ownership in an object's metadata.
    #[must_use]
    pub fn of(meta: &ObjectMeta) -> Self {
        let owners = meta.owner_references.as_deref().unwrap_or_default();
        let text = |map: &Option<BTreeMap<String, String>>, key: &str| map.as_ref()?.get(key).cloned();
        Self {
            owners: owners.iter().map(|owner| owner.uid.clone()).collect(),
            controlled: owners.iter().any(|owner| owner.controller == Some(true)),
            cluster: text(&meta.labels, labels::CLUSTER),
            cluster_uid: text(&meta.annotations, labels::CLUSTER_UID),
            job: text(&meta.annotations, labels::JOB),
            pod: text(&meta.annotations, labels::POD),
            stored_bytes: text(&meta.annotations, labels::STORED_BYTES).and_then(|bytes| bytes.parse().ok()),
            edited: is_edited(meta),
        }
    }
}

/// Whether the last writer of the kubeconfig in a Secret is not a runner. A Secret that came from a backup has its first writer
/// since its creation, and counts as not edited.
fn is_edited(meta: &ObjectMeta) -> bool {
    let writes = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref();
        fields.is_some_and(|fields| fields.0.pointer("/f:data/f:kubeconfig").is_some())
    };
    let writers: Vec<_> = meta.managed_fields.iter().flatten().filter(writes).collect();
    let created = meta.creation_timestamp.as_ref().map(|time| time.0);
    let is_runner = |entry: &&ManagedFieldsEntry| entry.manager.as_deref() == Some(labels::RUNNER_MANAGER);
    let is_later = |entry: &&ManagedFieldsEntry| entry.time.as_ref().map(|time| time.0) > created;
    !writers.iter().any(is_runner) && writers.iter().any(is_later)
}

/// ConfigMaps and Secrets of the watched namespaces.
pub trait Objects {
    /// The ownership of an object; `None` when the object does not exist.
    fn meta(&self, target: &ObjectRef) -> Option<ObjectOwnership>;
}

/// An object that was read for this reconcile.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// The values of a ConfigMap or Secret, and the Secret's type.
    Values {
        /// The values by key.
        values: BTreeMap<String, Vec<u8>>,
        /// The type of a Secret; empty for a ConfigMap.
        kind: String,
    },
    /// The end of a pod's log.
    Log(String),
    /// A Job that exists.
    Job(Box<Job>),
    /// The object exists; its content was not read.
    Exists,
    /// The object does not exist.
    Absent,
    /// The object cannot be read; the text says why.
    Denied(String),
}

/// The error that the API server returned for a write of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteRefusal {
    /// The message of the API server.
    pub text: String,
    /// Whether a retry cannot succeed.
    pub permanent: bool,
}

/// Whether an operation of the queue key may start now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartPermission {
    /// It may start.
    Now,
    /// As many operations as the limit allows run.
    Later {
        /// The most operations that run at the same time.
        limit: usize,
        /// The number of operations of other clusters that start before it.
        before: usize,
        /// The region, if the limit is that of the clusters of a region.
        region: Option<String>,
    },
}

/// The observed objects of one queue key at one time.
pub struct View<'a> {
    /// The key.
    pub queue_key: &'a QueueKey,
    /// The settings of the operator.
    pub settings: &'a OperatorSettings,
    /// The current time.
    pub now: Timestamp,
    /// The cluster.
    pub subject: ClusterObject,
    /// Its operations, in any order.
    pub operations: Vec<Arc<ClusterOperation>>,
    /// Jobs of its operations, including deleted operations.
    pub jobs: Vec<Arc<Job>>,
    /// The pods of these Jobs.
    pub pods: Vec<Arc<Pod>>,
    /// The ownership of ConfigMaps and Secrets.
    pub objects: &'a dyn Objects,
    /// The objects that were read for this reconcile.
    pub data: &'a BTreeMap<ObjectRef, Data>,
    /// The refusals of the API server, by operation.
    pub refusals: &'a BTreeMap<String, WriteRefusal>,
    /// Whether the first open operation may start.
    pub start: StartPermission,
    /// The health of a business cluster; `None` while it is not observed.
    pub health: Option<ObservedHealth>,
}

impl View<'_> {
    /// The pods of a Job. Pods of an earlier Job with the same name are removed after it, and may still
    /// exist.
    pub fn pods_of<'s>(&'s self, job: &'s Job) -> impl Iterator<Item = &'s Pod> {
        self.pods.iter().map(AsRef::as_ref).filter(move |pod| {
            let mut owners = pod.metadata.owner_references.iter().flatten();
            pod.metadata.namespace == job.metadata.namespace
                && owners.any(|owner| Some(&owner.uid) == job.metadata.uid.as_ref())
        })
    }

    /// The Job of this name.
    #[must_use]
    pub fn job(&self, at: &DataRef) -> Option<&Job> {
        let found = self.jobs.iter().find(|job| {
            job.metadata.name.as_deref() == Some(&at.name)
                && job.metadata.namespace.as_deref() == Some(&at.namespace)
        });
        found.map(AsRef::as_ref)
    }

    /// The data that was read of an object. The error asks the caller to read it and to decide again.
    pub(crate) fn data_of(&self, target: &ObjectRef) -> Result<&Data, NeedsReads> {
        self.data.get(target).ok_or_else(|| NeedsReads(vec![target.clone()]))
    }

    /// Checks that all of these objects were read. The error names every unread object, so that one round of
    /// reads is enough.
    pub(crate) fn all_read(&self, targets: Vec<ObjectRef>) -> Result<(), NeedsReads> {
        let unread: Vec<ObjectRef> =
            targets.into_iter().filter(|target| !self.data.contains_key(target)).collect();
        if unread.is_empty() { Ok(()) } else { Err(NeedsReads(unread)) }
    }
}
