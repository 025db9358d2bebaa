//! The OCI image layout on disk: its three JSON formats and its fixed files.
//!
//! ```text
//!   oci-layout   index.json ──► bundle manifest ──► config = BundleManifest, layers = the parts
//!                           └─► image manifests ──► config, layers = parts and a layer of links
//!   blobs/sha256/<digest>
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use kubeon_api::Digest;
use serde::{Deserialize, Serialize};

use crate::{BundleManifest, digest};

pub(crate) const LAYOUT_FILE: &str = "oci-layout";
pub(crate) const LAYOUT: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;
pub(crate) const INDEX_FILE: &str = "index.json";

pub(crate) const BUNDLE: &str = "application/vnd.kubeon.bundle.v1";
pub(crate) const BUNDLE_CONFIG: &str = "application/vnd.kubeon.bundle.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const LAYER_ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

pub(crate) const TITLE: &str = "org.opencontainers.image.title";
pub(crate) const REF_NAME: &str = "org.opencontainers.image.ref.name";
pub(crate) const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// A reference to a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact_type: Option<String>,
    #[serde(with = "prefixed")]
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Descriptor {
    pub(crate) fn new(media_type: &str, digest: Digest, size: u64) -> Self {
        let annotations = BTreeMap::new();
        Self { media_type: media_type.to_owned(), artifact_type: None, digest, size, annotations }
    }

    pub(crate) fn with(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }
}

/// An index entry that gives an image its upstream name, in containerd's annotation and in OCI's.
pub(crate) fn image_entry(digest: Digest, size: u64, reference: &str) -> Descriptor {
    Descriptor::new(MANIFEST, digest, size).with(CONTAINERD_NAME, reference).with(REF_NAME, reference)
}

/// An image manifest, and the bundle's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    schema_version: u32,
    media_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact_type: Option<String>,
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

impl Manifest {
    pub(crate) fn new(config: Descriptor, layers: Vec<Descriptor>) -> Self {
        Self { schema_version: 2, media_type: MANIFEST.to_owned(), artifact_type: None, config, layers }
    }
}

/// The list of manifests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    schema_version: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    media_type: String,
    pub(crate) manifests: Vec<Descriptor>,
}

impl Index {
    pub(crate) fn new(manifests: Vec<Descriptor>) -> Self {
        Self { schema_version: 2, media_type: INDEX.to_owned(), manifests }
    }
}

/// The path of a blob in a layout.
pub(crate) fn blob(root: &Path, digest: &Digest) -> PathBuf {
    blobs(root).join(digest.as_str())
}

/// The folder of all blobs.
pub(crate) fn blobs(root: &Path) -> PathBuf {
    root.join("blobs/sha256")
}

/// OCI writes digests as `sha256:HEX`.
mod prefixed {
    use kubeon_api::Digest;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(digest: &Digest, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("sha256:{digest}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        let text = String::deserialize(deserializer)?;
        if !text.starts_with("sha256:") {
            return Err(D::Error::custom(format!("{text:?} is not a sha256 digest")));
        }
        text.parse().map_err(D::Error::custom)
    }
}

/// The layout's own files for a bundle. They depend only on its manifest.
pub(crate) struct Described {
    pub(crate) config: Digest,
    pub(crate) config_bytes: Vec<u8>,
    pub(crate) manifest: Digest,
    pub(crate) manifest_bytes: Vec<u8>,
    pub(crate) index: Vec<u8>,
}

/// Renders the bundle's config, manifest and index.
pub(crate) fn describe(bundle: &BundleManifest) -> io::Result<Described> {
    let config_bytes = serde_json::to_vec(bundle)?;
    let config = digest::of_bytes(&config_bytes)?;
    let parts = bundle
        .parts
        .iter()
        .map(|part| Descriptor::new(LAYER_ZSTD, part.digest.clone(), part.size).with(TITLE, &part.name))
        .collect();
    let descriptor = Descriptor::new(BUNDLE_CONFIG, config.clone(), config_bytes.len() as u64);
    let mut own = Manifest::new(descriptor, parts);
    own.artifact_type = Some(BUNDLE.to_owned());
    let manifest_bytes = serde_json::to_vec(&own)?;
    let manifest = digest::of_bytes(&manifest_bytes)?;
    let mut first = Descriptor::new(MANIFEST, manifest.clone(), manifest_bytes.len() as u64);
    first.artifact_type = Some(BUNDLE.to_owned());
    let images = bundle.images.iter().map(|i| image_entry(i.digest.clone(), i.size, &i.reference));
    let index = serde_json::to_vec(&Index::new(std::iter::once(first).chain(images).collect()))?;
    Ok(Described { config, config_bytes, manifest, manifest_bytes, index })
}
