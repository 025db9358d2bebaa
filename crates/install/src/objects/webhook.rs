//! The registration of the webhook: the requests that the API server sends to it.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kubeon_api::labels::{OPERATION, REQUESTED_BY};

use super::metadata::{metadata, texts};
use crate::policies::cel::{annotation, by_the_operator};
use crate::{InstallOptions, names};

/// The `ValidatingWebhookConfiguration`. It has no `caBundle`: the leading operator sets it and keeps it up to date.
#[must_use]
pub fn configuration(options: &InstallOptions) -> ValidatingWebhookConfiguration {
    configuration_with(options, service(options, names::WEBHOOK_PATH))
}

/// The `MutatingWebhookConfiguration`, which records who asked for an operation. It has no `caBundle`, either.
#[must_use]
pub fn requester_configuration(options: &InstallOptions) -> MutatingWebhookConfiguration {
    requester_configuration_with(options, service(options, names::REQUESTER_PATH))
}

fn service(options: &InstallOptions, path: &str) -> WebhookClientConfig {
    let service = ServiceReference {
        name: names::WEBHOOK_SERVICE.to_owned(),
        namespace: options.namespace.clone(),
        path: Some(path.to_owned()),
        port: Some(443),
    };
    WebhookClientConfig { service: Some(service), ..WebhookClientConfig::default() }
}

/// [`configuration`] with another `clientConfig`: an URL and its authorities for a webhook outside of the cluster.
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
            rules: Some(rules()),
            match_conditions: Some(conditions(options, &[])),
            ..ValidatingWebhook::default()
        }]),
    }
}

/// [`requester_configuration`] with another `clientConfig`.
#[must_use]
pub fn requester_configuration_with(
    options: &InstallOptions,
    client: WebhookClientConfig,
) -> MutatingWebhookConfiguration {
    MutatingWebhookConfiguration {
        metadata: metadata("", names::WEBHOOK_CONFIGURATION),
        webhooks: Some(vec![MutatingWebhook {
            name: "requester.kubeon.io".to_owned(),
            admission_review_versions: texts(&["v1"]),
            client_config: client,
            failure_policy: Some("Fail".to_owned()),
            match_policy: Some("Equivalent".to_owned()),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(5),
            rules: Some(rules()),
            match_conditions: Some(conditions(options, &[REQUESTED_BY])),
            ..MutatingWebhook::default()
        }]),
    }
}

fn rules() -> Vec<RuleWithOperations> {
    vec![
        writes("ecs.yun.com", "v1", "kubernetesclusters", "Namespaced"),
        writes("kubeonkube.clay.io", "v1alpha1", "clusteroperations", "Cluster"),
    ]
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
/// must not prevent the removal of an object. `annotations`: their changes are not excluded.
fn conditions(options: &InstallOptions, annotations: &[&str]) -> Vec<MatchCondition> {
    let condition = |name: &str, expression| MatchCondition { name: name.to_owned(), expression };
    let changes = [OPERATION].iter().chain(annotations);
    let changes =
        changes.map(|name| format!("{} != {}", annotation("object", name), annotation("oldObject", name)));
    let changes: Vec<String> = ["request.operation == 'CREATE'", "object.?spec != oldObject.?spec"]
        .map(str::to_owned)
        .into_iter()
        .chain(changes)
        .collect();
    vec![
        condition("not-by-the-operator", format!("!({})", by_the_operator(options))),
        condition("spec-or-operation-changes", changes.join(" || ")),
    ]
}
