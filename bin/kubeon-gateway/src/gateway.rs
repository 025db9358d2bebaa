//! What every request uses.

use std::ops::Deref;
use std::sync::Arc;

use kubeon_api::Secret;

use crate::access::AccessReviews;
use crate::caller::{CallerIdentity, ImpersonatedCallers};
use crate::fleet::Fleet;
use crate::limits::CallerLimits;
use crate::meta_api::MetaApi;
use crate::namespaces::CallerNamespaces;
use crate::oidc::OidcTokens;
use crate::request_error::RequestError;
use crate::tokens::TokenReviews;

/// What every request uses.
#[derive(Clone)]
pub(crate) struct Gateway(Arc<GatewayParts>);

/// The parts of the gateway.
pub(crate) struct GatewayParts {
    pub meta_api: MetaApi,
    pub fleet: Arc<Fleet>,
    pub tokens: TokenReviews,
    pub oidc: Option<OidcTokens>,
    pub access: AccessReviews,
    pub impersonated: ImpersonatedCallers,
    pub namespaces: CallerNamespaces,
    pub limits: CallerLimits,
}

impl Gateway {
    pub(crate) fn new(parts: GatewayParts) -> Self {
        Self(Arc::new(parts))
    }

    /// Whether the token says that it is of the OpenID Connect provider.
    pub(crate) fn is_of_provider(&self, token: &Secret) -> bool {
        self.oidc.as_ref().is_some_and(|oidc| oidc.is_of_provider(token))
    }

    /// The user of a token of the provider, with the groups that may be impersonated.
    pub(crate) async fn oidc_identity(&self, token: &Secret) -> Result<CallerIdentity, RequestError> {
        let oidc = self.oidc.as_ref();
        let oidc = oidc.ok_or_else(|| RequestError::unauthorized("no provider of tokens is configured"))?;
        self.impersonated.restrict(oidc.identity(token).await?)
    }
}

impl Deref for Gateway {
    type Target = GatewayParts;
    fn deref(&self) -> &GatewayParts {
        &self.0
    }
}
