//! Settings that older clients read.

use k8s_openapi::api::core::v1::ConfigMap;

use super::metadata::{metadata, texts_by_key};
use crate::{InstallOptions, names};

/// `kubeonkube-config`: the number of operations that are kept for each cluster.
pub(crate) fn history(options: &InstallOptions) -> ConfigMap {
    ConfigMap {
        metadata: metadata(&options.namespace, names::CONFIG),
        data: Some(texts_by_key(&[(names::HISTORY_LIMIT, &options.history_limit)])),
        ..ConfigMap::default()
    }
}
