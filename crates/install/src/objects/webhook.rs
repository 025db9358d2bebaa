//! The registration of the webhook: the requests that the API server sends to it.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, RuleWithOperations, ServiceReference, ValidatingWebhook, ValidatingWebhookConfiguration,
    WebhookClientConfig,
};

use super::metadata::{metadata, texts};
use crate::policies::cel::{cel_list, operation_annotation};
use crate::{InstallOptions, names};

/// The `ValidatingWebhookConfiguration`. It has no `caBundle`: the leading operator sets it and keeps it up to date.
#[must_use]
pub fn configuration(options: &InstallOptions) -> ValidatingWebhookConfiguration {
    let service = ServiceReference {
        name: names::WEBHOOK_SERVICE.to_owned(),
        namespace: options.namespace.clone(),
        path: Some(names::WEBHOOK_PATH.to_owned()),
        port: Some(443),
    };
    let client = WebhookClientConfig { service: Some(service), ..WebhookClientConfig::default() };
    configuration_with(options, client)
}

/// The same with another `clientConfig`: an URL and its authorities for a webhook outside of the cluster.
#[must_use]
pub fn configuration_with(
    options: &InstallOptions,
    client: WebhookClientConfig,
) -> ValidatingWebhookConfiguration {
    ValidatingWebhookConfiguration {
        metadata: metadata("", names::WEBHOOK_CONFIGURATION),
        webhooks: Some(vec![ValidatingWebhook {
            name: "validate.ecs.yun.com".to_owned(),
            admission_review_versions: texts(&["v1"]),
            client_config: client,
            failure_policy: Some("Fail".to_owned()),
            match_policy: Some("Equivalent".to_owned()),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(5),
            rules: Some(vec![
                writes("ecs.yun.com", "v1", "kubernetesclusters", "Namespaced"),
                writes("kubeonkube.clay.io", "v1alpha1", "clusteroperations", "Cluster"),
            ]),
            match_conditions: Some(conditions(options)),
            ..ValidatingWebhook::default()
        }]),
    }
}

/// Matches the creation and the change of objects of a kind.
fn writes(group: &str, version: &str, resource: &str, scope: &str) -> RuleWithOperations {
    RuleWithOperations {
        api_groups: Some(texts(&[group])),
        api_versions: Some(texts(&[version])),
        resources: Some(texts(&[resource])),
        operations: Some(texts(&["CREATE", "UPDATE"])),
        scope: Some(scope.to_owned()),
    }
}

/// Excludes writes of the operator, and changes of labels or finalizers: there is nothing to check, and an unavailable webhook
/// must not prevent the removal of an object.
fn conditions(options: &InstallOptions) -> Vec<MatchCondition> {
    let operators = cel_list(&options.operator_users());
    let now = operation_annotation("object");
    let before = operation_annotation("oldObject");
    let condition = |name: &str, expression| MatchCondition { name: name.to_owned(), expression };
    vec![
        condition("not-by-the-operator", format!("!(request.userInfo.username in {operators})")),
        condition(
            "spec-or-operation-changes",
            format!("request.operation == 'CREATE' || object.?spec != oldObject.?spec || {now} != {before}"),
        ),
    ]
}
