//! Further command line arguments of the Kubernetes programs.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::unset;

/// Further arguments by program: name without `--`, and value. Arguments that kubeon sets itself are refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtraArgs {
    /// For etcd.
    #[serde(default, deserialize_with = "unset::when_null", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "arguments")]
    pub etcd: BTreeMap<String, String>,
    /// For kube-apiserver.
    #[serde(default, deserialize_with = "unset::when_null", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "arguments")]
    pub kube_apiserver: BTreeMap<String, String>,
    /// For kube-controller-manager.
    #[serde(default, deserialize_with = "unset::when_null", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "arguments")]
    pub kube_controller_manager: BTreeMap<String, String>,
    /// For kube-scheduler.
    #[serde(default, deserialize_with = "unset::when_null", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "arguments")]
    pub kube_scheduler: BTreeMap<String, String>,
    /// For the kubelet of every host.
    #[serde(default, deserialize_with = "unset::when_null", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "arguments")]
    pub kubelet: BTreeMap<String, String>,
}

impl ExtraArgs {
    /// Whether no program has further arguments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// At most 64 arguments of a program; a value has at most 1024 characters.
fn arguments(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": { "type": "string", "maxLength": 1024 }
    })
}
