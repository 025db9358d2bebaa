//! Finds the caller of each request.

use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use axum_server::tls::TlsInfo;
use http::request::Parts;
use kubeon_api::Secret;

use crate::answer::answer_of;
use crate::caller::{Caller, CallerCredentials, bearer_token, named_by};
use crate::connections::ClientConnection;
use crate::gateway::Gateway;
use crate::request_error::RequestError;

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let missing = || answer_of(RequestError::unauthorized("the request has no caller"), parts.uri.path());
        parts.extensions.get::<Self>().cloned().ok_or_else(missing)
    }
}

/// Finds the caller of each request. A request without one is refused, also for a path that does not exist, and so is one of a
/// caller who has the most connections.
pub(crate) async fn authenticate(
    State(gateway): State<Gateway>,
    mut request: Request,
    next: Next,
) -> Response {
    let found = match SentCredentials::of(&request) {
        Ok(sent) => sent.caller(&gateway).await,
        Err(error) => Err(error),
    };
    match found.and_then(|caller| with_place(&gateway, &request, caller)) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => answer_of(error, request.uri().path()),
    }
}

/// The caller, whose connection it is from now on.
fn with_place(gateway: &Gateway, request: &Request, caller: Caller) -> Result<Caller, RequestError> {
    if let Some(connection) = request.extensions().get::<ClientConnection>() {
        connection.assign(&gateway.limits, &caller.identity)?;
    }
    Ok(caller)
}

/// What a request brings. A token counts more than a certificate.
enum SentCredentials {
    Token(Secret),
    /// A client certificate, DER. The authority that signed it was checked in the handshake.
    Certificate(Vec<u8>),
}

impl SentCredentials {
    fn of(request: &Request) -> Result<Self, RequestError> {
        if let Some(token) = bearer_token(request.headers())? {
            return Ok(Self::Token(token));
        }
        let tls = request.extensions().get::<std::sync::Arc<TlsInfo>>();
        let certificate = tls.and_then(|info| info.peer_certificates.first().cloned());
        certificate.map(Self::Certificate).ok_or_else(|| {
            RequestError::unauthorized("send a token of the meta cluster: Authorization: Bearer TOKEN")
        })
    }

    async fn caller(self, gateway: &Gateway) -> Result<Caller, RequestError> {
        match self {
            Self::Token(token) if gateway.is_of_provider(&token) => {
                let identity = gateway.oidc_identity(&token).await?;
                Ok(Caller { identity, credentials: CallerCredentials::OidcToken(token) })
            }
            Self::Token(token) => {
                let identity = gateway.tokens.identity(&token).await?;
                Ok(Caller { identity, credentials: CallerCredentials::Token(token) })
            }
            Self::Certificate(certificate) => {
                let identity = gateway.impersonated.restrict(named_by(&certificate)?)?;
                Ok(Caller { identity, credentials: CallerCredentials::Impersonation })
            }
        }
    }
}
