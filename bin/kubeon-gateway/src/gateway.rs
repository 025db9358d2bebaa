//! What every request uses.

use std::ops::Deref;
use std::sync::Arc;

use crate::access::AccessReviews;
use crate::caller::ImpersonatedCallers;
use crate::fleet::Fleet;
use crate::meta_api::MetaApi;
use crate::namespaces::CallerNamespaces;
use crate::tokens::TokenReviews;

/// What every request uses.
#[derive(Clone)]
pub(crate) struct Gateway(Arc<GatewayParts>);

/// The parts of the gateway.
pub(crate) struct GatewayParts {
    pub meta_api: MetaApi,
    pub fleet: Arc<Fleet>,
    pub tokens: TokenReviews,
    pub access: AccessReviews,
    pub impersonated: ImpersonatedCallers,
    pub namespaces: CallerNamespaces,
}

impl Gateway {
    pub(crate) fn new(parts: GatewayParts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for Gateway {
    type Target = GatewayParts;
    fn deref(&self) -> &GatewayParts {
        &self.0
    }
}
