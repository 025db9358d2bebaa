//! What a change of an object may not do, where the API server itself can tell: `ValidatingAdmissionPolicy`.
//!
//! | policy | what it holds to |
//! |---|---|
//! | `kubeon-commands` | who writes which word into the operation annotation, and from which phase |
//! | `kubeon-deletion-protection` | a protected cluster is not deleted |
//! | `kubeon-derived-operations` | nobody but the operator says that an operation belongs to a `KubernetesCluster` |
//! | `kubeon-references` | who names a Secret or ConfigMap must be allowed to read it |
//! | `kubeon-runner-status` | a runner writes the status of its own operation, and only what is its own there |
//! | `kubeon-runner-secrets` | a runner writes only Secrets and ConfigMaps that were made for its Job |
//!
//! These need no look-up of other objects and no process that is up; what does is the webhook's.

mod commands;
mod references;
mod runner;

use serde_json::{Value, json};

use crate::InstallOptions;
use crate::objects::metadata;

/// Every policy with its binding.
#[must_use]
pub fn objects(options: &InstallOptions) -> Vec<Value> {
    let policies = [
        commands::commands(options),
        commands::deletion_protection(),
        commands::derived(options),
        references::references(options),
        runner::status(),
        runner::secrets(),
    ];
    policies.into_iter().flat_map(|policy| [policy.object(), policy.binding()]).collect()
}

/// A policy before it is an object.
struct Policy {
    name: &'static str,
    /// Group, version and resources that it is about.
    about: Vec<(&'static str, &'static str, &'static [&'static str])>,
    operations: &'static [&'static str],
    /// Named conditions, all of which must hold for the policy to be asked.
    only_when: Vec<(&'static str, String)>,
    /// Named expressions that later ones use as `variables.NAME`.
    variables: Vec<(&'static str, String)>,
    validations: Vec<Validation>,
}

struct Validation {
    /// What must be true.
    expression: String,
    /// CEL that makes the message: the field, then the reason.
    message: String,
    /// `Forbidden` where it is about who, `Invalid` where it is about what.
    reason: &'static str,
}

impl Policy {
    fn object(&self) -> Value {
        let named = |(name, expression): &(&str, String)| json!({"name": name, "expression": expression});
        let mut spec = json!({
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": self.about.iter().map(|(group, version, resources)| json!({
                    "apiGroups": [group], "apiVersions": [version],
                    "resources": resources, "operations": self.operations,
                })).collect::<Vec<_>>(),
            },
            "validations": self.validations.iter().map(|validation| json!({
                "expression": validation.expression,
                "messageExpression": validation.message,
                "reason": validation.reason,
            })).collect::<Vec<_>>(),
        });
        if !self.only_when.is_empty() {
            spec["matchConditions"] = self.only_when.iter().map(named).collect();
        }
        if !self.variables.is_empty() {
            spec["variables"] = self.variables.iter().map(named).collect();
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata("", self.name),
            "spec": spec,
        })
    }

    fn binding(&self) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata("", self.name),
            "spec": {"policyName": self.name, "validationActions": ["Deny"]},
        })
    }
}

/// The operation annotation of `object` or `oldObject`, empty where there is none.
pub(crate) fn operation_annotation(object: &str) -> String {
    annotation(object, kubeon_api::labels::OPERATION)
}

fn annotation(object: &str, name: &str) -> String {
    format!("{object}.metadata.?annotations[?{}].orValue('')", cel_text(name))
}

/// An annotation of what was there before; empty when the object is new.
fn annotation_before(name: &str) -> String {
    format!("oldObject == null ? '' : {}", annotation("oldObject", name))
}

/// A CEL list of texts.
pub(crate) fn cel_list<S: AsRef<str>>(texts: &[S]) -> String {
    format!("[{}]", texts.iter().map(|text| cel_text(text.as_ref())).collect::<Vec<_>>().join(", "))
}

/// A CEL text literal.
fn cel_text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

fn not_the_operator(options: &InstallOptions) -> (&'static str, String) {
    (
        "not-by-the-operator",
        format!("!(request.userInfo.username in {})", cel_list(&options.operator_users())),
    )
}
