//! Settings that older clients read.

use serde_json::{Value, json};

use super::metadata::metadata;
use crate::{InstallOptions, names};

/// `kubeonkube-config`: how many operations of a cluster are kept.
#[must_use]
pub fn objects(options: &InstallOptions) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": metadata(&options.namespace, names::CONFIG),
        "data": {names::HISTORY_LIMIT: options.history_limit},
    })
}
