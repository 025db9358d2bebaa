//! A finished bundle: open it, look at it, take a blob, prove that no bit changed.

mod verify;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use kubeon_api::{Digest, Version};
use kubeon_atomic_file::AtomicFile;

use crate::digest::HashingWriter;
use crate::layout::{self, Index, Manifest};
use crate::manifest::SCHEMA;
use crate::{Arch, BundleManifest, Part, image};

pub use verify::{Damage, VerifyError};

/// Why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// No such bundle.
    #[error("there is no bundle for {version} {arch} ({folder}); make it with: kubeon bundle build {version}", folder = folder.display())]
    Absent {
        /// The version asked for.
        version: Version,
        /// The architecture asked for.
        arch: Arch,
        /// Where it would lie.
        folder: PathBuf,
    },
    /// A file of it is missing or cannot be read.
    #[error("{path} cannot be read: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A file of it does not have the expected shape.
    #[error("{path} is not part of a bundle: {why}", path = path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The bundle has no part or image of that name.
    #[error("the bundle of {version} has no {kind} called {name}; it has {known}")]
    NoSuch {
        /// The bundle's version.
        version: Version,
        /// `part` or `image`.
        kind: &'static str,
        /// The name asked for.
        name: String,
        /// The names there are, as one text.
        known: String,
    },
    /// An image's archive cannot be written.
    #[error("the archive of {image} cannot be written to {path}: {source}", path = path.display())]
    Archive {
        /// The image.
        image: String,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

/// A bundle on disk.
#[derive(Debug, Clone)]
pub struct Bundle {
    root: PathBuf,
    manifest: BundleManifest,
}

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveFile {
    /// Where it lies.
    pub path: PathBuf,
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// Its bytes.
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

    /// Opens the bundle of a version for this machine's architecture in the user's store.
    ///
    /// # Errors
    /// There is none, it is damaged, or there is no store.
    pub fn find(version: Version) -> Result<Self, BundleError> {
        let no_home = |error| shape(Path::new("~/.cache/kubeon"), error);
        crate::Store::from_env().map_err(no_home)?.find(version, Arch::native())
    }

    /// The bundle's folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What it holds.
    #[must_use]
    pub fn manifest(&self) -> &BundleManifest {
        &self.manifest
    }

    /// The part of that name.
    ///
    /// # Errors
    /// There is none; the error lists the names there are.
    pub fn part(&self, name: &str) -> Result<&Part, BundleError> {
        self.manifest.part(name).ok_or_else(|| {
            self.no_such("part", name, self.manifest.parts.iter().map(|part| part.name.as_str()).collect())
        })
    }

    /// The file of a blob. It exists in a bundle that was opened, unless somebody removed it since.
    #[must_use]
    pub fn blob(&self, digest: &Digest) -> PathBuf {
        layout::blob(&self.root, digest)
    }

    /// Bytes of all parts, as they are sent to a host that has none.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.manifest.parts.iter().map(|part| part.size).sum()
    }

    /// Writes an image, by short name or reference, as an OCI archive for `ctr -n k8s.io images import`. The same image
    /// gives the same bytes. The file appears whole or not at all.
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
        verify::verify(self)
    }

    /// Re-hashes the parts with these digests, side by side: before they are sent anywhere.
    ///
    /// # Errors
    /// Everything that is missing or changed, by name.
    pub fn verify_parts(&self, wanted: &BTreeSet<Digest>) -> Result<(), VerifyError> {
        verify::verify_parts(self, wanted)
    }

    fn no_such(&self, kind: &'static str, name: &str, known: Vec<&str>) -> BundleError {
        let (version, name) = (self.manifest.kubernetes, name.to_owned());
        BundleError::NoSuch { version, kind, name, known: known.join(", ") }
    }
}

fn shape(path: &Path, why: impl ToString) -> BundleError {
    BundleError::Shape { path: path.to_owned(), why: why.to_string() }
}

fn read(path: &Path) -> Result<Vec<u8>, BundleError> {
    fs::read(path).map_err(|source| BundleError::Read { path: path.to_owned(), source })
}

fn decode<T: for<'de> serde::Deserialize<'de>>(path: &Path, bytes: &[u8]) -> Result<T, BundleError> {
    serde_json::from_slice(bytes).map_err(|error| shape(path, error))
}

/// A small blob whose bytes have the digest that they are filed under.
fn checked(root: &Path, digest: &Digest) -> Result<(PathBuf, Vec<u8>), BundleError> {
    let path = layout::blob(root, digest);
    let bytes = read(&path)?;
    let found = crate::digest::of_bytes(&bytes).map_err(|error| shape(&path, error))?;
    if found != *digest {
        return Err(shape(&path, format!("its content has the digest {found}")));
    }
    Ok((path, bytes))
}

#[cfg(test)]
pub(crate) mod tests;
