//! The description of the API, OpenAPI 3.1. Routes and messages are described where they are declared; the objects in bodies are
//! described by the types of their kinds.

use kubeon_api::{ClusterOperation, KubernetesCluster, declaration_schema, merge_patch_schema};
use serde_json::{Value, json};
use utoipa::openapi::OpenApi;

/// The description of these routes, with the schemas of the objects in their bodies.
///
/// # Errors
/// When it cannot be serialized.
pub(crate) fn described(routes: &OpenApi) -> Result<Value, serde_json::Error> {
    let mut description = serde_json::to_value(routes)?;
    for (name, schema) in [
        ("KubernetesCluster", declaration_schema::<KubernetesCluster>()),
        ("KubernetesClusterPatch", merge_patch_schema::<KubernetesCluster>()),
        ("ClusterOperation", declaration_schema::<ClusterOperation>()),
        ("ClusterOperationPatch", merge_patch_schema::<ClusterOperation>()),
    ] {
        description["components"]["schemas"][name] = schema;
    }
    require_bodies(&mut description);
    Ok(description)
}

/// A body that is described by a reference counts as optional unless the description says otherwise.
fn require_bodies(description: &mut Value) {
    let paths = description["paths"].as_object_mut().into_iter().flat_map(serde_json::Map::values_mut);
    for operation in paths.filter_map(Value::as_object_mut).flat_map(serde_json::Map::values_mut) {
        if let Some(body) = operation.get_mut("requestBody") {
            body["required"] = json!(true);
        }
    }
}
