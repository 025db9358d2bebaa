//! Builds OCI archives for containerd: the image of one static program, and an image that does not contain
//! kubeon.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The name of the image of [`write`].
pub const NAME: &str = "docker.io/kubeon/lab-client:1";

/// A pod of the image that serves HTTP on port 8080, on a node if one is named.
#[must_use]
pub fn pod(name: &str, node: Option<&str>) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": {
        "nodeName": node,
        "containers": [{ "name": "client", "image": NAME, "imagePullPolicy": "IfNotPresent", "args": ["serve", "8080"] }],
    } })
}

/// Writes an OCI archive that contains `program` as `/lab-client`, the image's entry point.
///
/// # Errors
/// When the program cannot be read or the archive cannot be written.
pub fn write(program: &Path, archive: &Path) -> Result<()> {
    let bytes = std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let layer = Layer::of(&[("lab-client", &bytes, 0o755)])?;
    let config = json!({ "Entrypoint": ["/lab-client"], "User": "65532:65532" });
    pack(NAME, "amd64", &config, &[layer], archive)
}

/// Writes an image without kubeon: the lowest layer of the runner's image, which is Debian with bash and
/// Ansible, and these files.
///
/// # Errors
/// When the runner's image is missing or invalid, or the archive cannot be written.
pub fn write_foreign(runner: &Path, name: &str, files: &[(&str, &str)], archive: &Path) -> Result<()> {
    let blobs = blobs_of(runner).with_context(|| format!("{} is not an image", runner.display()))?;
    let read = |descriptor: &Value| -> Result<Value> {
        Ok(serde_json::from_slice(blobs.get(hash_of(descriptor)?).context("a blob is missing")?)?)
    };
    let index: Value = serde_json::from_slice(blobs.get("index.json").context("the image has no index")?)?;
    let manifest = read(&index["manifests"][0])?;
    let config = read(&manifest["config"])?;
    let lowest = &manifest["layers"][0];
    let debian = Layer {
        kind: lowest["mediaType"].as_str().context("a layer without a type")?.to_owned(),
        diff: config["rootfs"]["diff_ids"][0].as_str().context("a layer without an id")?.to_owned(),
        bytes: blobs.get(hash_of(lowest)?).context("the lowest layer is missing")?.clone(),
    };
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_bytes(), 0o644)).collect();
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let environment = [path, "LANG=C.UTF-8", "ANSIBLE_CONFIG=/kubespray/ansible.cfg"];
    let architecture = config["architecture"].as_str().context("an image without an architecture")?;
    pack(name, architecture, &json!({ "Env": environment }), &[debian, Layer::of(&files)?], archive)
}

/// A layer, compressed or not.
struct Layer {
    kind: String,
    /// The digest of the uncompressed bytes.
    diff: String,
    bytes: Vec<u8>,
}

impl Layer {
    /// An uncompressed layer of files, given as paths, contents and modes.
    fn of(files: &[(&str, &[u8], u32)]) -> Result<Self> {
        let bytes = tar_of(files)?;
        let diff = format!("sha256:{}", sha256(&bytes));
        Ok(Self { kind: "application/vnd.oci.image.layer.v1.tar".to_owned(), diff, bytes })
    }
}

fn pack(name: &str, architecture: &str, config: &Value, layers: &[Layer], archive: &Path) -> Result<()> {
    let diffs: Vec<&str> = layers.iter().map(|layer| layer.diff.as_str()).collect();
    let config = serde_json::to_vec(&json!({
        "architecture": architecture, "os": "linux", "config": config,
        "rootfs": { "type": "layers", "diff_ids": diffs },
    }))?;
    let descriptors: Vec<Value> = layers.iter().map(|layer| descriptor(&layer.kind, &layer.bytes)).collect();
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config), "layers": descriptors,
    }))?;
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    let tag = name.rsplit_once(':').map_or(name, |(_, tag)| tag);
    entry["annotations"] =
        json!({ "io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag });
    let index = serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": [entry] }))?;
    let blob = |content: &[u8]| format!("blobs/sha256/{}", sha256(content));
    let mut files: Vec<(String, &[u8])> = vec![
        ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#),
        ("index.json".to_owned(), &index),
        (blob(&manifest), &manifest),
        (blob(&config), &config),
    ];
    files.extend(layers.iter().map(|layer| (blob(&layer.bytes), layer.bytes.as_slice())));
    let entries: Vec<(&str, &[u8], u32)> =
        files.iter().map(|(name, content)| (name.as_str(), *content, 0o644)).collect();
    File::create(archive)?.write_all(&tar_of(&entries)?)?;
    Ok(())
}

/// The files of an archive by the last component of their paths, which is the hash for a blob.
fn blobs_of(archive: &Path) -> Result<HashMap<String, Vec<u8>>> {
    let mut files = HashMap::new();
    for entry in tar::Archive::new(File::open(archive)?).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().into_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        files.insert(path.rsplit('/').next().unwrap_or_default().to_owned(), bytes);
    }
    Ok(files)
}

fn hash_of(descriptor: &Value) -> Result<&str> {
    let digest = descriptor["digest"].as_str().context("a descriptor without a digest")?;
    digest.strip_prefix("sha256:").with_context(|| format!("{digest} is not a SHA-256 digest"))
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

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": format!("sha256:{}", sha256(content)), "size": content.len() })
}
