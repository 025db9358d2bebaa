//! An image as one file: a reproducible tar of an OCI layout.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::Result;
use kubeon_api::Digest;
use kubeon_bundle::pack::{self, Packed, TarContent, TarTree};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// An image.
pub(super) struct OciImage {
    /// All its full names.
    pub(super) names: Vec<String>,
    /// Its layers, the lowest first.
    pub(super) layers: Vec<Packed>,
    /// Its process.
    pub(super) process: &'static ImageProcess,
}

/// How an image's process runs.
pub(super) struct ImageProcess {
    /// User and group.
    pub(super) user: &'static str,
    /// `NAME=VALUE`.
    pub(super) environment: &'static [&'static str],
    /// The program and its first arguments.
    pub(super) entrypoint: &'static [&'static str],
    /// The working directory.
    pub(super) folder: &'static str,
}

impl OciImage {
    /// Writes the image with the layers in the folder `layers`, named by their digests. Returns the digest of
    /// its manifest.
    pub(super) fn write(&self, layers: &Path, file: &Path) -> Result<String> {
        let config = serde_json::to_vec(&self.config())?;
        let descriptors = self.layers.iter().map(|layer| {
            descriptor("application/vnd.oci.image.layer.v1.tar+zstd", layer.digest.as_str(), layer.size)
        });
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &sha256(&config), config.len() as u64),
            "layers": descriptors.collect::<Vec<_>>(),
        }))?;
        let digest = sha256(&manifest);
        let entries = self.names.iter().map(|name| {
            let mut entry =
                descriptor("application/vnd.oci.image.manifest.v1+json", &digest, manifest.len() as u64);
            entry["annotations"] =
                json!({ "io.containerd.image.name": name, "org.opencontainers.image.ref.name": name });
            entry
        });
        let index = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": entries.collect::<Vec<_>>(),
        }))?;
        let bytes = |bytes: Vec<u8>| TarContent::Bytes { bytes, mode: 0o644 };
        let mut tree = TarTree::from([
            ("oci-layout".to_owned(), bytes(br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec())),
            ("index.json".to_owned(), bytes(index)),
            (blob(&sha256(&config)), bytes(config)),
            (blob(&digest), bytes(manifest)),
        ]);
        for layer in &self.layers {
            let path = layers.join(layer.digest.as_str());
            tree.insert(blob(layer.digest.as_str()), TarContent::File { path, mode: 0o644 });
        }
        pack::write_tar(&tree, BufWriter::new(File::create(file)?))?;
        Ok(digest)
    }

    fn config(&self) -> Value {
        let diff_ids: Vec<String> =
            self.layers.iter().map(|layer| format!("sha256:{}", layer.diff_id)).collect();
        let ImageProcess { user, environment, entrypoint, folder } = self.process;
        json!({
            "architecture": kubeon_bundle::Arch::native(),
            "os": "linux",
            "config": {
                "User": user,
                "Env": environment,
                "Entrypoint": entrypoint,
                "WorkingDir": folder,
            },
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        })
    }
}

fn descriptor(kind: &str, digest: &str, size: u64) -> Value {
    json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": size })
}

fn blob(digest: &str) -> String {
    format!("blobs/sha256/{digest}")
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// The description of a layer, which is stored in the cache.
pub(super) fn description(layer: &Packed) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("digest", layer.digest.to_string()),
        ("diffId", layer.diff_id.to_string()),
        ("size", layer.size.to_string()),
        ("tarSize", layer.tar_size.to_string()),
        ("unpackedSize", layer.unpacked_size.to_string()),
    ])
}

/// Parses the stored description of a layer.
pub(super) fn parse_description(text: &str) -> Option<Packed> {
    let fields: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
    let digest = |name: &str| fields.get(name)?.parse::<Digest>().ok();
    let number = |name: &str| fields.get(name)?.parse::<u64>().ok();
    Some(Packed {
        digest: digest("digest")?,
        diff_id: digest("diffId")?,
        size: number("size")?,
        tar_size: number("tarSize")?,
        unpacked_size: number("unpackedSize")?,
    })
}
