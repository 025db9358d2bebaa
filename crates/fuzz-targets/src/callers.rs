//! What callers of the REST server send.

use std::net::Ipv4Addr;

use kubeon_api::HostAddress;
use kubeon_gateway::OidcOptions;
use kubeon_gateway::parsers::{self, RequestError, v1, v2};

/// The provider of the tokens.
const ISSUER: &str = "https://login.example.org";
/// The longest token in bytes.
const LONGEST_TOKEN: usize = 16 << 10;
/// The namespace of the path.
const NAMESPACE: &str = "team-a";
/// The UID of the object that a patch changes.
const UID: &str = "4f6b2d0e-1c7a-4e0b-9d3b-1f8f5d1f0a11";

/// Every route with a query accepts it or names what is wrong. The value of a page leads to the same place again, and a path
/// with a slash at its end leads to a path on this server.
pub(crate) fn rest_query(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    v2::query(text).iter().for_each(is_refusal);
    match v2::next_page(text) {
        Ok(next) => assert_eq!(next.as_deref(), Some(text)),
        Err(error) => is_refusal(&error),
    }
    if let Some(to) = parsers::redirect(text) {
        let path = to.split('?').next().unwrap();
        assert!(path.starts_with('/') && !path.ends_with('/'), "{to}");
        assert!(!to.starts_with("//") && !to.starts_with("/\\"), "{to} is on another server");
    }
}

/// Every body is read or refused. A declared object is of its kind and in the namespace of the path, a patch is of the object
/// that was seen, and a request that adds workers removes none.
pub(crate) fn rest_body(bytes: &[u8]) {
    let objects =
        [("KubernetesCluster", v2::cluster(bytes, NAMESPACE)), ("ClusterOperation", v2::operation(bytes))];
    for (kind, object) in objects {
        match object {
            Ok(object) => {
                assert_eq!(object["kind"], kind);
                let is_cluster = kind == "KubernetesCluster";
                assert!(!is_cluster || object["metadata"]["namespace"] == NAMESPACE, "{object}");
            }
            Err(error) => is_refusal(&error),
        }
    }
    match v2::patch("application/merge-patch+json", bytes, UID) {
        Ok(patch) => assert_eq!(patch["metadata"]["uid"], UID),
        Err(error) => is_refusal(&error),
    }
    match v1::callback(bytes) {
        Ok(body) => assert_eq!(v1::callback(&serde_json::to_vec(&body).unwrap()), Ok(body)),
        Err(error) => is_refusal(&error),
    }
    let workers = [2, 3].map(|last| HostAddress::from(Ipv4Addr::new(10, 0, 0, last)));
    for adds in [true, false] {
        match v1::workers_after(&workers, bytes, adds) {
            Ok(None) => {}
            Ok(Some(after)) if adds => {
                assert!(workers.iter().all(|worker| after.contains(worker)), "{after:?}")
            }
            Ok(Some(after)) => {
                assert!(
                    !after.is_empty() && after.iter().all(|worker| workers.contains(worker)),
                    "{after:?}"
                );
            }
            Err(error) => is_refusal(&error),
        }
    }
}

/// Every header, token and certificate gives a caller or is refused. The names of a provider's callers have its prefixes, so no
/// token makes its owner somebody of the meta cluster.
pub(crate) fn rest_credentials(bytes: &[u8]) {
    let values: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    match parsers::bearer(&values) {
        Ok(token) => {
            assert!(token.is_none_or(|token| !token.is_empty() && token.len() <= LONGEST_TOKEN));
        }
        Err(error) => is_unknown_caller(&error),
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        drop(parsers::unchecked_token(text));
    }
    match parsers::claims(&provider(), bytes) {
        Ok((user, groups)) => {
            assert!(user.strip_prefix(ISSUER).is_some_and(|user| user.starts_with('#') && user.len() > 1));
            assert!(groups.iter().all(|group| group.starts_with("oidc:")), "{groups:?}");
        }
        Err(reason) => assert!(!reason.is_empty()),
    }
    match parsers::certificate(bytes) {
        Ok((user, _)) => assert!(!user.is_empty()),
        Err(error) => is_unknown_caller(&error),
    }
}

/// Documents of a provider are read or refused with a reason.
pub(crate) fn oidc_keys(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let read = [
        parsers::provider_keys(&provider(), text).map(drop),
        parsers::provider_key(text, None).map(drop),
        parsers::provider_key(text, Some("1")).map(drop),
    ];
    assert!(read.iter().all(|read| read.as_ref().err().is_none_or(|reason| !reason.is_empty())), "{read:?}");
}

fn provider() -> OidcOptions {
    OidcOptions {
        issuer: ISSUER.parse().unwrap(),
        client_id: "kubeon".to_owned(),
        username_claim: "sub".to_owned(),
        username_prefix: None,
        groups_claim: Some("groups".to_owned()),
        groups_prefix: "oidc:".to_owned(),
        authorities: None,
    }
}

fn is_refusal(error: &RequestError) {
    assert!(error.status.is_client_error() && !error.detail.is_empty(), "{error:?}");
}

fn is_unknown_caller(error: &RequestError) {
    assert!(error.status.as_u16() == 401 && !error.detail.is_empty(), "{error:?}");
}
