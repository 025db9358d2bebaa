//! The objects that outlive the Jobs of a cluster.

use kubeon_api::{KubernetesCluster, labels};

use super::object_access::{namespace, object_name};
use crate::names;
use crate::write::{ObjectKind, ObjectRef};

/// The Secrets with the engine's state and the kubeconfigs of administrator and observer, and the ConfigMap with the SSH host
/// keys.
#[must_use]
pub fn persisted_objects(namespace: &str, name: &str) -> [ObjectRef; 4] {
    [
        ObjectRef::new(ObjectKind::Secret, namespace, names::state(namespace, name)),
        ObjectRef::new(ObjectKind::Secret, namespace, names::kubeconfig(namespace, name)),
        observer_secret(namespace, name),
        ObjectRef::new(ObjectKind::ConfigMap, namespace, names::known_hosts(namespace, name)),
    ]
}

/// The Secret with the kubeconfig with which the operator observes the cluster.
#[must_use]
pub fn observer_secret(namespace: &str, name: &str) -> ObjectRef {
    ObjectRef::new(ObjectKind::Secret, namespace, names::observer(namespace, name))
}

/// The message with the remedy when the Secret with the cluster's state is missing.
pub(super) fn state_missing_text(object: &KubernetesCluster, state: &ObjectRef) -> String {
    format!(
        "Secret {0}/{1} with the cluster's state is missing and a Job has already run: restore it with label {2}={3}, or set \
         `spec.deletionPolicy: Retain` to leave the hosts as they are: kubectl -n {0} patch ecs {4} --type merge -p \
         '{{\"spec\":{{\"deletionPolicy\":\"Retain\"}}}}'",
        state.namespace,
        state.name,
        labels::CLUSTER,
        crate::persisted::cluster(namespace(object), object_name(object)),
        object_name(object)
    )
}
