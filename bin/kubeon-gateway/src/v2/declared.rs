//! Objects in the bodies of requests.

use axum::body::Bytes;
use http::{HeaderMap, StatusCode, header};
use kube::Resource;
use serde_json::{Value, json};

use crate::meta_api::MetaRequest;
use crate::request_error::RequestError;

/// The object in a body, complete. `namespace` is that of the path, if the kind has one.
///
/// # Errors
/// When the body is no object of this kind, or names another namespace.
pub(super) fn declared<K: Resource<DynamicType = ()>>(
    body: &Bytes,
    namespace: Option<&str>,
) -> Result<Value, RequestError> {
    let (version, kind) = (K::api_version(&()), K::kind(&()));
    let mut object: Value = serde_json::from_slice(body)
        .map_err(|error| RequestError::bad(format!("the body is not a {kind} in JSON: {error}")))?;
    let Some(fields) = object.as_object_mut() else {
        return Err(RequestError::bad(format!("the body is not a JSON object; send a {kind}")));
    };
    for (field, expected) in [("apiVersion", &version), ("kind", &kind)] {
        match fields.entry(field).or_insert_with(|| json!(expected)) {
            Value::String(given) if given == expected.as_ref() => {}
            other => {
                return Err(RequestError::bad(format!(
                    "{field}: it is {other}, but it must be {expected:?}"
                )));
            }
        }
    }
    let Value::Object(metadata) = fields.entry("metadata").or_insert_with(|| json!({})) else {
        return Err(RequestError::bad("metadata: it is not an object"));
    };
    let Some(namespace) = namespace else { return Ok(object) };
    match metadata.entry("namespace").or_insert_with(|| json!(namespace)) {
        Value::String(given) if given == namespace => Ok(object),
        other => {
            Err(RequestError::bad(format!("metadata.namespace: it is {other}, the path says {namespace:?}")))
        }
    }
}

/// The merge patch in a body.
///
/// # Errors
/// When the body is of another type, or is no JSON.
pub(super) fn merge_patch(headers: &HeaderMap, body: &Bytes) -> Result<Value, RequestError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !["application/merge-patch+json", "application/json"].contains(&kind) {
        let text = format!("a patch must be of the type application/merge-patch+json, not {kind:?}");
        return Err(RequestError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    serde_json::from_slice(body)
        .map_err(|error| RequestError::bad(format!("the body is not a patch in JSON: {error}")))
}

/// The same request, of which the API server refuses fields that do not exist.
///
/// # Errors
/// When its path is invalid.
pub(super) fn strict(mut request: MetaRequest) -> Result<MetaRequest, RequestError> {
    let separator = if request.uri().query().is_some_and(|query| !query.is_empty()) { '&' } else { '?' };
    let uri = request.uri().to_string();
    let uri = format!("{}{separator}fieldValidation=Strict", uri.trim_end_matches(['&', '?']));
    *request.uri_mut() =
        uri.parse().map_err(|error| RequestError::bad(format!("the path is invalid: {error}")))?;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use kubeon_api::{ClusterOperation, KubernetesCluster};

    use super::*;

    fn refused(body: &str) -> String {
        let body = Bytes::copy_from_slice(body.as_bytes());
        declared::<KubernetesCluster>(&body, Some("team-a")).unwrap_err().detail
    }

    #[test]
    fn a_body_is_completed_and_another_namespace_is_refused() {
        let body = Bytes::from_static(br#"{"metadata":{"name":"shop"},"spec":{}}"#);
        let object = declared::<KubernetesCluster>(&body, Some("team-a")).unwrap();
        assert_eq!(object["metadata"]["namespace"], "team-a");
        assert_eq!(
            (object["kind"].as_str(), object["apiVersion"].as_str()),
            (Some("KubernetesCluster"), Some("ecs.yun.com/v1"))
        );
        assert!(refused(r#"{"metadata":{"namespace":"team-b"}}"#).contains("metadata.namespace"));
        assert!(refused(r#"{"kind":"Secret"}"#).starts_with("kind:"));
        assert!(
            refused("[]").contains("not a JSON object") && refused("").contains("not a KubernetesCluster")
        );
        let operation = declared::<ClusterOperation>(&body, None).unwrap();
        assert_eq!(
            (&operation["kind"], operation["metadata"].get("namespace")),
            (&json!("ClusterOperation"), None)
        );
    }

    #[test]
    fn fields_that_do_not_exist_are_refused_by_the_api_server() {
        let uri = |text: &str| {
            strict(http::Request::get(text).body(Vec::new()).unwrap()).unwrap().uri().to_string()
        };
        assert_eq!(uri("/a?"), "/a?fieldValidation=Strict");
        assert_eq!(uri("/a?&b=c"), "/a?&b=c&fieldValidation=Strict");
    }
}
