//! Files into one blob, the same bytes every time: names sorted, times 0, owner root, modes 0755 or 0644.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use kubeon_api::Digest;
use kubeon_atomic_file::AtomicFile;

use crate::digest::HashingWriter;
use crate::{Part, PartKind, Source};

/// Raised whenever the same files would give other bytes, so that no cache serves the old ones.
pub(crate) const FORMAT: u32 = 1;

/// Level 9 of 22: past it the files hardly shrink while the time doubles.
const LEVEL: i32 = 9;

/// What goes into a tar, by its path there (no leading slash). A `BTreeMap` keeps the order.
pub type Tree = BTreeMap<String, Content>;

/// One entry of a tar.
#[derive(Debug, Clone)]
pub enum Content {
    /// A folder.
    Directory {
        /// Its permissions.
        mode: u32,
    },
    /// A symbolic link to this.
    Link(String),
    /// A file with what another one holds.
    File {
        /// The other one.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file.
    Bytes {
        /// What it holds.
        bytes: Vec<u8>,
        /// Its permissions.
        mode: u32,
    },
}

/// A finished blob.
#[derive(Debug, Clone)]
pub struct Packed {
    /// Of the blob, which is its file's name.
    pub digest: Digest,
    /// Bytes of the blob.
    pub size: u64,
    /// Of the tar inside.
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
        source: Source,
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
pub fn pack(tree: &Tree, folder: &Path) -> io::Result<Packed> {
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

/// Writes a tar without compression; answers the writer and the bytes of all files.
///
/// # Errors
/// When a file cannot be read or written.
pub fn write_tar<W: Write>(tree: &Tree, writer: W) -> io::Result<(W, u64)> {
    let mut tar = tar::Builder::new(writer);
    let mut unpacked = 0;
    for (path, content) in tree {
        unpacked += append(&mut tar, path, content)?;
    }
    Ok((tar.into_inner()?, unpacked))
}

fn append<W: Write>(tar: &mut tar::Builder<W>, path: &str, content: &Content) -> io::Result<u64> {
    match content {
        Content::Directory { mode } => {
            let mut header = header(tar::EntryType::Directory, *mode, 0);
            tar.append_data(&mut header, format!("{path}/"), io::empty())?;
            Ok(0)
        }
        Content::Link(target) => {
            tar.append_link(&mut header(tar::EntryType::Symlink, 0o777, 0), path, target)?;
            Ok(0)
        }
        Content::Bytes { bytes, mode } => {
            let size = bytes.len() as u64;
            tar.append_data(&mut header(tar::EntryType::Regular, *mode, size), path, bytes.as_slice())?;
            Ok(size)
        }
        Content::File { path: source, mode } => {
            let file = File::open(source)?;
            let size = file.metadata()?.len();
            append_stream(tar, path, *mode, size, file)?;
            Ok(size)
        }
    }
}

/// Adds a file of a known size from a stream.
///
/// A stream that ends early or goes on would shift everything behind it, so both are errors.
///
/// # Errors
/// These, and when nothing can be read or written.
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

/// Everything below a folder, with modes made uniform. Devices, sockets and pipes are refused.
///
/// # Errors
/// For these, for names that are not UTF-8, and when a folder cannot be read.
pub fn tree(root: &Path) -> io::Result<Tree> {
    let mut found = Tree::new();
    let mut open = vec![PathBuf::new()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            let metadata = entry.metadata()?;
            let content = if metadata.is_dir() {
                open.push(path.clone());
                Content::Directory { mode: 0o755 }
            } else if metadata.is_symlink() {
                Content::Link(text(&fs::read_link(entry.path())?)?)
            } else if metadata.is_file() {
                let runs = metadata.permissions().mode() & 0o111 != 0;
                Content::File { path: entry.path(), mode: if runs { 0o755 } else { 0o644 } }
            } else {
                return Err(io::Error::other(format!("{} is neither file, folder nor link", path.display())));
            };
            found.insert(text(&path)?, content);
        }
    }
    Ok(found)
}

/// A path that is text, as tar names here are.
fn text(path: &Path) -> io::Result<String> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| io::Error::other(format!("{} is not UTF-8", path.display())))
}

/// Adds the folders above every entry, so that unpacking never has to guess their modes.
pub fn add_parents(tree: &mut Tree) {
    let mut parents = Vec::new();
    for path in tree.keys() {
        let mut rest = path.as_str();
        while let Some((parent, _)) = rest.rsplit_once('/') {
            parents.push(parent.to_owned());
            rest = parent;
        }
    }
    for parent in parents {
        tree.entry(parent).or_insert(Content::Directory { mode: 0o755 });
    }
}

#[cfg(test)]
mod tests;
