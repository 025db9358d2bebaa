//! An image made here: one static program, no base, as an OCI archive that containerd imports.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::json;
use sha2::{Digest as _, Sha256};

/// The name under which pods find the image of [`write`].
pub const NAME: &str = "docker.io/kubeon/lab-client:1";

/// Writes an OCI archive that holds `program` as `/lab-client`, the image's entry point.
///
/// # Errors
/// When the program cannot be read or the archive not written.
pub fn write(program: &Path, archive: &Path) -> Result<()> {
    let bytes = std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let layer = tar_of(&[("lab-client", &bytes, 0o755)])?;
    let config = serde_json::to_vec(&json!({
        "architecture": "amd64", "os": "linux",
        "config": { "Entrypoint": ["/lab-client"], "User": "65532:65532" },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(&layer))] },
    }))?;
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
    }))?;
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    entry["annotations"] =
        json!({ "io.containerd.image.name": NAME, "org.opencontainers.image.ref.name": "1" });
    let index = serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": [entry] }))?;
    let blob = |content: &[u8]| format!("blobs/sha256/{}", sha256(content));
    let files: Vec<(String, &[u8])> = vec![
        ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#),
        ("index.json".to_owned(), &index),
        (blob(&manifest), &manifest),
        (blob(&config), &config),
        (blob(&layer), &layer),
    ];
    let entries: Vec<(&str, &[u8], u32)> =
        files.iter().map(|(name, content)| (name.as_str(), *content, 0o644)).collect();
    File::create(archive)?.write_all(&tar_of(&entries)?)?;
    Ok(())
}

fn tar_of(files: &[(&str, &[u8], u32)]) -> Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content, mode) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(*mode);
        builder.append_data(&mut header, name, *content)?;
    }
    Ok(builder.into_inner()?)
}

fn sha256(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

fn descriptor(media_type: &str, content: &[u8]) -> serde_json::Value {
    json!({ "mediaType": media_type, "digest": format!("sha256:{}", sha256(content)), "size": content.len() })
}
