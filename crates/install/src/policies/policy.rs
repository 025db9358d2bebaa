//! A `ValidatingAdmissionPolicy` as data.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ParamKind, ParamRef, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
    Variable,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::cel::{by_the_operator, cel_list};
use crate::InstallOptions;
use crate::objects::metadata::{metadata, texts};

/// The users of the garbage collector: with an account of its own, as in kubeadm's and kubeon's clusters, and without. It deletes
/// the operations of a deleted `Cluster`, and removes its own finalizers.
const GARBAGE_COLLECTOR: [&str; 2] =
    ["system:serviceaccount:kube-system:generic-garbage-collector", "system:kube-controller-manager"];

/// A policy and its binding.
pub(super) struct AdmissionPolicy {
    pub(super) name: &'static str,
    /// Group, version and resources that it matches.
    pub(super) resource_rules: Vec<(&'static str, &'static str, &'static [&'static str])>,
    pub(super) operations: &'static [&'static str],
    /// Whether it is evaluated once for each object of another kind, as `params`.
    pub(super) parameters: Option<PolicyParameters>,
    /// Named conditions; the policy applies only when all of them hold.
    pub(super) match_conditions: Vec<(&'static str, String)>,
    /// Named expressions that later ones use as `variables.NAME`.
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) validations: Vec<Validation>,
}

/// The objects for each of which a policy is evaluated. Without one the policy allows everything.
pub(super) struct PolicyParameters {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    /// The namespaces whose requests are not checked.
    pub(super) except_namespaces: &'static [&'static str],
}

impl PolicyParameters {
    fn kind(&self) -> ParamKind {
        ParamKind { api_version: Some(self.api_version.to_owned()), kind: Some(self.kind.to_owned()) }
    }

    /// All objects of the kind.
    fn all() -> ParamRef {
        ParamRef {
            selector: Some(LabelSelector::default()),
            parameter_not_found_action: Some("Allow".to_owned()),
            ..ParamRef::default()
        }
    }

    fn matched_namespaces(&self) -> MatchResources {
        let other = LabelSelectorRequirement {
            key: "kubernetes.io/metadata.name".to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(texts(self.except_namespaces)),
        };
        let selector = LabelSelector { match_expressions: Some(vec![other]), ..LabelSelector::default() };
        MatchResources { namespace_selector: Some(selector), ..MatchResources::default() }
    }
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
                param_kind: self.parameters.as_ref().map(PolicyParameters::kind),
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
                param_ref: self.parameters.as_ref().map(|_| PolicyParameters::all()),
                match_resources: self.parameters.as_ref().map(PolicyParameters::matched_namespaces),
            },
        }
    }
}

/// The policy does not apply to the operator.
pub(super) fn not_the_operator(options: &InstallOptions) -> (&'static str, String) {
    ("not-by-the-operator", format!("!({})", by_the_operator(options)))
}

/// The policy does not apply to the garbage collector.
pub(super) fn not_the_garbage_collector() -> (&'static str, String) {
    let users = cel_list(&GARBAGE_COLLECTOR);
    ("not-by-the-garbage-collector", format!("!(request.userInfo.username in {users})"))
}
