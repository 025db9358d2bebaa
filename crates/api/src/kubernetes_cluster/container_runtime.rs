//! How the container runtime of every host reaches registries: mirrors, a proxy, and further certificate authorities.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::unset;
use crate::addresses::{CaBundle, HttpUrl, NoProxy, Registry};

/// How the container runtime reaches registries. The images of the cluster itself come from the bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRuntime {
    /// Mirrors of registries, by the registry, such as docker.io. The mirrors are asked in order, then the registry.
    #[serde(default, deserialize_with = "unset::when_null", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "mirrors")]
    pub registry_mirrors: BTreeMap<Registry, Vec<HttpUrl>>,
    /// The proxy for http, without a password: any user of a host can read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_proxy: Option<HttpUrl>,
    /// The proxy for https. Default: httpProxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub https_proxy: Option<HttpUrl>,
    /// Addresses, networks and DNS suffixes that are reached without the proxy, besides the host itself and the networks of
    /// the cluster; at most 100.
    #[serde(default, deserialize_with = "unset::when_null", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub no_proxy: Vec<NoProxy>,
    /// Further certificate authorities of registries, as PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<CaBundle>,
}

impl ContainerRuntime {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// At most 32 registries with at most 8 mirrors each.
fn mirrors(generator: &mut SchemaGenerator) -> Schema {
    let (registry, mirror) = (Registry::json_schema(generator), HttpUrl::json_schema(generator));
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": { "type": "array", "minItems": 1, "maxItems": 8, "items": mirror },
        "propertyNames": registry
    })
}
