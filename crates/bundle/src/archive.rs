//! A bundle as one file, to carry it over an air gap: its OCI layout as a tar archive, which tools for OCI archives read too.
//!
//! ```text
//!   bundle folder ── save ──► FILE ── load: unpack ─► check every SHA-256 ─► rename into the store
//! ```

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write as _};
use std::path::{Component, Path, PathBuf};

use kubeon_atomic_file::AtomicFile;
use tar::{Archive, Builder, EntryType, Header};

use crate::bundle::ArchiveFile;
use crate::cache::{self, Scratch};
use crate::digest::HashingWriter;
use crate::layout::{INDEX_FILE, LAYOUT_FILE};
use crate::signature::SIGNATURE_FILE;
use crate::{Bundle, BundleError, BundleStore, Digest, VerifyError};

/// The folder of the blobs in an archive.
const BLOBS: &str = "blobs/sha256";

/// The reason why a bundle cannot be saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum BundleArchiveError {
    /// The archive cannot be written.
    #[error("{path} cannot be written: {source}", path = path.display())]
    Write {
        /// The archive.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The archive cannot be read, or ends in the middle.
    #[error("{path} cannot be read: {source}", path = path.display())]
    Read {
        /// The archive.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The bundle cannot be written into the store.
    #[error("the bundle cannot be written to {path}: {source}", path = path.display())]
    Store {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The archive contains what no bundle contains.
    #[error("{path} is not the archive of a bundle: it contains {entry}", path = path.display())]
    Foreign {
        /// The archive.
        path: PathBuf,
        /// The name of the entry.
        entry: String,
    },
    /// The layout in the archive is not that of a bundle.
    #[error("{path} is not the archive of a bundle: {source}", path = path.display())]
    Shape {
        /// The archive.
        path: PathBuf,
        /// The reason.
        #[source]
        source: BundleError,
    },
    /// A part is missing or differs from its SHA-256.
    #[error("{path} is damaged: {damage}", path = path.display())]
    Damaged {
        /// The archive.
        path: PathBuf,
        /// Every damaged part.
        damage: VerifyError,
    },
}

/// Writes the bundle to `path`. The same bundle gives the same bytes. The file appears complete or not at all.
///
/// # Errors
/// When a file of the bundle cannot be read, or the archive cannot be written.
pub fn save(bundle: &Bundle, path: &Path) -> Result<ArchiveFile, BundleArchiveError> {
    write(bundle, path).map_err(|source| BundleArchiveError::Write { path: path.to_owned(), source })
}

fn write(bundle: &Bundle, path: &Path) -> io::Result<ArchiveFile> {
    let file = AtomicFile::beside(path, 0o644)?;
    let writer = HashingWriter::new(BufWriter::new(file.as_file().try_clone()?));
    let mut archive = Builder::new(writer);
    for name in names(bundle.root())? {
        append(&mut archive, bundle.root(), &name)?;
    }
    let (mut writer, digest, size) = archive.into_inner()?.finish()?;
    writer.flush()?;
    file.commit(path)?;
    Ok(ArchiveFile { path: path.to_owned(), digest, size })
}

/// The files of the layout: the small ones first, then the blobs by digest.
fn names(root: &Path) -> io::Result<Vec<String>> {
    let mut blobs = Vec::new();
    for entry in fs::read_dir(root.join(BLOBS))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // Names of unfinished files start with a dot.
        if name.parse::<Digest>().is_ok() {
            blobs.push(format!("{BLOBS}/{name}"));
        }
    }
    blobs.sort_unstable();
    let signature = Some(SIGNATURE_FILE).filter(|file| root.join(file).is_file());
    let small = [LAYOUT_FILE, INDEX_FILE].into_iter().chain(signature);
    Ok(small.map(str::to_owned).chain(blobs).collect())
}

fn append(archive: &mut Builder<impl io::Write>, root: &Path, name: &str) -> io::Result<()> {
    let file = File::open(root.join(name))?;
    let mut header = Header::new_ustar();
    header.set_size(file.metadata()?.len());
    header.set_mode(0o644);
    header.set_entry_type(EntryType::Regular);
    archive.append_data(&mut header, name, file)
}

/// Unpacks the archive into the store, and checks everything before the bundle appears there. A bundle of the same version
/// and architecture is replaced.
///
/// # Errors
/// When the archive cannot be read, is not that of a bundle, or is damaged; nothing of it stays.
pub fn load(store: &BundleStore, path: &Path) -> Result<Bundle, BundleArchiveError> {
    let target = |source| BundleArchiveError::Store { path: store.bundles().to_owned(), source };
    let scratch = Scratch::new(store.bundles(), "load").map_err(target)?;
    let folder = scratch.folder("bundle").map_err(target)?;
    unpack(path, &folder)?;
    let shape = |source| BundleArchiveError::Shape { path: path.to_owned(), source };
    let unpacked = Bundle::open(&folder).map_err(shape)?;
    unpacked.verify().map_err(|damage| BundleArchiveError::Damaged { path: path.to_owned(), damage })?;
    let manifest = unpacked.manifest();
    let place = store.folder(manifest.kubernetes, manifest.arch);
    cache::replace(&folder, &place).map_err(target)?;
    Bundle::open(&place).map_err(shape)
}

fn unpack(path: &Path, folder: &Path) -> Result<(), BundleArchiveError> {
    let unreadable = |source| BundleArchiveError::Read { path: path.to_owned(), source };
    let mut archive = Archive::new(BufReader::new(File::open(path).map_err(unreadable)?));
    for entry in archive.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let name = entry.path().map_err(unreadable)?.into_owned();
        if entry.header().entry_type() == EntryType::Directory {
            continue;
        }
        if entry.header().entry_type() != EntryType::Regular || !is_of_a_layout(&name) {
            let entry = name.display().to_string();
            return Err(BundleArchiveError::Foreign { path: path.to_owned(), entry });
        }
        copy(&mut entry, &folder.join(&name), unreadable)?;
    }
    Ok(())
}

/// Whether the name is that of a file of an OCI layout. No other name is used as a path.
fn is_of_a_layout(name: &Path) -> bool {
    let plain = name.components().all(|part| matches!(part, Component::Normal(_)));
    let is_blob = || {
        let digest = name.file_name().and_then(|name| name.to_str());
        name.parent() == Some(Path::new(BLOBS)) && digest.is_some_and(|name| name.parse::<Digest>().is_ok())
    };
    let is_small = || [LAYOUT_FILE, INDEX_FILE, SIGNATURE_FILE].iter().any(|file| name == Path::new(file));
    plain && (is_small() || is_blob())
}

/// Copies an entry. An error of the archive and an error of the disk are told apart.
fn copy(
    entry: &mut impl Read,
    place: &Path,
    unreadable: impl Fn(io::Error) -> BundleArchiveError,
) -> Result<(), BundleArchiveError> {
    let failed = |source| BundleArchiveError::Store { path: place.to_owned(), source };
    if let Some(parent) = place.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    let mut file = File::create_new(place).map_err(failed)?;
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match entry.read(&mut buffer).map_err(&unreadable)? {
            0 => return file.sync_data().map_err(failed),
            count => file.write_all(&buffer[..count]).map_err(failed)?,
        }
    }
}

#[cfg(test)]
mod tests;
