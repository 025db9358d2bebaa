//! An image as one file to import: a tar of an OCI layout whose layers are not compressed, since what carries the
//! file compresses it already.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use kubeon_api::Digest;

use super::{Config, named};
use crate::layout::{self, Descriptor, Index, Manifest};
use crate::pack::append_stream;
use crate::{Image, digest};

enum Blob {
    Bytes(Vec<u8>),
    Compressed { path: PathBuf, size: u64 },
}

/// Writes the archive of an image in the layout at `root`. The same image gives the same bytes.
pub(crate) fn write_archive<W: Write>(root: &Path, image: &Image, writer: W) -> io::Result<W> {
    let mut blobs: BTreeMap<Digest, Blob> = BTreeMap::new();
    let stored: Manifest = serde_json::from_slice(&fs::read(layout::blob(root, &image.digest))?)?;
    let config_bytes = fs::read(layout::blob(root, &stored.config.digest))?;
    let config: Config = serde_json::from_slice(&config_bytes)?;
    if config.rootfs.diff_ids.len() != stored.layers.len() {
        return Err(io::Error::other(format!(
            "{}: config and manifest disagree on the layers",
            image.reference
        )));
    }
    let mut layers = Vec::new();
    for (layer, wanted) in stored.layers.iter().zip(&config.rootfs.diff_ids) {
        let path = layout::blob(root, &layer.digest);
        let (diff_id, size) = digest::of_reader(zstd::Decoder::new(File::open(&path)?)?)?;
        if format!("sha256:{diff_id}") != *wanted {
            return Err(io::Error::other(format!("{}: layer {} is damaged", image.reference, layer.digest)));
        }
        layers.push(Descriptor::new(layout::LAYER, diff_id.clone(), size));
        blobs.insert(diff_id, Blob::Compressed { path, size });
    }
    let manifest = serde_json::to_vec(&Manifest::new(stored.config.clone(), layers))?;
    let digest = digest::of_bytes(&manifest)?;
    let index = Index::new(vec![named(digest.clone(), manifest.len() as u64, &image.reference)]);
    blobs.insert(digest, Blob::Bytes(manifest));
    blobs.insert(stored.config.digest, Blob::Bytes(config_bytes));
    write(&blobs, &serde_json::to_vec(&index)?, writer)
}

fn write<W: Write>(blobs: &BTreeMap<Digest, Blob>, index: &[u8], writer: W) -> io::Result<W> {
    let mut tar = tar::Builder::new(writer);
    for (digest, blob) in blobs {
        let path = format!("blobs/sha256/{digest}");
        match blob {
            Blob::Bytes(bytes) => {
                append_stream(&mut tar, &path, 0o644, bytes.len() as u64, bytes.as_slice())?
            }
            Blob::Compressed { path: source, size } => {
                let stream = zstd::Decoder::with_buffer(BufReader::new(File::open(source)?))?;
                append_stream(&mut tar, &path, 0o644, *size, stream)?;
            }
        }
    }
    for (path, bytes) in [(layout::INDEX_FILE, index), (layout::LAYOUT_FILE, layout::LAYOUT.as_bytes())] {
        append_stream(&mut tar, path, 0o644, bytes.len() as u64, bytes)?;
    }
    tar.into_inner()
}
