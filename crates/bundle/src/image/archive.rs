//! An image as one file to import: a tar of an OCI layout. Its layers stay compressed, so that a host that never runs
//! the image does not unpack it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use kubeon_api::Digest;

use crate::layout::{self, Index, Manifest};
use crate::pack::append_stream;
use crate::{Image, digest};

/// Writes the archive of an image in the layout at `root`. The same image gives the same bytes.
pub(crate) fn write_archive<W: Write>(root: &Path, image: &Image, writer: W) -> io::Result<W> {
    let manifest = layout::blob(root, &image.digest);
    let stored: Manifest = serde_json::from_slice(&fs::read(&manifest)?)?;
    let mut blobs: BTreeMap<Digest, PathBuf> = BTreeMap::from([(image.digest.clone(), manifest)]);
    for part in stored.layers.iter().chain([&stored.config]) {
        let path = layout::blob(root, &part.digest);
        if digest::of_reader(File::open(&path)?)?.0 != part.digest {
            return Err(io::Error::other(format!("{}: {} is damaged", image.reference, part.digest)));
        }
        blobs.insert(part.digest.clone(), path);
    }
    let index = Index::new(vec![layout::image_entry(image.digest.clone(), image.size, &image.reference)]);
    write(&blobs, &serde_json::to_vec(&index)?, writer)
}

fn write<W: Write>(blobs: &BTreeMap<Digest, PathBuf>, index: &[u8], writer: W) -> io::Result<W> {
    let mut tar = tar::Builder::new(writer);
    for (digest, source) in blobs {
        let file = File::open(source)?;
        append_stream(&mut tar, &format!("blobs/sha256/{digest}"), 0o644, file.metadata()?.len(), file)?;
    }
    for (path, bytes) in [(layout::INDEX_FILE, index), (layout::LAYOUT_FILE, layout::LAYOUT.as_bytes())] {
        append_stream(&mut tar, path, 0o644, bytes.len() as u64, bytes)?;
    }
    tar.into_inner()
}
