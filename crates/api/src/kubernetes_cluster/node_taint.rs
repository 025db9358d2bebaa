//! Taints of nodes.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::unset;
use crate::job_placement::TaintEffect;
use crate::labels::{LabelKey, LabelValue};
use crate::schema::or_empty;

/// A taint of a node, as in Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTaint {
    /// The key of the taint.
    pub key: LabelKey,
    /// The value of the taint.
    #[serde(default, deserialize_with = "unset::when_empty", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "or_empty::<LabelValue>")]
    pub value: Option<LabelValue>,
    /// What it does to pods that do not tolerate it.
    pub effect: TaintEffect,
}

/// Prefixes of the taints that Kubernetes and cloud controllers set and remove.
const OF_KUBERNETES: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];
/// Taints of masters, which kubeon sets where there are workers.
const OF_MASTERS: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

impl NodeTaint {
    /// Key and effect, such as `dedicated:NoSchedule`: a node has one taint with both.
    #[must_use]
    pub fn identity(&self) -> String {
        format!("{}:{}", self.key, self.effect)
    }

    /// Why a declaration cannot have the taint; `None` if it can.
    #[must_use]
    pub fn reserved(&self) -> Option<&'static str> {
        let key = self.key.as_str();
        if OF_MASTERS.contains(&key) {
            return Some("is set by kubeon: masters have it where there are workers");
        }
        let is_own = OF_KUBERNETES.iter().any(|prefix| key.starts_with(prefix));
        is_own.then_some("is set and removed by Kubernetes itself, by the state of the node")
    }
}

impl fmt::Display for NodeTaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}:{}", self.key, self.effect),
            None => f.write_str(&self.identity()),
        }
    }
}

/// At most 16 taints.
pub(super) fn node_taints(generator: &mut SchemaGenerator) -> Schema {
    let taint = NodeTaint::json_schema(generator);
    schemars::json_schema!({ "type": "array", "maxItems": 16, "items": taint })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn taint(key: &str, value: &str) -> NodeTaint {
        serde_json::from_value(json!({"key": key, "value": value, "effect": "NoSchedule"})).unwrap()
    }

    #[test]
    fn a_taint_is_written_as_kubectl_does() {
        assert_eq!(taint("dedicated", "gpu").to_string(), "dedicated=gpu:NoSchedule");
        assert_eq!(taint("dedicated", "").to_string(), "dedicated:NoSchedule");
        assert_eq!(taint("dedicated", "gpu").identity(), taint("dedicated", "").identity());
    }

    #[test]
    fn taints_of_others_are_reserved() {
        for (key, reserved) in [
            ("node-role.kubernetes.io/control-plane", true),
            ("node.kubernetes.io/unreachable", true),
            ("node.cloudprovider.kubernetes.io/uninitialized", true),
            ("node-role.kubernetes.io/ingress", false),
            ("dedicated", false),
        ] {
            assert_eq!(taint(key, "").reserved().is_some(), reserved, "{key}");
        }
    }
}
