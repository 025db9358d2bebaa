//! The parsers of queries and bodies of version 2, as functions of bytes.

use axum::body::Bytes;
use http::{HeaderMap, HeaderValue, Uri, header};
use kubeon_api::{ClusterOperation, KubernetesCluster};
use serde_json::Value;

use super::declared::{declared, merge_patch};
use super::query::{
    ClusterQuery, HostQuery, LogQuery, OperationQuery, PageRequest, PlaceRequest, StepQuery, StreamQuery,
    parameters,
};
use super::writes::PatchTarget;
use crate::request_error::RequestError;

/// Reads a query as each route does that has one, and returns the refusals.
#[must_use]
pub fn query(text: &str) -> Vec<RequestError> {
    let Ok(uri) = format!("/?{text}").parse::<Uri>() else { return Vec::new() };
    let page = |limit, after: Option<String>| PageRequest::new(limit, after.as_ref()).map(drop);
    let place = |limit, first: Option<String>| PlaceRequest::new(limit, first.as_ref()).map(drop);
    let all = [
        parameters::<ClusterQuery>(&uri).and_then(|query| page(query.limit, query.r#continue)),
        parameters::<OperationQuery>(&uri).and_then(|query| page(query.limit, query.r#continue)),
        parameters::<StreamQuery>(&uri).map(drop),
        parameters::<LogQuery>(&uri).map(drop),
        parameters::<HostQuery>(&uri).and_then(|query| place(query.limit, query.r#continue)),
        parameters::<StepQuery>(&uri).and_then(|query| place(query.limit, query.r#continue)),
    ];
    all.into_iter().filter_map(Result::err).collect()
}

/// The value `continue` of a page whose last item is the one that `text` names.
///
/// # Errors
/// When the text is no such value.
pub fn next_page(text: &str) -> Result<Option<String>, RequestError> {
    let last = PageRequest::new(None, Some(&text.to_owned()))?.after;
    let items = [last.clone(), last];
    let page = PageRequest::new(Some(1), None)?.page(&items, |key| key.clone().unwrap_or_default(), |_| ());
    Ok(page.next)
}

/// The object that a body declares: a `KubernetesCluster` in a namespace.
///
/// # Errors
/// When it is none, or names another namespace.
pub fn cluster(body: &[u8], namespace: &str) -> Result<Value, RequestError> {
    declared::<KubernetesCluster>(&Bytes::copy_from_slice(body), Some(namespace))
}

/// The object that a body declares: a `ClusterOperation`.
///
/// # Errors
/// When it is none.
pub fn operation(body: &[u8]) -> Result<Value, RequestError> {
    declared::<ClusterOperation>(&Bytes::copy_from_slice(body), None)
}

/// The merge patch in a body of this type, for the object with this UID.
///
/// # Errors
/// When the body is of another type, or is no object.
pub fn patch(content_type: &str, body: &[u8], uid: &str) -> Result<Value, RequestError> {
    let mut headers = HeaderMap::new();
    let invalid = |_| RequestError::bad("the type of the body is no value of a header");
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(content_type).map_err(invalid)?);
    let patch = merge_patch(&headers, &Bytes::copy_from_slice(body))?;
    PatchTarget { namespace: None, name: "", uid: Some(uid) }.bind(patch)
}
