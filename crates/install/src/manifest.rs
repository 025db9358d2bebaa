//! Objects as YAML.

use serde_json::Value;

use crate::{InstallError, InstallOptions, objects};

/// The header of every generated file.
pub const HEADER: &str = "# Generated from crates/install by `cargo xtask gen`. Do not edit.\n";

/// The whole installation in one text, for `kubectl apply --server-side -f`.
///
/// # Errors
/// When the definitions cannot be generated or an object cannot be written as YAML.
pub fn manifest(options: &InstallOptions) -> Result<String, InstallError> {
    Ok(format!("{HEADER}{}", documents(&objects(options)?)?))
}

/// Objects as YAML documents, one after the other.
///
/// # Errors
/// When an object cannot be written as YAML.
pub fn documents(objects: &[Value]) -> Result<String, InstallError> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&document(object)?);
    }
    Ok(text)
}

/// One object as YAML.
///
/// # Errors
/// When it cannot be written as YAML.
pub fn document(object: &Value) -> Result<String, InstallError> {
    serde_saphyr::to_string(object).map_err(|source| {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or("?").to_owned();
        InstallError::Yaml { kind: text("/kind"), name: text("/metadata/name"), source: Box::new(source) }
    })
}
