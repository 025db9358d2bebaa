//! The committed description of the API.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

/// Every operation of a description: its id and what describes it.
fn operations(description: &Value) -> Vec<(&str, &Value)> {
    let paths = description["paths"].as_object().unwrap();
    let methods = paths.values().flat_map(|path| path.as_object().unwrap().values());
    methods.map(|method| (method["operationId"].as_str().unwrap(), method)).collect()
}

/// What a reference leads to; any other schema is its own.
fn resolved<'a>(description: &'a Value, schema: &'a Value) -> &'a Value {
    let Some(reference) = schema["$ref"].as_str() else { return schema };
    let place =
        reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} leads out of the description"));
    description.pointer(place).unwrap_or_else(|| panic!("{reference} leads to nothing"))
}

fn references(value: &Value) -> Vec<&Value> {
    let inner: Vec<&Value> = match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    let own = value.get("$ref").is_some_and(Value::is_string).then_some(value);
    own.into_iter().chain(inner.into_iter().flat_map(references)).collect()
}

/// `UPDATE_GOLDEN=1` writes the file.
#[test]
fn the_committed_description_is_the_served_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    let served = kubeon_gateway::openapi().unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &served).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == served,
        "docs/reference/openapi.json is not current: run this test with UPDATE_GOLDEN=1"
    );
    assert!(served.contains(r#""openapi": "3.1.0""#));
    let served: Value = serde_json::from_str(&served).unwrap();
    let ids: Vec<&str> = operations(&served).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
}

#[test]
fn every_body_is_described_by_its_fields() {
    let description: Value = serde_json::from_str(&kubeon_gateway::openapi().unwrap()).unwrap();
    for reference in references(&description) {
        resolved(&description, reference);
    }
    let body = |operation: &Value| {
        let content = operation.pointer("/requestBody/content")?.as_object().unwrap();
        let (kind, body) = content.iter().next().unwrap();
        Some((kind.clone(), resolved(&description, &body["schema"]).clone()))
    };
    let bodies: Vec<(&str, (String, Value))> = operations(&description)
        .into_iter()
        .filter_map(|(id, operation)| Some((id, body(operation)?)))
        .collect();
    assert!(bodies.len() >= 12, "{}", bodies.len());
    for (id, (_, schema)) in &bodies {
        let fields = schema["properties"].as_object();
        assert!(fields.is_some_and(|fields| !fields.is_empty()), "the body of {id} has no fields: {schema}");
    }
    let field = |id: &str, path: &str| {
        let (_, (kind, schema)) = bodies.iter().find(|(found, _)| *found == id).unwrap();
        (kind.as_str(), schema.pointer(path).unwrap_or_else(|| panic!("{id} has no {path}")))
    };
    let (masters, paused) = (
        "/properties/spec/properties/cluster/properties/masterList",
        "/properties/spec/properties/paused/type",
    );
    for id in ["createCluster", "createOperation"] {
        assert_eq!(field(id, paused), ("application/json", &Value::from("boolean")));
        assert_eq!(field(id, "/required").1, &Value::from(vec!["metadata", "spec"]));
        assert_eq!(field(id, "/properties/metadata/properties/name/type").1, "string");
    }
    for id in ["patchCluster", "planCluster", "patchOperation"] {
        assert_eq!(
            field(id, paused),
            ("application/merge-patch+json", &Value::from(vec!["boolean", "null"])),
            "null removes a field"
        );
    }
    for id in ["createCluster", "patchCluster", "planCluster"] {
        assert!(field(id, masters).1["items"]["properties"]["ip"].is_object(), "{id}");
    }
    assert_eq!(field("createOperation", "/properties/spec/properties/action/type").1, "string");
}
