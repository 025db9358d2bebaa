//! Metadata of installed objects, and short forms of their fields.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Serialize;
use serde_json::Value;

use crate::InstallError;

/// Metadata of an object; `namespace` is empty for a cluster-scoped object.
pub(crate) fn metadata(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
        labels: Some(texts_by_key(&[
            ("app.kubernetes.io/name", "kubeon"),
            ("app.kubernetes.io/part-of", "kubeon"),
        ])),
        ..ObjectMeta::default()
    }
}

/// Labels or another map of texts.
pub(crate) fn texts_by_key(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
}

/// A list of texts.
pub(crate) fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

/// The labels of the operator's pods.
pub(crate) fn operator_labels() -> BTreeMap<String, String> {
    texts_by_key(&[("app.kubernetes.io/component", "operator"), ("app.kubernetes.io/name", "kubeon")])
}

/// Selects the operator's pods.
pub(crate) fn operator_pods() -> LabelSelector {
    LabelSelector { match_labels: Some(operator_labels()), ..LabelSelector::default() }
}

/// An object as JSON, with its `apiVersion` and `kind`.
pub(crate) fn value(object: impl Serialize) -> Result<Value, InstallError> {
    serde_json::to_value(object).map_err(InstallError::Json)
}
