//! Who sends a request: a bearer token that the meta cluster knows; or a client certificate or a token of an OpenID Connect
//! provider, whose user the installer named.

use std::collections::{BTreeMap, BTreeSet};

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use k8s_openapi::api::authentication::v1::UserInfo;
use kubeon_api::Secret;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::request_error::RequestError;

/// The longest token in bytes. Tokens of service accounts have about 1 KiB.
const LONGEST_TOKEN: usize = 16 * 1024;

/// Who a caller is, as the API server names him.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct CallerIdentity {
    /// The user.
    pub name: String,
    /// The user's UID.
    pub uid: Option<String>,
    /// The groups.
    pub groups: Vec<String>,
    /// Further attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl From<UserInfo> for CallerIdentity {
    fn from(user: UserInfo) -> Self {
        Self {
            name: user.username.unwrap_or_default(),
            uid: user.uid,
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }
    }
}

/// A caller and how the gateway writes as the caller.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub identity: CallerIdentity,
    pub credentials: CallerCredentials,
}

/// How the gateway writes as the caller.
#[derive(Debug, Clone)]
pub(crate) enum CallerCredentials {
    /// It passes the caller's token on.
    Token(Secret),
    /// It uses its own right to impersonate the caller, who has a client certificate.
    Impersonation,
    /// It uses its own right to impersonate the caller, who has a token of the provider.
    OidcToken(Secret),
}

/// The token of the header `Authorization`. Two headers, another scheme or a long token are refused.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Result<Option<Secret>, RequestError> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let Some(header) = all.next() else { return Ok(None) };
    let refused = |text: &str| Err(RequestError::unauthorized(text));
    if all.next().is_some() {
        return refused("the request has two headers Authorization");
    }
    let text = HeaderValue::to_str(header).unwrap_or_default();
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => match token.trim() {
            "" => refused("the bearer token is empty"),
            token if token.len() > LONGEST_TOKEN => refused("the bearer token is too long"),
            token => Ok(Some(Secret::new(token))),
        },
        _ => refused("the header Authorization must have the form: Bearer TOKEN"),
    }
}

/// The identity in a certificate: the common name is the user, the organisations are the groups.
pub(crate) fn named_by(certificate: &[u8]) -> Result<CallerIdentity, RequestError> {
    let unreadable = || RequestError::unauthorized("the client certificate cannot be read");
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| unreadable())?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next().and_then(|name| name.as_str().ok()).unwrap_or_default();
    if name.is_empty() {
        return Err(RequestError::unauthorized("the client certificate has no common name"));
    }
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned);
    Ok(CallerIdentity { name: name.to_owned(), groups: groups.collect(), ..CallerIdentity::default() })
}

/// Users and groups whom the gateway may impersonate. The gateway's own rights have the same names.
#[derive(Debug, Clone, Default)]
pub(crate) struct ImpersonatedCallers {
    pub users: BTreeSet<String>,
    pub groups: BTreeSet<String>,
}

impl ImpersonatedCallers {
    /// The identity with only those groups that may be impersonated.
    pub(crate) fn restrict(&self, mut identity: CallerIdentity) -> Result<CallerIdentity, RequestError> {
        if !self.users.contains(&identity.name) {
            let text = format!(
                "user {} may use neither a client certificate nor a token of a provider here; the installer of the gateway names such users with --impersonate-user",
                identity.name
            );
            return Err(RequestError::forbidden(text));
        }
        identity.groups.retain(|group| self.groups.contains(group));
        Ok(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token_of(values: &[&str]) -> Result<Option<Secret>, RequestError> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        bearer_token(&headers)
    }

    #[test]
    fn only_one_bearer_token_is_accepted() {
        assert_eq!(token_of(&[]), Ok(None));
        assert_eq!(token_of(&["bearer abc"]), Ok(Some(Secret::new("abc"))));
        for bad in [&["Basic YTpi"][..], &["Bearer"], &["Bearer  "], &["Bearer a", "Bearer b"]] {
            assert!(token_of(bad).is_err(), "{bad:?}");
        }
        assert!(token_of(&[&format!("Bearer {}", "x".repeat(LONGEST_TOKEN + 1))]).is_err());
    }

    #[test]
    fn a_certificate_gives_only_the_groups_that_the_installer_named() {
        let allowed =
            ImpersonatedCallers { users: ["alice".to_owned()].into(), groups: ["team-a".to_owned()].into() };
        let with = |name: &str| CallerIdentity {
            name: name.to_owned(),
            groups: vec!["system:masters".to_owned(), "team-a".to_owned()],
            ..CallerIdentity::default()
        };
        assert_eq!(allowed.restrict(with("alice")).unwrap().groups, ["team-a"]);
        assert_eq!(allowed.restrict(with("mallory")).unwrap_err().status, http::StatusCode::FORBIDDEN);
    }
}
