//! Callers with a token of an OpenID Connect provider. The flags and their defaults are those of kube-apiserver.

mod keys;
mod signatures;

use std::path::PathBuf;

use anyhow::Context as _;
use jsonwebtoken::dangerous::insecure_decode;
use jsonwebtoken::{Header, Validation, decode, decode_header};
use kubeon_api::{HttpsUrl, Secret};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::caller::CallerIdentity;
use crate::request_error::RequestError;
use keys::ProviderKeys;
pub(crate) use keys::{has_key, place_of_keys};

/// The difference between the clocks of the provider and of the gateway, in seconds.
const LEEWAY: u64 = 10;
/// The prefix that stands for none.
const NO_PREFIX: &str = "-";
/// The claim whose value has no prefix by default.
const EMAIL: &str = "email";

/// A provider and how its tokens name users and groups.
#[derive(Debug, Clone)]
pub struct OidcOptions {
    /// The URL of the provider, as it is in its tokens.
    pub issuer: HttpsUrl,
    /// The audience of tokens for the gateway.
    pub client_id: String,
    /// The claim with the user.
    pub username_claim: String,
    /// The prefix of users; `None` for the issuer and `#`, except for the claim `email`.
    pub username_prefix: Option<String>,
    /// The claim with the groups, if there is one.
    pub groups_claim: Option<String>,
    /// The prefix of groups.
    pub groups_prefix: String,
    /// The authorities of the provider's certificate, PEM; `None` for those of this machine.
    pub authorities: Option<PathBuf>,
}

/// Checks tokens of one provider.
pub(crate) struct OidcTokens {
    options: OidcOptions,
    keys: ProviderKeys,
}

/// The claim that says who issued a token.
#[derive(Deserialize)]
struct Issuer {
    iss: String,
}

impl OidcTokens {
    /// # Errors
    /// When the authorities cannot be read.
    pub(crate) fn new(options: OidcOptions) -> anyhow::Result<Self> {
        signatures::install();
        let read =
            |path: &PathBuf| std::fs::read(path).with_context(|| format!("reading {}", path.display()));
        let authorities = options.authorities.as_ref().map(read).transpose()?;
        let keys = ProviderKeys::new(options.issuer.as_str(), authorities.as_deref())?;
        Ok(Self { options, keys })
    }

    /// Whether the token says that it is of this provider. Nothing is checked yet: [`Self::identity`] does.
    pub(crate) fn is_of_provider(&self, token: &Secret) -> bool {
        issuer_of(token.expose()).is_some_and(|issuer| issuer == self.options.issuer.as_str())
    }

    /// Who the token belongs to.
    ///
    /// # Errors
    /// When it is not valid for the gateway, or the keys of the provider cannot be read.
    pub(crate) async fn identity(&self, token: &Secret) -> Result<CallerIdentity, RequestError> {
        let refused = |error: &dyn std::fmt::Display| {
            RequestError::unauthorized(format!("the token of {} is not valid: {error}", self.options.issuer))
        };
        let header = accepted_header(token.expose()).map_err(|error| refused(&error))?;
        let key = self.keys.key(header.kid.as_deref()).await.map_err(|error| {
            tracing::warn!(error = format!("{error:#}"), "no key for a token");
            refused(&format!("{error:#}"))
        })?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_issuer(&[self.options.issuer.as_str()]);
        validation.set_audience(&[&self.options.client_id]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        let token = decode::<Map<String, Value>>(token.expose(), &key, &validation);
        identity(&self.options, &token.map_err(|error| refused(&error))?.claims)
            .map_err(|error| refused(&error))
    }
}

/// The provider that a token names. Nothing is checked.
pub(crate) fn issuer_of(token: &str) -> Option<String> {
    insecure_decode::<Issuer>(token).ok().map(|read| read.claims.iss)
}

/// The header of a token, if its algorithm is accepted. The signature is not checked.
pub(crate) fn accepted_header(token: &str) -> Result<Header, String> {
    let header = decode_header(token).map_err(|error| error.to_string())?;
    if signatures::ALGORITHMS.contains(&header.alg) {
        return Ok(header);
    }
    Err(format!("algorithm {:?} is not accepted", header.alg))
}

/// The user and the groups in the claims of a token whose signature was checked.
pub(crate) fn identity(options: &OidcOptions, claims: &Map<String, Value>) -> Result<CallerIdentity, String> {
    let claim = &options.username_claim;
    let name = claims.get(claim).and_then(Value::as_str).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| format!("it has no claim {claim}"))?;
    if claim == EMAIL && claims.get("email_verified").is_some_and(|verified| verified != true) {
        return Err("its email address is not verified".to_owned());
    }
    let prefix = match options.username_prefix.as_deref() {
        Some(NO_PREFIX) => String::new(),
        Some(prefix) => prefix.to_owned(),
        None if claim == EMAIL => String::new(),
        None => format!("{}#", options.issuer),
    };
    let named = match options.groups_claim.as_ref().and_then(|claim| claims.get(claim)) {
        None => Vec::new(),
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        Some(_) => return Err("its groups are neither a name nor a list of names".to_owned()),
    };
    let groups = named.iter().map(|group| format!("{}{group}", options.groups_prefix)).collect();
    Ok(CallerIdentity { name: format!("{prefix}{name}"), groups, ..CallerIdentity::default() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn options(claim: &str, prefix: Option<&str>) -> OidcOptions {
        OidcOptions {
            issuer: "https://login.example.org".parse().unwrap(),
            client_id: "kubeon".to_owned(),
            username_claim: claim.to_owned(),
            username_prefix: prefix.map(str::to_owned),
            groups_claim: Some("groups".to_owned()),
            groups_prefix: "oidc:".to_owned(),
            authorities: None,
        }
    }

    fn named(options: &OidcOptions, claims: Value) -> Result<(String, Vec<String>), String> {
        identity(options, claims.as_object().unwrap()).map(|found| (found.name, found.groups))
    }

    #[test]
    fn names_have_the_prefixes_of_kube_apiserver() {
        let of =
            |claim, prefix| named(&options(claim, prefix), json!({"sub": "1", "email": "a@b.c"})).unwrap().0;
        assert_eq!(of("sub", None), "https://login.example.org#1");
        assert_eq!(of("sub", Some("oidc:")), "oidc:1");
        assert_eq!(of("sub", Some("-")), "1");
        assert_eq!(of("email", None), "a@b.c");
        let groups = |value| named(&options("sub", Some("-")), json!({"sub": "1", "groups": value}));
        assert_eq!(groups(json!(["a", "b"])).unwrap().1, ["oidc:a", "oidc:b"]);
        assert_eq!(groups(json!("a")).unwrap().1, ["oidc:a"]);
        assert!(groups(json!(7)).is_err());
    }

    #[test]
    fn a_token_without_a_user_or_with_an_unverified_address_is_refused() {
        assert_eq!(
            named(&options("sub", None), json!({"email": "a@b.c"})).unwrap_err(),
            "it has no claim sub"
        );
        let unverified = json!({"email": "a@b.c", "email_verified": false});
        assert_eq!(
            named(&options("email", None), unverified).unwrap_err(),
            "its email address is not verified"
        );
        assert!(named(&options("email", None), json!({"email": "a@b.c", "email_verified": true})).is_ok());
    }
}
