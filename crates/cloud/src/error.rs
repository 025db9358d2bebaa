//! Why routes were not changed.

use kubeon_api::{CloudProvider, HostAddress};

/// A failed change of routes.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// A setting is missing or invalid.
    #[error("{0}")]
    Settings(String),
    /// The provider refuses a request.
    #[error("{provider} refuses {action}: {code}: {message}")]
    Refused {
        /// The provider.
        provider: CloudProvider,
        /// The action of its API, such as `CreateRoutes`.
        action: &'static str,
        /// Its code, such as `AuthFailure.SignatureFailure`.
        code: String,
        /// What it says about it.
        message: String,
    },
    /// The provider does not answer, or answers that it cannot serve the request now.
    #[error("{provider} does not serve {action}: {why}")]
    Unavailable {
        /// The provider.
        provider: CloudProvider,
        /// The action of its API.
        action: &'static str,
        /// The reason of the last attempt.
        why: String,
    },
    /// A route table has a route of somebody else to the pods of a node.
    #[error("route table {table} has a foreign route to {destination}, the pods of {node}: remove it first")]
    Foreign {
        /// The route table.
        table: String,
        /// The network of the pods.
        destination: String,
        /// The node.
        node: String,
    },
    /// No instance in the region has the address of a node.
    #[error("no instance in {region} has the address {address}, which is that of a node")]
    NoInstance {
        /// The region.
        region: String,
        /// The address.
        address: HostAddress,
    },
}

impl CloudError {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}
