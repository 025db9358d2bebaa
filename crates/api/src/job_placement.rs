//! Where and with which limits the pods of operations run: what the owner of the meta cluster decides for all of them, and
//! what a cluster declares for its own.

use std::collections::BTreeMap;
use std::str::FromStr;

use k8s_openapi::api::core::v1::{LocalObjectReference, ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::labels::{LabelKey, LabelValue};
use crate::words::words;

/// Fields of the pods of Jobs, named as in Kubernetes. What is absent is left to Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct JobPlacement {
    /// Requests and limits of the container, unless the operation has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Labels that a node must have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods tolerate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// The `PriorityClass` of the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Secrets in the namespace of the Job with which its images are pulled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
}

impl JobPlacement {
    /// Whether everything is left to Kubernetes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Parses JSON. A field that is not known is an error, because its pods would run elsewhere than intended.
impl FromStr for JobPlacement {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().is_empty() { Ok(Self::default()) } else { serde_json::from_str(text) }
    }
}

/// Where and with which limits the pods of the operations of one cluster run, beside what the installation says. There is no
/// priority class, whose pods may displace those of others, and no pull secret: the owner of the meta cluster decides which
/// images run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = refuse_taints_of_kubernetes)]
pub struct ClusterJobPlacement {
    /// Labels that a node must have, at most 16. Labels of the installation stay and cannot get another value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "node_selector")]
    pub node_selector: BTreeMap<LabelKey, LabelValue>,
    /// Taints that the pods tolerate, at most 16, beside those of the installation. Taints of Kubernetes itself are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub tolerations: Vec<JobToleration>,
    /// Requests and limits of the container. A ClusterOperation may have its own. Default: those of the installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<JobResources>,
}

/// A taint that pods tolerate, as in Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobToleration {
    /// The key of the taint.
    pub key: LabelKey,
    /// How the value is compared. Default: Equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<TolerationOperator>,
    /// The value of the taint, for Equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<LabelValue>,
    /// The effect of the taint. Default: every effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
}

words! {
    /// How a toleration compares the value of a taint.
    TolerationOperator {
        /// Any value.
        Exists = "Exists",
        /// The same value.
        Equal = "Equal",
    }

    /// What a taint does to pods that do not tolerate it.
    TaintEffect {
        /// They do not start on the node.
        NoSchedule = "NoSchedule",
        /// They start elsewhere if they can.
        PreferNoSchedule = "PreferNoSchedule",
        /// They do not start on the node, and those that run there end.
        NoExecute = "NoExecute",
    }
}

/// Requests and limits of a container, by the names of Kubernetes, such as `memory: 512Mi`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobResources {
    /// What a node must have free, at most 8 entries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub requests: BTreeMap<String, Quantity>,
    /// What the container gets at most, at most 8 entries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub limits: BTreeMap<String, Quantity>,
}

impl JobToleration {
    /// Whether it is for a taint of Kubernetes itself, which keeps pods away from control planes and broken nodes.
    #[must_use]
    pub fn is_for_kubernetes(&self) -> bool {
        ["kubernetes.io/", "k8s.io/"].iter().any(|domain| self.key.as_str().contains(domain))
    }
}

impl From<&JobToleration> for Toleration {
    fn from(own: &JobToleration) -> Self {
        Self {
            key: Some(own.key.to_string()),
            operator: own.operator.map(|operator| operator.as_str().to_owned()),
            value: own.value.as_ref().map(ToString::to_string),
            effect: own.effect.map(|effect| effect.as_str().to_owned()),
            toleration_seconds: None,
        }
    }
}

/// The rule of [`JobToleration::is_for_kubernetes`] for API servers.
fn refuse_taints_of_kubernetes(schema: &mut Schema) {
    let rule = json!({
        "rule": "!has(self.tolerations) || \
                 self.tolerations.all(t, !t.key.contains('kubernetes.io/') && !t.key.contains('k8s.io/'))",
        "message": "taints of Kubernetes itself keep pods away from control planes and broken nodes; only the installation \
                    may tolerate them (--job-placement)",
        "fieldPath": ".tolerations",
    });
    schema.insert("x-kubernetes-validations".to_owned(), json!([rule]));
}

fn node_selector(generator: &mut SchemaGenerator) -> Schema {
    let (key, value) = (LabelKey::json_schema(generator), LabelValue::json_schema(generator));
    // API servers ignore propertyNames; editors and the reader use it.
    json_schema!({"type": "object", "maxProperties": 16, "additionalProperties": value, "propertyNames": key})
}

fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 8,
        "additionalProperties": {"x-kubernetes-int-or-string": true}
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_of_kubernetes_are_known_by_their_domain() {
        for (key, is_for_kubernetes) in [
            ("node-role.kubernetes.io/control-plane", true),
            ("node.kubernetes.io/not-ready", true),
            ("example.k8s.io/x", true),
            ("dedicated", false),
            ("example.com/kubernetes.io", false),
        ] {
            let toleration = JobToleration {
                key: key.parse().unwrap(),
                operator: Some(TolerationOperator::Exists),
                value: None,
                effect: None,
            };
            assert_eq!(toleration.is_for_kubernetes(), is_for_kubernetes, "{key}");
        }
    }

    #[test]
    fn reads_the_fields_of_kubernetes_and_refuses_others() {
        let text = r#"{"nodeSelector":{"disk":"ssd"},"imagePullSecrets":[{"name":"registry"}],"priorityClassName":"high"}"#;
        let placement: JobPlacement = text.parse().unwrap();
        assert_eq!(placement.node_selector["disk"], "ssd");
        assert_eq!(placement.image_pull_secrets[0].name, "registry");
        assert_eq!(serde_json::to_string(&placement).unwrap().parse::<JobPlacement>().unwrap(), placement);
        assert!("".parse::<JobPlacement>().unwrap().is_empty());
        let refused = r#"{"nodeSelectors":{}}"#.parse::<JobPlacement>().unwrap_err().to_string();
        assert!(refused.contains("unknown field `nodeSelectors`"), "{refused}");
    }
}
