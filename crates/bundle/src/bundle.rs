//! A finished bundle: open it, list its contents, read a blob, verify that no bit changed.

mod blobs;
pub(crate) mod error;
mod verify;

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use kubeon_api::Digest;
use kubeon_atomic_file::AtomicFile;

use crate::digest::HashingWriter;
use crate::layout::{self, Index, Manifest};
use crate::manifest::SCHEMA;
use crate::{BundleManifest, Part, image};

use blobs::{checked, decode, read};
pub use error::BundleError;
use error::shape;
pub use verify::{Damage, VerifyError};

/// A bundle on disk.
#[derive(Debug, Clone)]
pub struct Bundle {
    root: PathBuf,
    manifest: BundleManifest,
}

/// A written file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveFile {
    /// Its path.
    pub path: PathBuf,
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
}

impl Bundle {
    /// Opens the layout in a folder. The index, the manifest and its config are checked against their digests; blobs
    /// are not, which [`Bundle::verify`] does.
    ///
    /// # Errors
    /// The folder is not a bundle, is damaged, or has a newer format.
    pub fn open(root: &Path) -> Result<Self, BundleError> {
        let path = root.join(layout::INDEX_FILE);
        let index: Index = decode(&path, &read(&path)?)?;
        let is_bundle = |entry: &&layout::Descriptor| entry.artifact_type.as_deref() == Some(layout::BUNDLE);
        let entry =
            index.manifests.iter().find(is_bundle).ok_or_else(|| shape(&path, "it lists no bundle"))?;
        let (path, bytes) = checked(root, &entry.digest)?;
        let manifest: Manifest = decode(&path, &bytes)?;
        let (path, bytes) = checked(root, &manifest.config.digest)?;
        let newer = serde_json::from_slice::<serde_json::Value>(&bytes)
            .ok()
            .and_then(|value| value.get("schema")?.as_u64())
            .is_some_and(|schema| schema > u64::from(SCHEMA));
        if newer {
            return Err(shape(&path, "its format is newer than this kubeon; use a newer one"));
        }
        Ok(Self { root: root.to_owned(), manifest: decode(&path, &bytes)? })
    }

    /// The bundle's folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The list of its contents.
    #[must_use]
    pub fn manifest(&self) -> &BundleManifest {
        &self.manifest
    }

    /// The part of that name.
    ///
    /// # Errors
    /// The bundle has no such part; the error lists the existing names.
    pub fn part(&self, name: &str) -> Result<&Part, BundleError> {
        self.manifest.part(name).ok_or_else(|| {
            self.no_such("part", name, self.manifest.parts.iter().map(|part| part.name.as_str()).collect())
        })
    }

    /// The file of a blob. It may be missing: [`Bundle::open`] does not check blobs.
    #[must_use]
    pub fn blob(&self, digest: &Digest) -> PathBuf {
        layout::blob(&self.root, digest)
    }

    /// The size of all parts in bytes, as they are sent to an empty host.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.manifest.parts.iter().map(|part| part.size).sum()
    }

    /// Writes an image, by short name or reference, as an OCI archive for `ctr -n k8s.io images import`. The same image
    /// gives the same bytes. The file appears complete or not at all.
    ///
    /// # Errors
    /// No such image, a damaged layer, or a file that cannot be written.
    pub fn image_archive(&self, name: &str, path: &Path) -> Result<ArchiveFile, BundleError> {
        let image = self.manifest.image(name).ok_or_else(|| {
            self.no_such(
                "image",
                name,
                self.manifest.images.iter().map(|image| image.name.as_str()).collect(),
            )
        })?;
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let work = || -> io::Result<ArchiveFile> {
            let file = AtomicFile::new_in(folder, 0o600)?;
            let writer = HashingWriter::new(BufWriter::new(file.as_file().try_clone()?));
            let (mut writer, digest, size) = image::write_archive(&self.root, image, writer)?.finish()?;
            writer.flush()?;
            file.commit(path)?;
            Ok(ArchiveFile { path: path.to_owned(), digest, size })
        };
        work().map_err(|source| BundleError::Archive {
            image: image.reference.clone(),
            path: path.to_owned(),
            source,
        })
    }

    /// Re-hashes every blob and compares the layout's own files with the manifest.
    ///
    /// # Errors
    /// Everything that is missing or changed, by name.
    pub fn verify(&self) -> Result<(), VerifyError> {
        verify::verify(&self.root, &self.manifest)
    }

    /// Re-hashes the parts with these digests, in parallel.
    ///
    /// # Errors
    /// Everything that is missing or changed, by name.
    pub fn verify_parts(&self, wanted: &BTreeSet<Digest>) -> Result<(), VerifyError> {
        verify::verify_parts(&self.root, &self.manifest, wanted)
    }

    fn no_such(&self, kind: &'static str, name: &str, known: Vec<&str>) -> BundleError {
        let (version, name) = (self.manifest.kubernetes, name.to_owned());
        BundleError::NoSuch { version, kind, name, known: known.join(", ") }
    }
}

#[cfg(test)]
mod kubeadm_tests;
#[cfg(test)]
pub(crate) mod tests;
