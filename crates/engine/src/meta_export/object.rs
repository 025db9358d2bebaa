//! Fields of objects as JSON. Objects are not parsed into types, so that one with unknown or invalid fields is exported too.

use kubeon_api::labels::HOST_POOL;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::kind::MetaKind;

/// Fields of the metadata that are read. The API server sets `uid`, `generation` and `creationTimestamp` of a restored object
/// itself; a restore needs the old ones to translate references and the order. No object in the file has a
/// `deletionTimestamp`.
const METADATA: [&str; 10] = [
    "name",
    "namespace",
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
];

/// A remark about an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectNote {
    /// Its kind, namespace and name.
    pub object: String,
    /// The remark.
    pub reason: String,
}

impl ObjectNote {
    /// A remark about this object.
    pub(crate) fn new(object: &Value, reason: impl Into<String>) -> Self {
        Self { object: title(object), reason: reason.into() }
    }
}

/// The text at this place; empty without one.
pub(crate) fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// The value of a label; empty without one.
pub(crate) fn label<'v>(object: &'v Value, key: &str) -> &'v str {
    object["metadata"]["labels"][key].as_str().unwrap_or_default()
}

/// The identity of an object for people, such as `Secret team-a/login`.
pub(crate) fn title(object: &Value) -> String {
    title_of(text(object, "/kind"), namespace(object), name(object))
}

/// As [`title`].
pub(crate) fn title_of(kind: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

/// The pool of hosts of a namespace.
pub(crate) fn pool(namespace: &Value) -> Option<&str> {
    namespace["metadata"]["annotations"][HOST_POOL].as_str()
}

/// Whether an operation ended.
pub(crate) fn has_ended(operation: &Value) -> bool {
    matches!(text(operation, "/status/status"), "Succeeded" | "Failed")
}

/// Whether the object is being deleted.
pub(crate) fn is_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// The object without the fields that belong to its place in the cluster.
pub(crate) fn cleaned(kind: MetaKind, object: Value) -> Value {
    let Value::Object(mut fields) = object else { return object };
    fields.insert("apiVersion".to_owned(), kind.api_version().into());
    fields.insert("kind".to_owned(), kind.name().into());
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, value| METADATA.contains(&key.as_str()) && !is_empty(value));
    }
    Value::Object(fields)
}

fn is_empty(value: &Value) -> bool {
    value.is_null()
        || value.as_object().is_some_and(Map::is_empty)
        || value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_server_wrote_is_removed() {
        let object = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7",
            "managedFields": [{}], "selfLink": "/x", "labels": {}, "annotations": {"k": "v"}}, "data": {"a": "b"}});
        let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "annotations": {"k": "v"}}, "data": {"a": "b"}});
        assert_eq!(cleaned(MetaKind::ConfigMap, object), wanted);
        assert_eq!(
            (title(&wanted).as_str(), title_of("Cluster", "", "c").as_str()),
            ("ConfigMap n/a", "Cluster c")
        );
    }
}
