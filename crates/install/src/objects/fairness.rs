//! Whose requests go first at a busy API server.

use serde_json::{Value, json};

use super::metadata::metadata;
use crate::{InstallOptions, names};

/// Before the FlowSchemas that Kubernetes brings for leases (200), after those that exempt (1).
const PRECEDENCE: u32 = 150;

/// The operator's lease is renewed at the level of those of Kubernetes itself: theirs covers `kube-system` only. A flood
/// of operations must not cost the operator its lead.
#[must_use]
pub(crate) fn leases(options: &InstallOptions) -> Value {
    let own = options.namespace.as_str();
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": metadata("", "kubeon-leases"),
        "spec": {
            "matchingPrecedence": PRECEDENCE,
            "priorityLevelConfiguration": {"name": "leader-election"},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": [{"kind": "ServiceAccount", "serviceAccount": {"name": names::OPERATOR, "namespace": own}}],
                "resourceRules": [{
                    "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                    "verbs": ["create", "get", "patch", "update"], "namespaces": [own],
                }],
            }],
        },
    })
}
