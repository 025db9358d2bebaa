//! The parsers of what callers send, as functions of bytes, for the fuzzer. The routes call the same parsers.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Uri};
use serde_json::{Map, Value};

use crate::caller::{CallerIdentity, bearer_token, named_by};
use crate::oidc::{OidcOptions, accepted_header, has_key, identity, issuer_of, place_of_keys};
pub use crate::request_error::RequestError;
use crate::router::without_slash;
pub use crate::v1::parsers as v1;
pub use crate::v2::parsers as v2;

/// A user and the groups of the user.
pub type UserAndGroups = (String, Vec<String>);

/// The token in headers `Authorization` with these values.
///
/// # Errors
/// When they have another form.
pub fn bearer(values: &[&[u8]]) -> Result<Option<String>, RequestError> {
    let mut headers = HeaderMap::new();
    for value in values.iter().filter_map(|value| HeaderValue::from_bytes(value).ok()) {
        headers.append(AUTHORIZATION, value);
    }
    Ok(bearer_token(&headers)?.map(|token| token.expose().to_owned()))
}

/// What is read of a token of a provider before its signature is checked: the provider, and the name of the key.
#[must_use]
pub fn unchecked_token(token: &str) -> (Option<String>, Option<String>) {
    (issuer_of(token), accepted_header(token).ok().and_then(|header| header.kid))
}

/// The user in the claims of a token of a provider, in JSON.
///
/// # Errors
/// When the claims are no object or name no user; the text is the reason.
pub fn claims(options: &OidcOptions, json: &[u8]) -> Result<UserAndGroups, String> {
    let claims: Map<String, Value> = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    identity(options, &claims).map(user_and_groups)
}

/// Where the keys of a provider are, by its discovery document.
///
/// # Errors
/// When it is no such document, or that of another provider; the text is the reason.
pub fn provider_keys(options: &OidcOptions, document: &str) -> Result<String, String> {
    place_of_keys(document, options.issuer.as_str()).map_err(|error| error.to_string())
}

/// Whether the keys of a provider have a usable one with this name; without a name, a usable only one.
///
/// # Errors
/// When the document is none of keys; the text is the reason.
pub fn provider_key(document: &str, name: Option<&str>) -> Result<bool, String> {
    has_key(document, name).map_err(|error| error.to_string())
}

/// The user in a client certificate, DER.
///
/// # Errors
/// When it cannot be read or names no user.
pub fn certificate(der: &[u8]) -> Result<UserAndGroups, RequestError> {
    named_by(der).map(user_and_groups)
}

fn user_and_groups(identity: CallerIdentity) -> UserAndGroups {
    (identity.name, identity.groups)
}

/// Where a path that ends with a slash leads to.
#[must_use]
pub fn redirect(path: &str) -> Option<String> {
    without_slash(&path.parse::<Uri>().ok()?)
}
