//! The input of a decision: one cluster, its operations, and their Jobs and pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kubeon_api::labels;
use kubeon_api::{Cluster, ClusterOperation, DataRef, KubernetesCluster};

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
    /// The object, and its UID, if it was read.
    #[must_use]
    pub fn target(&self) -> Option<(ObjectRef, String)> {
        let (kind, meta) = match self {
            Self::Cluster(seen) => (ObjectKind::Cluster, &seen.object()?.metadata),
            Self::KubernetesCluster(seen) => (ObjectKind::KubernetesCluster, &seen.object()?.metadata),
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Some((ObjectRef::new(kind, text(&meta.namespace), text(&meta.name)), text(&meta.uid)))
    }
}

/// What is known of a ConfigMap or Secret without reading its content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectOwnership {
    /// UIDs of its owners.
    pub owners: Vec<String>,
    /// Whether one of them controls it.
    pub controlled: bool,
    /// The cluster that the operator made it for, one that a runner writes.
    pub cluster: Option<String>,
    /// The Job whose runner may write it.
    pub job: Option<String>,
}

impl ObjectOwnership {
    /// What an object's metadata tell.
    #[must_use]
    pub fn of(meta: &ObjectMeta) -> Self {
        let owners = meta.owner_references.as_deref().unwrap_or_default();
        let text = |map: &Option<BTreeMap<String, String>>, key: &str| map.as_ref()?.get(key).cloned();
        Self {
            owners: owners.iter().map(|owner| owner.uid.clone()).collect(),
            controlled: owners.iter().any(|owner| owner.controller == Some(true)),
            cluster: text(&meta.labels, labels::CLUSTER),
            job: text(&meta.annotations, labels::JOB),
        }
    }
}

/// ConfigMaps and Secrets of the watched namespaces.
pub trait Objects {
    /// What is known of one; `None` when there is none.
    fn meta(&self, target: &ObjectRef) -> Option<ObjectOwnership>;
}

/// An object that was read for this reconcile.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// The values of a ConfigMap or Secret, and the Secret's type.
    Values {
        /// By key.
        values: BTreeMap<String, Vec<u8>>,
        /// The type of a Secret; empty for a ConfigMap.
        kind: String,
    },
    /// A pod's log, its end.
    Log(String),
    /// A Job that is there.
    Job(Box<Job>),
    /// It is there; nothing more was asked.
    There,
    /// There is none.
    Absent,
    /// It cannot be read; the text says why.
    Denied(String),
}

/// What the API server answered to a write of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteRefusal {
    /// In its words.
    pub text: String,
    /// Whether asking again is of no use.
    pub lasting: bool,
}

/// What is known of one queue key at one time.
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
    /// Jobs of its operations, also of deleted ones.
    pub jobs: Vec<Arc<Job>>,
    /// Their pods.
    pub pods: Vec<Arc<Pod>>,
    /// What is known of ConfigMaps and Secrets.
    pub objects: &'a dyn Objects,
    /// The objects that were read for this reconcile.
    pub data: &'a BTreeMap<ObjectRef, Data>,
    /// What the API server refused, by operation.
    pub trouble: &'a BTreeMap<String, WriteRefusal>,
}

impl View<'_> {
    /// The pods of a Job. Those of an earlier one of its name are collected after it, and may still be there.
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

    /// What was read of an object. The error asks the caller to read it and to decide again.
    pub(crate) fn data_of(&self, target: &ObjectRef) -> Result<&Data, NeedsReads> {
        self.data.get(target).ok_or_else(|| NeedsReads(vec![target.clone()]))
    }

    /// Checks that all of these objects were read. The error names every object that was not, so that one round of reads
    /// is enough.
    pub(crate) fn all_read(&self, targets: Vec<ObjectRef>) -> Result<(), NeedsReads> {
        let unread: Vec<ObjectRef> =
            targets.into_iter().filter(|target| !self.data.contains_key(target)).collect();
        if unread.is_empty() { Ok(()) } else { Err(NeedsReads(unread)) }
    }
}
