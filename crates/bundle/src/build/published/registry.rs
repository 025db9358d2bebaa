//! The layers of an image in a registry that needs no login.

use kubeon_api::Digest;
use serde_json::Value;

use super::error::PublishedError;
use super::server::Server;
use crate::manifest::PublishedFile;
use crate::{Arch, digest, layout};

/// Docker's own types, which registries still serve.
const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";

/// The layers of the image for an architecture. `manifests` is the address of the image's index, which ends with its tag.
pub(super) fn layers(
    server: &Server,
    manifests: &str,
    arch: Arch,
) -> Result<Vec<PublishedFile>, PublishedError> {
    let wrong = |url: &str, why: &str| PublishedError::Registry { url: url.to_owned(), why: why.to_owned() };
    let index = json(manifests, &server.document(manifests, ACCEPTED)?)?;
    let platforms =
        index["manifests"].as_array().ok_or_else(|| wrong(manifests, "it is not an index of an image"))?;
    let is_wanted = |entry: &&Value| {
        entry["platform"]["architecture"] == arch.name() && entry["platform"]["os"] == "linux"
    };
    let entry = platforms.iter().find(is_wanted);
    let manifest = entry
        .and_then(digest_of)
        .ok_or_else(|| wrong(manifests, &format!("the image does not exist for linux on {arch}")))?;
    let (base, _tag) = manifests.rsplit_once('/').unwrap_or((manifests, ""));
    let url = format!("{base}/sha256:{manifest}");
    let bytes = server.document(&url, layout::MANIFEST)?;
    let found = digest::of_bytes(&bytes).map_err(|error| wrong(&url, &error.to_string()))?;
    if found != manifest {
        return Err(PublishedError::WrongDigest { url, expected: manifest, found });
    }
    let blobs = base.strip_suffix("/manifests").unwrap_or(base);
    let layers = json(&url, &bytes)?;
    let layers = layers["layers"].as_array().ok_or_else(|| wrong(&url, "it has no layers"))?;
    let file = |layer: &Value| {
        let sha256 = digest_of(layer).ok_or_else(|| wrong(&url, "a layer has no digest"))?;
        Ok(PublishedFile { url: format!("{blobs}/blobs/sha256:{sha256}"), sha256 })
    };
    layers.iter().map(file).collect()
}

fn digest_of(descriptor: &Value) -> Option<Digest> {
    descriptor["digest"].as_str()?.parse().ok()
}

fn json(url: &str, bytes: &[u8]) -> Result<Value, PublishedError> {
    serde_json::from_slice(bytes).map_err(|error| PublishedError::Registry {
        url: url.to_owned(),
        why: format!("it is not JSON: {error}"),
    })
}
