//! A `ValidatingAdmissionPolicy` as data.

use serde_json::{Value, json};

use super::cel::cel_list;
use crate::InstallOptions;
use crate::objects::metadata::metadata;

/// A policy and its binding.
pub(super) struct AdmissionPolicy {
    pub(super) name: &'static str,
    /// Group, version and resources that it matches.
    pub(super) about: Vec<(&'static str, &'static str, &'static [&'static str])>,
    pub(super) operations: &'static [&'static str],
    /// Named conditions; the policy applies only when all of them hold.
    pub(super) only_when: Vec<(&'static str, String)>,
    /// Named expressions that later ones use as `variables.NAME`.
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) validations: Vec<Validation>,
}

pub(super) struct Validation {
    /// What must be true.
    pub(super) expression: String,
    /// CEL that makes the message: the field, then the reason.
    pub(super) message: String,
    /// `Forbidden` when the user is refused, `Invalid` when the content is.
    pub(super) reason: &'static str,
}

impl AdmissionPolicy {
    pub(super) fn object(&self) -> Value {
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

    pub(super) fn binding(&self) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata("", self.name),
            "spec": {"policyName": self.name, "validationActions": ["Deny"]},
        })
    }
}

/// The policy does not apply to the operator.
pub(super) fn not_the_operator(options: &InstallOptions) -> (&'static str, String) {
    (
        "not-by-the-operator",
        format!("!(request.userInfo.username in {})", cel_list(&options.operator_users())),
    )
}
