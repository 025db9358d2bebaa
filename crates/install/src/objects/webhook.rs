//! The webhook's registration: what is sent to it, and what is not.

use serde_json::{Value, json};

use super::metadata::metadata;
use crate::policies::cel::{cel_list, operation_annotation};
use crate::{InstallOptions, names};

/// The `ValidatingWebhookConfiguration`. It has no `caBundle`: the operator that leads puts it there and keeps it.
#[must_use]
pub fn configuration(options: &InstallOptions) -> Value {
    let client = json!({
        "service": {
            "name": names::WEBHOOK_SERVICE,
            "namespace": options.namespace,
            "path": names::WEBHOOK_PATH,
            "port": 443,
        },
    });
    configuration_with(options, &client)
}

/// The same with another way to reach the webhook: `{"url": …, "caBundle": …}` for one outside of the cluster.
#[must_use]
pub fn configuration_with(options: &InstallOptions, client: &Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": metadata("", names::WEBHOOK_CONFIGURATION),
        "webhooks": [{
            "name": "validate.ecs.yun.com",
            "admissionReviewVersions": ["v1"],
            "clientConfig": client,
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": 5,
            "rules": [
                {
                    "apiGroups": ["ecs.yun.com"], "apiVersions": ["v1"], "resources": ["kubernetesclusters"],
                    "operations": ["CREATE", "UPDATE"], "scope": "Namespaced",
                },
                {
                    "apiGroups": ["kubeonkube.clay.io"], "apiVersions": ["v1alpha1"], "resources": ["clusteroperations"],
                    "operations": ["CREATE", "UPDATE"], "scope": "Cluster",
                },
            ],
            "matchConditions": conditions(options),
        }],
    })
}

/// The operator's own writes, and changes of labels or finalizers, go by: nothing is to be judged about them, and a
/// webhook that is away must not keep an object from being removed.
fn conditions(options: &InstallOptions) -> Value {
    let operators = cel_list(&options.operator_users());
    let now = operation_annotation("object");
    let before = operation_annotation("oldObject");
    json!([
        {"name": "not-by-the-operator", "expression": format!("!(request.userInfo.username in {operators})")},
        {
            "name": "spec-or-operation-changes",
            "expression": format!(
                "request.operation == 'CREATE' || object.?spec != oldObject.?spec || {now} != {before}"
            ),
        },
    ])
}
