//! The data that the rules read in addition to the reviewed object.

use kubeon_api::{HostAddress, Version};

/// A namespaced object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectName {
    /// A name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Not all clusters are known yet, so addresses in use are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operator has not seen all clusters yet; try again in a moment")]
pub struct NotReady;

impl NotReady {
    /// The error category for labels.
    #[must_use]
    pub fn category(&self) -> &'static str {
        "not-ready"
    }
}

/// Reads for the rules. They come from memory: a review must not wait for an API server.
pub trait Lookup: Send + Sync {
    /// The versions that can be installed, oldest first.
    fn versions(&self) -> &[Version];

    /// Another cluster than `asking` that declares a host at `address`.
    ///
    /// # Errors
    /// While not all clusters are known.
    fn holder(&self, address: HostAddress, asking: &ObjectName) -> Result<Option<ObjectName>, NotReady>;

    /// Whether [`Self::holder`] can answer.
    fn is_ready(&self) -> bool;
}
