//! Snapshots of etcd that the operator takes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::SecretName;

/// Where snapshots of etcd go, and how often one is taken. They are encrypted, with the keys of the cluster beside them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshots {
    /// A prefix in an object store with the S3 protocol, of this cluster alone: s3://BUCKET/PREFIX/
    #[schemars(length(max = 1024), regex(pattern = r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/([^/]+/)*$"))]
    pub folder: String,
    /// The address of the object store: https://HOST or https://HOST:PORT. Default: AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = r"^https?://[A-Za-z0-9.:\[\]-]+$"))]
    pub endpoint: Option<String>,
    /// The region of the object store. Default: us-east-1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9-]+$"))]
    pub region: Option<String>,
    /// A Secret in this namespace: `credentials`, a credentials file of the AWS tools; `snapshot.key`, written by `kubeon etcd
    /// new-key`; optionally `ca.crt`, the authorities of the object store.
    pub credentials_ref: SecretName,
    /// The snapshot out of which a new cluster of the same name and version is made, and to which `rollbacking` returns one:
    /// s3://BUCKET/KEY. Default: an empty cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^/]+)+$"))]
    pub restore_from: Option<String>,
    /// How many snapshots stay, 1 to 1000. Default: 14.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub keep: Option<u16>,
    /// Hours from one snapshot to the next, 1 to 8760. Default: only on request, with the operation `snapshotting`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8760))]
    pub every_hours: Option<u16>,
}

impl Snapshots {
    /// How many snapshots stay by default.
    pub const KEEP: u16 = 14;
}
