//! Packs files into one blob, with the same bytes every time: sorted names, times 0, owner root, modes 0755 or 0644.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use kubeon_api::Digest;
use kubeon_atomic_file::AtomicFile;

use crate::digest::HashingWriter;
use crate::{Part, PartKind, PartSource};

/// Version of the packing. It changes whenever the same files give other bytes, so that caches do not reuse old blobs.
pub(crate) const FORMAT: u32 = 2;

/// Level 6 of 22: level 9 takes twice the time for 3 to 5 % less space, level 3 a third for 7 % more.
const LEVEL: i32 = 6;

/// The entries of a tar by path, without a leading slash. A `BTreeMap` keeps them sorted.
pub type TarTree = BTreeMap<String, TarContent>;

/// One entry of a tar.
#[derive(Debug, Clone)]
pub enum TarContent {
    /// A folder.
    Directory {
        /// Its permissions.
        mode: u32,
    },
    /// A symbolic link to this target.
    Link(String),
    /// A file with the content of a file on disk.
    File {
        /// The file on disk.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file with this content.
    Bytes {
        /// The content.
        bytes: Vec<u8>,
        /// Its permissions.
        mode: u32,
    },
}

/// A finished blob.
#[derive(Debug, Clone)]
pub struct Packed {
    /// SHA-256 of the blob; the name of its file.
    pub digest: Digest,
    /// Bytes of the blob.
    pub size: u64,
    /// SHA-256 of the tar inside.
    pub diff_id: Digest,
    /// Bytes of the tar inside.
    pub tar_size: u64,
    /// Bytes of all files in it.
    pub unpacked_size: u64,
}

impl Packed {
    /// The part whose blob this is.
    pub(crate) fn part(
        self,
        name: &str,
        kind: PartKind,
        version: &str,
        programs: Vec<String>,
        source: PartSource,
    ) -> Part {
        Part {
            name: name.to_owned(),
            kind,
            version: version.to_owned(),
            digest: self.digest,
            size: self.size,
            unpacked_size: self.unpacked_size,
            diff_id: self.diff_id,
            tar_size: self.tar_size,
            image: None,
            programs,
            source,
        }
    }
}

/// Writes the blob into `folder`, named after its digest, and makes it durable. The file is read-only.
///
/// # Errors
/// When a file cannot be read or written.
pub fn pack(tree: &TarTree, folder: &Path) -> io::Result<Packed> {
    let temporary = AtomicFile::new_in(folder, 0o444)?;
    let file = HashingWriter::new(BufWriter::new(temporary.as_file().try_clone()?));
    let encoder = zstd::Encoder::new(file, LEVEL)?;
    let (encoder, unpacked_size) = write_tar(tree, HashingWriter::new(encoder))?;
    let (encoder, diff_id, tar_size) = encoder.finish()?;
    let (mut file, digest, size) = encoder.finish()?.finish()?;
    file.flush()?;
    temporary.commit(&folder.join(digest.as_str()))?;
    Ok(Packed { digest, size, diff_id, tar_size, unpacked_size })
}

/// Writes a tar without compression. Returns the writer and the size of all files in bytes.
///
/// # Errors
/// When a file cannot be read or written.
pub fn write_tar<W: Write>(tree: &TarTree, writer: W) -> io::Result<(W, u64)> {
    let mut tar = tar::Builder::new(writer);
    let mut unpacked = 0;
    for (path, content) in tree {
        unpacked += append(&mut tar, path, content)?;
    }
    Ok((tar.into_inner()?, unpacked))
}

fn append<W: Write>(tar: &mut tar::Builder<W>, path: &str, content: &TarContent) -> io::Result<u64> {
    match content {
        TarContent::Directory { mode } => {
            let mut header = header(tar::EntryType::Directory, *mode, 0);
            tar.append_data(&mut header, format!("{path}/"), io::empty())?;
            Ok(0)
        }
        TarContent::Link(target) => {
            tar.append_link(&mut header(tar::EntryType::Symlink, 0o777, 0), path, target)?;
            Ok(0)
        }
        TarContent::Bytes { bytes, mode } => {
            let size = bytes.len() as u64;
            tar.append_data(&mut header(tar::EntryType::Regular, *mode, size), path, bytes.as_slice())?;
            Ok(size)
        }
        TarContent::File { path: source, mode } => {
            let file = File::open(source)?;
            let size = file.metadata()?.len();
            append_stream(tar, path, *mode, size, file)?;
            Ok(size)
        }
    }
}

/// Adds a file of a known size from a stream.
///
/// # Errors
/// When the stream has another size, which would shift all later entries, or when it cannot be read or written.
pub fn append_stream<W: Write>(
    tar: &mut tar::Builder<W>,
    path: &str,
    mode: u32,
    size: u64,
    mut stream: impl Read,
) -> io::Result<()> {
    let mut limited = Counted { inner: (&mut stream).take(size), read: 0 };
    tar.append_data(&mut header(tar::EntryType::Regular, mode, size), path, &mut limited)?;
    let read = limited.read;
    if read != size || stream.read(&mut [0])? != 0 {
        return Err(io::Error::other(format!("{path} is not {size} bytes long")));
    }
    Ok(())
}

struct Counted<R> {
    inner: R,
    read: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read += count as u64;
        Ok(count)
    }
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header
}

/// Everything below a folder, with uniform modes. Devices, sockets and pipes are refused.
///
/// # Errors
/// For devices, sockets and pipes, for names that are not UTF-8, and when a folder cannot be read.
pub fn tree(root: &Path) -> io::Result<TarTree> {
    let mut found = TarTree::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            let metadata = entry.metadata()?;
            let content = if metadata.is_dir() {
                pending.push(path.clone());
                TarContent::Directory { mode: 0o755 }
            } else if metadata.is_symlink() {
                TarContent::Link(text(&fs::read_link(entry.path())?)?)
            } else if metadata.is_file() {
                let is_executable = metadata.permissions().mode() & 0o111 != 0;
                TarContent::File { path: entry.path(), mode: if is_executable { 0o755 } else { 0o644 } }
            } else {
                return Err(io::Error::other(format!("{} is neither file, folder nor link", path.display())));
            };
            found.insert(text(&path)?, content);
        }
    }
    Ok(found)
}

/// The path as text: names in these tars are UTF-8.
fn text(path: &Path) -> io::Result<String> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| io::Error::other(format!("{} is not UTF-8", path.display())))
}

/// Adds the parent folders of every entry, so that they have a defined mode when unpacked.
pub fn add_parents(tree: &mut TarTree) {
    let mut parents = Vec::new();
    for path in tree.keys() {
        let mut rest = path.as_str();
        while let Some((parent, _)) = rest.rsplit_once('/') {
            parents.push(parent.to_owned());
            rest = parent;
        }
    }
    for parent in parents {
        tree.entry(parent).or_insert(TarContent::Directory { mode: 0o755 });
    }
}

#[cfg(test)]
mod tests;
