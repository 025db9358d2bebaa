//! Custom resource definitions for API servers and the JSON schema for editors, generated from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, ValidationRule,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::{CustomResourceExt, Resource};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::kubeonkube::{Cluster, ClusterOperation};
use crate::kubernetes_cluster::KubernetesCluster;
use crate::schema::never_null;

const HEADER: &str = "# Generated from crates/api by `cargo xtask gen`. Do not edit.\n";
const RULES: &str = "# Rules use the CEL functions cidr and isCIDR: the API server must be v1.31 or newer.\n";

/// Why a file could not be generated from the types.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The definition cannot be written as JSON.
    #[error("cannot write the definition of {kind} as JSON")]
    WriteJson {
        /// The kind.
        kind: &'static str,
        /// The writer's error.
        #[source]
        source: serde_json::Error,
    },
    /// The definition cannot be written as YAML.
    #[error("cannot write the definition of {kind} as YAML")]
    WriteYaml {
        /// The kind.
        kind: &'static str,
        /// The writer's error.
        #[source]
        source: serde_saphyr::ser::Error,
    },
}

/// Every `CustomResourceDefinition` as the name of a file and its YAML, ready for `kubectl apply`.
///
/// # Errors
/// When a definition cannot be written as YAML.
pub fn crds() -> Result<Vec<(String, String)>, GenerateError> {
    let kinds = kinds();
    kinds.into_iter().map(|(kind, note, definition)| file(kind, note, definition)).collect()
}

/// The same definitions as objects.
///
/// # Errors
/// When a definition cannot be written as JSON.
pub fn definitions() -> Result<Vec<Value>, GenerateError> {
    kinds().into_iter().map(|(kind, _, definition)| object(kind, definition)).collect()
}

fn kinds() -> [(&'static str, &'static str, CustomResourceDefinition); 3] {
    [
        ("KubernetesCluster", RULES, with_rule(KubernetesCluster::crd(), &CLUSTER_NAME)),
        ("Cluster", "", with_rule(Cluster::crd(), &LABEL_NAME)),
        ("ClusterOperation", "", ClusterOperation::crd()),
    ]
    .map(|(kind, note, definition)| (kind, note, with_unobserved_status(definition)))
}

/// Gives new objects a status with an older generation than their own, so that kstatus takes no object for up to date before
/// an operator has seen it.
fn with_unobserved_status(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    for schema in definition.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()) {
        let properties = schema.open_api_v3_schema.as_mut().and_then(|root| root.properties.as_mut());
        if let Some(status) = properties.and_then(|properties| properties.get_mut("status")) {
            status.default = Some(JSON(json!({"observedGeneration": -1})));
        }
    }
    definition
}

/// A CEL rule for the whole object.
struct Rule {
    rule: &'static str,
    message: &'static str,
}

impl Rule {
    fn to_validation(&self) -> ValidationRule {
        let (rule, message) = (self.rule.to_owned(), Some(self.message.to_owned()));
        ValidationRule { rule, message, ..ValidationRule::default() }
    }
}

const CLUSTER_NAME: Rule = Rule {
    rule: "self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",
    message: "the name of a cluster is a DNS label: at most 63 of a-z, 0-9 and '-', no dots",
};
const LABEL_NAME: Rule = Rule {
    rule: "self.metadata.name.size() <= 63",
    message: "the name of a Cluster becomes the label clusterName of its operations: at most 63 characters",
};

fn with_rule(mut definition: CustomResourceDefinition, rule: &Rule) -> CustomResourceDefinition {
    for schema in definition.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()) {
        if let Some(root) = schema.open_api_v3_schema.as_mut() {
            root.x_kubernetes_validations.get_or_insert_default().push(rule.to_validation());
        }
    }
    definition
}

fn object(kind: &'static str, mut definition: CustomResourceDefinition) -> Result<Value, GenerateError> {
    definition.spec.names.list_kind = Some(format!("{kind}List"));
    let mut value =
        serde_json::to_value(&definition).map_err(|source| GenerateError::WriteJson { kind, source })?;
    never_null(&mut value);
    Ok(value)
}

fn file(
    kind: &'static str,
    note: &str,
    definition: CustomResourceDefinition,
) -> Result<(String, String), GenerateError> {
    let name = format!("{}_{}.yaml", definition.spec.group, definition.spec.names.plural);
    let value = object(kind, definition)?;
    let yaml = serde_saphyr::to_string(&value).map_err(|source| GenerateError::WriteYaml { kind, source })?;
    Ok((name, format!("{HEADER}{note}{yaml}")))
}

/// The JSON schema (draft 7) of a `KubernetesCluster` file, for editors. It refuses unknown fields and describes every
/// field.
#[must_use]
pub fn json_schema() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    let mut generator = settings.into_generator();
    let metadata = generator.subschema_for::<ObjectMeta>().to_value();
    let mut schema = generator.into_root_schema_for::<KubernetesCluster>().to_value();
    schema["properties"]["metadata"] = metadata;
    never_null(&mut schema);
    close(&mut schema);
    schema["title"] = json!("KubernetesCluster");
    schema["properties"]["apiVersion"] = json!({"type": "string", "enum": ["ecs.yun.com/v1"]});
    schema["properties"]["kind"] = json!({"type": "string", "enum": ["KubernetesCluster"]});
    schema["x-kubernetes-validations"] = json!([CLUSTER_NAME.to_validation()]);
    schema["required"] = json!(["apiVersion", "kind", "metadata", "spec"]);
    schema
}

/// The JSON schema (draft 2020-12) of what a client declares of an object: a name, labels, annotations and the spec. It refuses
/// unknown fields of the spec.
#[must_use]
pub fn declaration_schema<K: Resource<DynamicType = ()> + JsonSchema>() -> Value {
    let mut schema = written_schema::<K>(&["annotations", "labels", "name"]);
    schema["properties"]["metadata"]["required"] = json!(["name"]);
    schema["required"] = json!(["metadata", "spec"]);
    schema
}

/// The JSON schema (draft 2020-12) of a JSON merge patch (RFC 7396) of such an object. Every field may be absent, `null` removes
/// a field, and a list is replaced as a whole.
#[must_use]
pub fn merge_patch_schema<K: Resource<DynamicType = ()> + JsonSchema>() -> Value {
    let mut schema = written_schema::<K>(&["annotations", "labels", "resourceVersion"]);
    for part in ["metadata", "spec"] {
        relax(&mut schema["properties"][part]);
    }
    schema
}

/// The schema of an object with these fields of its metadata and without its status, all of them optional.
fn written_schema<K: Resource<DynamicType = ()> + JsonSchema>(metadata_fields: &[&str]) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut generator = settings.into_generator();
    let mut metadata = generator.subschema_for::<ObjectMeta>().to_value();
    let mut object = generator.subschema_for::<K>().to_value();
    if let Some(fields) = metadata["properties"].as_object_mut() {
        fields.retain(|field, _| metadata_fields.contains(&field.as_str()));
    }
    let mut spec = object["properties"]["spec"].take();
    never_null(&mut metadata);
    never_null(&mut spec);
    close(&mut spec);
    json!({
        "type": "object",
        "description": object["description"],
        "properties": {
            "apiVersion": {"type": "string", "enum": [K::api_version(&())]},
            "kind": {"type": "string", "enum": [K::kind(&())]},
            "metadata": metadata,
            "spec": spec,
        },
    })
}

/// Turns the schema of an object into that of its merge patch. Items of lists stay complete.
fn relax(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    for word in ["default", "required", "x-kubernetes-validations"] {
        fields.remove(word);
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(relax_field);
    }
    if let Some(values) = fields.get_mut("additionalProperties") {
        relax_field(values);
    }
}

fn relax_field(schema: &mut Value) {
    relax(schema);
    let Value::Object(fields) = schema else { return };
    let types = match fields.remove("type") {
        Some(Value::Array(types)) => types,
        Some(only) => vec![only],
        None => return,
    };
    fields.insert("type".to_owned(), types.into_iter().chain([json!("null")]).collect());
    if let Some(Value::Array(values)) = fields.get_mut("enum") {
        values.push(Value::Null);
    }
}

/// Makes every object of the schema refuse unknown fields.
fn close(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("properties").is_some_and(Value::is_object) {
                fields.entry("additionalProperties").or_insert(Value::Bool(false));
            }
            if fields.remove("x-kubernetes-int-or-string").is_some() {
                fields.insert("type".into(), json!(["string", "integer"]));
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_has_the_fields_of_the_spec_and_no_status() {
        let schema = declaration_schema::<KubernetesCluster>();
        assert_eq!(schema["required"], json!(["metadata", "spec"]));
        assert_eq!(schema["properties"]["kind"]["enum"], json!(["KubernetesCluster"]));
        assert_eq!(schema["properties"]["metadata"]["required"], json!(["name"]));
        assert_eq!(schema["properties"].get("status"), None);
        assert_eq!(schema["properties"]["spec"]["additionalProperties"], json!(false));
        assert_eq!(schema["properties"]["spec"]["properties"]["paused"]["type"], "boolean");
        let address = "/properties/spec/properties/cluster/properties/masterList/items/properties/ip/pattern";
        assert!(
            schema.pointer(address).is_some(),
            "{}",
            schema["properties"]["spec"]["properties"]["cluster"]
        );
    }

    #[test]
    fn a_merge_patch_needs_no_field_and_may_remove_each() {
        let (whole, patch) =
            (declaration_schema::<ClusterOperation>(), merge_patch_schema::<ClusterOperation>());
        let spec = |schema: &Value| schema["properties"]["spec"].clone();
        assert!(spec(&whole)["required"].as_array().unwrap().contains(&json!("image")));
        assert_eq!((patch.get("required"), spec(&patch).get("required")), (None, None));
        assert_eq!(spec(&patch)["properties"]["paused"]["type"], json!(["boolean", "null"]));
        assert_eq!(
            spec(&patch)["properties"]["resources"]["properties"]["limits"]["type"],
            json!(["object", "null"])
        );
        let hook = |schema: &Value| spec(schema)["properties"]["preHook"]["items"].clone();
        assert!(hook(&whole).is_object());
        assert_eq!(hook(&patch), hook(&whole), "a list is replaced as a whole");
        let labels = &patch["properties"]["metadata"]["properties"]["labels"];
        assert_eq!(labels["additionalProperties"]["type"], json!(["string", "null"]));
    }
}
