//! The key of the work queue: one cluster with its operations. At most one operation of a key runs at a time.

use std::fmt;

use kubeon_api::ClusterOperation;

use crate::names::{
    DERIVED_NAMESPACE_LABEL, DERIVED_UID_LABEL, OLD_QUEUE_KEY_ANNOTATION, QUEUE_KEY_ANNOTATION,
};

/// The cluster whose operations are reconciled together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueKey {
    /// The `Cluster` with this name.
    Cluster(String),
    /// A `KubernetesCluster`.
    KubernetesCluster {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl QueueKey {
    /// The key of an operation. The labels of a derived operation name its `KubernetesCluster`; the decision
    /// for that cluster checks its UID.
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

    /// The namespace of the Jobs of these operations. `own` is the namespace of the operator. An object in
    /// another namespace is not one of their Jobs or pods, whatever its labels are.
    #[must_use]
    pub fn job_namespace<'l>(&'l self, own: &'l str) -> &'l str {
        match self {
            Self::Cluster(_) => own,
            Self::KubernetesCluster { namespace, .. } => namespace,
        }
    }

    /// The key in the annotations of a Job or pod.
    #[must_use]
    pub fn of_annotations(annotations: Option<&std::collections::BTreeMap<String, String>>) -> Option<Self> {
        let annotations = annotations?;
        let text =
            annotations.get(QUEUE_KEY_ANNOTATION).or_else(|| annotations.get(OLD_QUEUE_KEY_ANNOTATION))?;
        text.parse().ok()
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

/// A text that is not a queue key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a queue key")]
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
    fn a_printed_key_is_parsed_to_the_same_key() {
        let kubernetes_cluster = QueueKey::KubernetesCluster { namespace: "a".into(), name: "b".into() };
        for queue_key in [QueueKey::Cluster("x.y".into()), kubernetes_cluster] {
            assert_eq!(queue_key.to_string().parse(), Ok(queue_key));
        }
        assert!("x".parse::<QueueKey>().is_err());
    }

    #[test]
    fn the_key_of_a_job_that_an_older_operator_created_is_read() {
        for name in ["kubeon.io/queue-key", "kubeon.io/lane"] {
            let annotations = [(name.to_owned(), "cluster/a".to_owned())].into();
            assert_eq!(QueueKey::of_annotations(Some(&annotations)), Some(QueueKey::Cluster("a".into())));
        }
    }
}
