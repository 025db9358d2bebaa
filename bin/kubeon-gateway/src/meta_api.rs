//! Requests to the meta cluster with the identity of a caller.

use futures::AsyncBufRead;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use kube::Client;
use serde::de::DeserializeOwned;

use crate::caller::{Caller, CallerCredentials};
use crate::request_error::RequestError;

/// The field manager of the gateway's writes.
pub(crate) const MANAGER: &str = "kubeon-gateway";

/// A request to the API server, built by `kube::core::Request`.
pub(crate) type MetaRequest = http::Request<Vec<u8>>;

/// The API server of the meta cluster.
#[derive(Clone)]
pub(crate) struct MetaApi {
    /// The gateway's own identity, which may impersonate the callers that the installer named.
    pub own: Client,
    /// No identity: each request brings a caller's token.
    pub without_credentials: Client,
}

impl MetaApi {
    /// Sends a request as the caller.
    ///
    /// # Errors
    /// When the API server refuses it or does not answer.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        caller: &Caller,
        mut request: MetaRequest,
    ) -> Result<T, RequestError> {
        let client = self.client_for(caller, &mut request)?;
        Ok(client.request(request).await?)
    }

    /// As [`MetaApi::send`], for an answer that is read piece by piece.
    pub(crate) async fn stream(
        &self,
        caller: &Caller,
        mut request: MetaRequest,
    ) -> Result<impl AsyncBufRead + use<>, RequestError> {
        let client = self.client_for(caller, &mut request)?;
        Ok(client.request_stream(request).await?)
    }

    fn client_for(&self, caller: &Caller, request: &mut MetaRequest) -> Result<&Client, RequestError> {
        let headers = request.headers_mut();
        match &caller.credentials {
            CallerCredentials::Token(token) => {
                let mut value = header(&format!("Bearer {}", token.expose()))?;
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
                Ok(&self.without_credentials)
            }
            CallerCredentials::Impersonation | CallerCredentials::OidcToken(_) => {
                headers.insert(HeaderName::from_static("impersonate-user"), header(&caller.identity.name)?);
                for group in &caller.identity.groups {
                    headers.append(HeaderName::from_static("impersonate-group"), header(group)?);
                }
                Ok(&self.own)
            }
        }
    }
}

fn header(text: &str) -> Result<HeaderValue, RequestError> {
    HeaderValue::from_str(text)
        .map_err(|_| RequestError::unauthorized("the credentials contain characters that no header may have"))
}
