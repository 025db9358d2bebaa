//! Priority of requests at a busy API server.

use serde_json::{Value, json};

use super::metadata::metadata;
use crate::{InstallOptions, names};

/// Lower than the precedence of Kubernetes' own FlowSchemas for leases (200), higher than that of the exempt ones (1).
const PRECEDENCE: u32 = 150;

/// Gives the operator's lease the priority of Kubernetes' own leases, whose FlowSchema covers `kube-system` only, so that many
/// operations at once do not cost the operator its leadership.
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
