//! Where and with which limits the pods of operations run: what the owner of the meta cluster decides for all of them.

use std::collections::BTreeMap;
use std::str::FromStr;

use k8s_openapi::api::core::v1::{LocalObjectReference, ResourceRequirements, Toleration};
use serde::{Deserialize, Serialize};

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

#[cfg(test)]
mod tests {
    use super::*;

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
