//! The key of the work queue: one cluster with its operations, of which one runs at a time.

use std::fmt;

use kubeon_api::ClusterOperation;

use crate::names::{DERIVED_NAMESPACE_LABEL, DERIVED_UID_LABEL, QUEUE_KEY_ANNOTATION};

/// Whose operations.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueKey {
    /// Of the `Cluster` with this name.
    Cluster(String),
    /// Of a `KubernetesCluster`.
    KubernetesCluster {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl QueueKey {
    /// The key of an operation. The labels of a derived operation name its `KubernetesCluster`; the decision for that cluster
    /// checks its UID.
    #[must_use]
    pub fn of(operation: &ClusterOperation) -> Self {
        let labels = operation.metadata.labels.as_ref();
        let label = |key: &str| labels.and_then(|labels| labels.get(key));
        match (label(DERIVED_NAMESPACE_LABEL), label(DERIVED_UID_LABEL)) {
            (Some(namespace), Some(_)) => {
                Self::KubernetesCluster { namespace: namespace.clone(), name: operation.spec.cluster.clone() }
            }
            _ => Self::Cluster(operation.spec.cluster.clone()),
        }
    }

    /// The namespace of the Jobs of these operations, for an operator that runs in the namespace `own`. An object in another
    /// namespace is none of their Jobs or pods, whatever its labels are.
    #[must_use]
    pub fn job_namespace<'l>(&'l self, own: &'l str) -> &'l str {
        match self {
            Self::Cluster(_) => own,
            Self::KubernetesCluster { namespace, .. } => namespace,
        }
    }

    /// The key that the annotations of a Job or pod name.
    #[must_use]
    pub fn of_annotations(annotations: Option<&std::collections::BTreeMap<String, String>>) -> Option<Self> {
        annotations?.get(QUEUE_KEY_ANNOTATION)?.parse().ok()
    }
}

impl fmt::Display for QueueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(name) => write!(f, "cluster/{name}"),
            Self::KubernetesCluster { namespace, name } => write!(f, "kubernetescluster/{namespace}/{name}"),
        }
    }
}

/// A text that names no lane.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no lane")]
pub struct InvalidQueueKey(String);

impl std::str::FromStr for QueueKey {
    type Err = InvalidQueueKey;
    fn from_str(text: &str) -> Result<Self, InvalidQueueKey> {
        match text.split('/').collect::<Vec<_>>().as_slice() {
            ["cluster", name] => Ok(Self::Cluster((*name).to_owned())),
            ["kubernetescluster", namespace, name] => {
                Ok(Self::KubernetesCluster { namespace: (*namespace).to_owned(), name: (*name).to_owned() })
            }
            _ => Err(InvalidQueueKey(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_read_back_from_what_it_is_written_as() {
        let business = QueueKey::KubernetesCluster { namespace: "a".into(), name: "b".into() };
        for queue_key in [QueueKey::Cluster("x.y".into()), business] {
            assert_eq!(queue_key.to_string().parse(), Ok(queue_key));
        }
        assert!("x".parse::<QueueKey>().is_err());
    }
}
