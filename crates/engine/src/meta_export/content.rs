//! The content of an export.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kind::MetaKind;
use super::object::{ObjectNote, has_ended, name};

/// The format of the file.
pub(super) const FORMAT: u32 = 1;

/// The objects of a meta cluster. They contain the keys and credentials of all clusters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetaExport {
    /// The format of the file.
    pub format: u32,
    /// The version of kubeon that wrote it.
    pub kubeon_version: String,
    /// When the objects were read.
    pub exported_at: Timestamp,
    /// The namespace of the operator. The state of a `Cluster` is in it.
    pub operator_namespace: String,
    /// The objects, each after those that it refers to by UID.
    pub objects: Vec<Value>,
    /// What a restore will not have, and why.
    pub notes: Vec<ObjectNote>,
}

impl MetaExport {
    /// The number of objects of each kind.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts: BTreeMap<_, _> = MetaKind::ALL.map(|kind| (kind.name(), 0)).into();
        for kind in self.objects.iter().filter_map(MetaKind::of) {
            *counts.entry(kind.name()).or_default() += 1;
        }
        counts
    }

    /// The operations that have neither succeeded nor failed.
    #[must_use]
    pub fn open_operations(&self) -> Vec<&str> {
        let operations =
            self.objects.iter().filter(|object| MetaKind::of(object) == Some(MetaKind::Operation));
        operations.filter(|operation| !has_ended(operation)).map(name).collect()
    }
}
