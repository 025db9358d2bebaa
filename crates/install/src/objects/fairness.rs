//! Priority of requests at a busy API server.

use k8s_openapi::api::flowcontrol::v1::{
    FlowDistinguisherMethod, FlowSchema, FlowSchemaSpec, PolicyRulesWithSubjects,
    PriorityLevelConfigurationReference, ResourcePolicyRule, ServiceAccountSubject, Subject,
};

use super::metadata::{metadata, texts};
use crate::{InstallOptions, names};

/// Lower than the precedence of Kubernetes' own FlowSchemas for leases (200), higher than that of the exempt ones (1).
const PRECEDENCE: i32 = 150;

/// Gives the operator's lease the priority of Kubernetes' own leases, whose FlowSchema covers `kube-system` only, so that many
/// operations at once do not cost the operator its leadership.
#[must_use]
pub(crate) fn leases(options: &InstallOptions) -> FlowSchema {
    let own = options.namespace.as_str();
    let operator = Subject {
        kind: "ServiceAccount".to_owned(),
        service_account: Some(ServiceAccountSubject {
            name: names::OPERATOR.to_owned(),
            namespace: own.to_owned(),
        }),
        ..Subject::default()
    };
    let leases = ResourcePolicyRule {
        api_groups: texts(&["coordination.k8s.io"]),
        resources: texts(&["leases"]),
        verbs: texts(&["create", "get", "patch", "update"]),
        // The roles of the operator limit it to its own namespace.
        namespaces: Some(texts(&["*"])),
        cluster_scope: None,
    };
    FlowSchema {
        metadata: metadata("", "kubeon-leases"),
        spec: Some(FlowSchemaSpec {
            matching_precedence: Some(PRECEDENCE),
            priority_level_configuration: PriorityLevelConfigurationReference {
                name: "leader-election".to_owned(),
            },
            distinguisher_method: Some(FlowDistinguisherMethod { type_: "ByUser".to_owned() }),
            rules: Some(vec![PolicyRulesWithSubjects {
                subjects: vec![operator],
                resource_rules: Some(vec![leases]),
                non_resource_rules: None,
            }]),
        }),
        status: None,
    }
}
