//! Objects that are created and changed as the caller.

use axum::Json;
use axum::body::Bytes;
use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, header};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::declared::{declared, strict};
use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::meta_api::MANAGER;
use crate::request_error::RequestError;

/// The object that a patch changes.
#[derive(Clone, Copy)]
pub(super) struct PatchTarget<'a> {
    /// Its namespace; `None` for a kind without namespaces.
    pub namespace: Option<&'a str>,
    /// Its name.
    pub name: &'a str,
    /// Its UID: a later object with the same name has another one and is not changed.
    pub uid: Option<&'a str>,
}

impl PatchTarget<'_> {
    /// The patch with the UID.
    pub(super) fn bind(&self, mut patch: Value) -> Result<Value, RequestError> {
        let Some(fields) = patch.as_object_mut() else {
            return Err(RequestError::bad("the body is not a JSON object; send the fields that change"));
        };
        if let Some(uid) = self.uid {
            let Value::Object(metadata) = fields.entry("metadata").or_insert_with(|| json!({})) else {
                return Err(RequestError::bad("metadata: it is not an object"));
            };
            metadata.insert("uid".to_owned(), json!(uid));
        }
        Ok(patch)
    }
}

/// Requests about the objects of a kind, in a namespace or without one.
pub(super) fn requests<K: Resource<DynamicType = ()>>(namespace: Option<&str>) -> Request {
    Request::new(K::url_path(&(), namespace))
}

/// Creates the object in a body. `list` is the path of all such objects, below which the answer says where the new one is.
///
/// # Errors
/// When the body is no object of the kind, or the API server refuses it.
pub(super) async fn created<K, V>(
    (gateway, caller): (&Gateway, &Caller),
    (namespace, list): (Option<&str>, &str),
    body: &Bytes,
    view: fn(&K) -> V,
) -> Result<Response, RequestError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
    V: Serialize,
{
    let object = declared::<K>(body, namespace)?;
    let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let request = requests::<K>(namespace).create(&parameters, object.to_string().into_bytes())?;
    let created: K = gateway.meta_api.send(caller, strict(request)?).await?;
    let place = format!("{list}/{}", created.name_any());
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(view(&created))).into_response())
}

/// Changes an object with a JSON merge patch.
///
/// # Errors
/// When the patch is no object, or the API server refuses it.
pub(super) async fn patched<K>(
    (gateway, caller): (&Gateway, &Caller),
    target: PatchTarget<'_>,
    patch: Value,
) -> Result<K, RequestError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let patch = target.bind(patch)?;
    let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let request = requests::<K>(target.namespace).patch(target.name, &parameters, &Patch::Merge(&patch))?;
    gateway.meta_api.send(caller, strict(request)?).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_of_the_object_that_was_seen() {
        let bind =
            |uid: Option<&str>, patch: Value| PatchTarget { namespace: None, name: "a", uid }.bind(patch);
        let labelled = json!({"metadata": {"labels": {"x": null}, "uid": "another"}});
        assert_eq!(
            bind(Some("u"), labelled.clone()),
            Ok(json!({"metadata": {"labels": {"x": null}, "uid": "u"}}))
        );
        assert_eq!(bind(Some("u"), json!({})), Ok(json!({"metadata": {"uid": "u"}})));
        assert_eq!(bind(None, labelled.clone()), Ok(labelled));
        for (uid, patch) in [(None, json!([])), (Some("u"), json!("x")), (Some("u"), json!({"metadata": 1}))]
        {
            assert_eq!(bind(uid, patch).unwrap_err().status, StatusCode::BAD_REQUEST);
        }
    }
}
