//! References to objects of the meta cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;

/// A reference to a ConfigMap, a Secret or a Job. A reference without a name is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = rules::of_reference)]
pub struct DataRef {
    /// Its namespace.
    #[schemars(length(max = 63), regex(pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 253), regex(pattern = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"))]
    pub name: String,
}

impl DataRef {
    /// A reference.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Whether the reference is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.name.is_empty()
    }
}

impl std::fmt::Display for DataRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},{}", self.namespace, self.name)
    }
}
