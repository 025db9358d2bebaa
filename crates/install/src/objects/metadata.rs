//! Metadata of installed objects.

use serde_json::{Value, json};

/// Metadata of an object; `namespace` is empty for a cluster-scoped object.
pub(crate) fn metadata(namespace: &str, name: &str) -> Value {
    let mut metadata = json!({
        "name": name,
        "labels": {"app.kubernetes.io/name": "kubeon", "app.kubernetes.io/part-of": "kubeon"},
    });
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    metadata
}
