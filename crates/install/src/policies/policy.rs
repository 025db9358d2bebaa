//! A `ValidatingAdmissionPolicy` as data.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
    Variable,
};

use super::cel::by_the_operator;
use crate::InstallOptions;
use crate::objects::metadata::{metadata, texts};

/// A policy and its binding.
pub(super) struct AdmissionPolicy {
    pub(super) name: &'static str,
    /// Group, version and resources that it matches.
    pub(super) resource_rules: Vec<(&'static str, &'static str, &'static [&'static str])>,
    pub(super) operations: &'static [&'static str],
    /// Named conditions; the policy applies only when all of them hold.
    pub(super) match_conditions: Vec<(&'static str, String)>,
    /// Named expressions that later ones use as `variables.NAME`.
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) validations: Vec<Validation>,
}

pub(super) struct Validation {
    /// CEL that must be true.
    pub(super) expression: String,
    /// CEL that makes the message: the field, then the reason.
    pub(super) message: String,
    /// `Forbidden` when the user is refused, `Invalid` when the content is.
    pub(super) reason: &'static str,
}

impl Validation {
    fn object(&self) -> k8s_openapi::api::admissionregistration::v1::Validation {
        k8s_openapi::api::admissionregistration::v1::Validation {
            expression: self.expression.clone(),
            message_expression: Some(self.message.clone()),
            reason: Some(self.reason.to_owned()),
            message: None,
        }
    }
}

impl AdmissionPolicy {
    pub(super) fn object(&self) -> ValidatingAdmissionPolicy {
        let rule = |(group, version, resources): &(&str, &str, &[&str])| NamedRuleWithOperations {
            api_groups: Some(texts(&[group])),
            api_versions: Some(texts(&[version])),
            resources: Some(texts(resources)),
            operations: Some(texts(self.operations)),
            ..NamedRuleWithOperations::default()
        };
        let condition = |(name, expression): &(&str, String)| MatchCondition {
            name: (*name).to_owned(),
            expression: expression.clone(),
        };
        let variable = |(name, expression): &(&str, String)| Variable {
            name: (*name).to_owned(),
            expression: expression.clone(),
        };
        let conditions: Vec<_> = self.match_conditions.iter().map(condition).collect();
        let variables: Vec<_> = self.variables.iter().map(variable).collect();
        ValidatingAdmissionPolicy {
            metadata: metadata("", self.name),
            spec: Some(ValidatingAdmissionPolicySpec {
                failure_policy: Some("Fail".to_owned()),
                match_constraints: Some(MatchResources {
                    resource_rules: Some(self.resource_rules.iter().map(rule).collect()),
                    ..MatchResources::default()
                }),
                validations: Some(self.validations.iter().map(Validation::object).collect()),
                match_conditions: Some(conditions).filter(|conditions| !conditions.is_empty()),
                variables: Some(variables).filter(|variables| !variables.is_empty()),
                ..ValidatingAdmissionPolicySpec::default()
            }),
            status: None,
        }
    }

    pub(super) fn binding(&self) -> ValidatingAdmissionPolicyBinding {
        ValidatingAdmissionPolicyBinding {
            metadata: metadata("", self.name),
            spec: ValidatingAdmissionPolicyBindingSpec {
                policy_name: self.name.to_owned(),
                validation_actions: texts(&["Deny"]),
                ..ValidatingAdmissionPolicyBindingSpec::default()
            },
        }
    }
}

/// The policy does not apply to the operator.
pub(super) fn not_the_operator(options: &InstallOptions) -> (&'static str, String) {
    ("not-by-the-operator", format!("!({})", by_the_operator(options)))
}
