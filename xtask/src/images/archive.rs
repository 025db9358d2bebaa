//! Images as one file: a reproducible tar of an OCI layout.

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
pub(crate) struct OciImage {
    /// All its full names.
    pub(crate) names: Vec<String>,
    /// Its layers, the lowest first.
    pub(crate) layers: Vec<Packed>,
    /// Its process.
    pub(crate) process: &'static ImageProcess,
}

/// How an image's process runs.
pub(crate) struct ImageProcess {
    /// User and group; empty: root.
    pub(crate) user: &'static str,
    /// `NAME=VALUE`.
    pub(crate) environment: &'static [&'static str],
    /// The program and its first arguments; empty: the command names the program.
    pub(crate) entrypoint: &'static [&'static str],
    /// The arguments that follow unless a container has its own.
    pub(crate) command: &'static [&'static str],
    /// The working directory.
    pub(crate) folder: &'static str,
}

/// Writes images, with their layers from the folder `layers`, where they are named by their digests. Returns the digests of
/// the images' manifests.
pub(crate) fn write(images: &[OciImage], layers: &Path, file: &Path) -> Result<Vec<String>> {
    let bytes = |bytes: Vec<u8>| TarContent::Bytes { bytes, mode: 0o644 };
    let (mut tree, mut entries, mut digests) = (TarTree::new(), Vec::new(), Vec::new());
    for image in images {
        let config = serde_json::to_vec(&image.config())?;
        let manifest = serde_json::to_vec(&image.manifest(&config))?;
        let digest = sha256(&manifest);
        entries.extend(image.names.iter().map(|name| index_entry(name, &digest, manifest.len() as u64)));
        for layer in &image.layers {
            let path = layers.join(layer.digest.as_str());
            tree.insert(blob(layer.digest.as_str()), TarContent::File { path, mode: 0o644 });
        }
        tree.insert(blob(&sha256(&config)), bytes(config));
        tree.insert(blob(&digest), bytes(manifest));
        digests.push(digest);
    }
    let index = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": entries,
    }))?;
    tree.insert("oci-layout".to_owned(), bytes(br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()));
    tree.insert("index.json".to_owned(), bytes(index));
    pack::write_tar(&tree, BufWriter::new(File::create(file)?))?;
    Ok(digests)
}

fn index_entry(name: &str, digest: &str, size: u64) -> Value {
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", digest, size);
    entry["annotations"] =
        json!({ "io.containerd.image.name": name, "org.opencontainers.image.ref.name": name });
    entry
}

impl OciImage {
    fn manifest(&self, config: &[u8]) -> Value {
        let layers = self.layers.iter().map(|layer| {
            descriptor("application/vnd.oci.image.layer.v1.tar+zstd", layer.digest.as_str(), layer.size)
        });
        json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &sha256(config), config.len() as u64),
            "layers": layers.collect::<Vec<_>>(),
        })
    }

    fn config(&self) -> Value {
        let diff_ids: Vec<String> =
            self.layers.iter().map(|layer| format!("sha256:{}", layer.diff_id)).collect();
        let ImageProcess { user, environment, entrypoint, command, folder } = self.process;
        json!({
            "architecture": kubeon_bundle::Arch::native(),
            "os": "linux",
            "config": {
                "User": user,
                "Env": environment,
                "Entrypoint": entrypoint,
                "Cmd": command,
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

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// The description of a layer, which is stored in the cache.
pub(crate) fn description(layer: &Packed) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("digest", layer.digest.to_string()),
        ("diffId", layer.diff_id.to_string()),
        ("size", layer.size.to_string()),
        ("tarSize", layer.tar_size.to_string()),
        ("unpackedSize", layer.unpacked_size.to_string()),
    ])
}

/// Parses the stored description of a layer.
pub(crate) fn parse_description(text: &str) -> Option<Packed> {
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
