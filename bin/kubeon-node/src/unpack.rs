//! Unpacks a tar stream into a new folder. No entry of the stream can write outside the folder.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use tar::{Archive, Entry, EntryType};

/// Bytes copied at once: large enough to make the cost of system calls small, and small enough for the cache.
const CHUNK: usize = 256 << 10;

/// The reason why a stream could not be unpacked.
#[derive(Debug)]
pub enum UnpackError {
    /// The stream ended, broke, or is not a tar stream.
    Stream(io::Error),
    /// An entry has a kind or path that is not allowed.
    Refused(String),
    /// A file could not be written.
    Write(PathBuf, io::Error),
}

/// Unpacks into `folder`, which must be new and not used by another program. Owners and times of the stream
/// are ignored; set-user-ID bits and device files are refused.
///
/// # Errors
/// [`UnpackError`]; the folder is then incomplete.
pub fn unpack(stream: impl Read, folder: &Path) -> Result<(), UnpackError> {
    let mut unpacker = Unpacker { folder, links: BTreeSet::new(), modes: Vec::new(), chunk: vec![0; CHUNK] };
    let mut archive = Archive::new(stream);
    for entry in archive.entries().map_err(UnpackError::Stream)? {
        unpacker.entry(&mut entry.map_err(UnpackError::Stream)?)?;
    }
    // Set last and in reverse order, because a folder may be read-only for its owner.
    for (path, mode) in unpacker.modes.iter().rev() {
        set_mode(path, *mode)?;
    }
    Ok(())
}

struct Unpacker<'a> {
    folder: &'a Path,
    links: BTreeSet<PathBuf>,
    modes: Vec<(PathBuf, u32)>,
    chunk: Vec<u8>,
}

impl Unpacker<'_> {
    fn entry<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> Result<(), UnpackError> {
        let named = entry.path().map_err(UnpackError::Stream)?.into_owned();
        let inside = self.inside(&named)?;
        let mode = entry.header().mode().map_err(UnpackError::Stream)?;
        if mode & 0o6000 != 0 {
            return refuse(&named, "has a set-user-ID or set-group-ID bit");
        }
        let place = self.folder.join(&inside);
        match entry.header().entry_type() {
            EntryType::Directory => {
                make_folders(&place)?;
                if !inside.as_os_str().is_empty() {
                    self.modes.push((place, mode));
                }
                Ok(())
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.parents(&place)?;
                let size = entry.size();
                self.file(entry, &place, mode, size)
            }
            EntryType::Symlink => {
                let target = link_target(entry, &named)?;
                if leaves_folder(&inside, &target) {
                    return refuse(&named, "is a link that leaves the folder");
                }
                self.parents(&place)?;
                symlink(&target, &place).map_err(|error| UnpackError::Write(place.clone(), error))?;
                self.links.insert(inside);
                Ok(())
            }
            EntryType::Link => {
                let target = self.inside(&link_target(entry, &named)?)?;
                self.parents(&place)?;
                let target = self.folder.join(target);
                fs::hard_link(target, &place).map_err(|error| UnpackError::Write(place, error))
            }
            EntryType::XGlobalHeader => Ok(()),
            _ => refuse(&named, "is neither a file, a folder nor a link"),
        }
    }

    /// The entry's path below the folder.
    fn inside(&self, named: &Path) -> Result<PathBuf, UnpackError> {
        let mut inside = PathBuf::new();
        for part in named.components() {
            match part {
                Component::Normal(name) => inside.push(name),
                Component::CurDir => {}
                _ => return refuse(named, "leaves the folder"),
            }
        }
        if inside.ancestors().any(|above| self.links.contains(above)) {
            return refuse(named, "leads through a link");
        }
        Ok(inside)
    }

    fn parents(&self, place: &Path) -> Result<(), UnpackError> {
        match place.parent() {
            Some(parent) if parent != self.folder => make_folders(parent),
            _ => Ok(()),
        }
    }

    fn file(
        &mut self,
        stream: &mut impl Read,
        place: &Path,
        mode: u32,
        size: u64,
    ) -> Result<(), UnpackError> {
        let fail = |error| UnpackError::Write(place.to_owned(), error);
        let mut open = OpenOptions::new();
        let mut file: File = open.write(true).create_new(true).mode(0o600).open(place).map_err(fail)?;
        let mut written = 0;
        loop {
            match stream.read(&mut self.chunk) {
                Ok(0) if written == size => break,
                Ok(0) => return Err(UnpackError::Stream(io::ErrorKind::UnexpectedEof.into())),
                Ok(length) => {
                    file.write_all(&self.chunk[..length]).map_err(fail)?;
                    written += length as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(UnpackError::Stream(error)),
            }
        }
        file.set_permissions(Permissions::from_mode(mode & 0o777)).map_err(fail)
    }
}

fn make_folders(place: &Path) -> Result<(), UnpackError> {
    fs::create_dir_all(place).map_err(|error| UnpackError::Write(place.to_owned(), error))
}

fn set_mode(place: &Path, mode: u32) -> Result<(), UnpackError> {
    let mode = Permissions::from_mode(mode & 0o777);
    fs::set_permissions(place, mode).map_err(|error| UnpackError::Write(place.to_owned(), error))
}

fn link_target<R: Read>(entry: &Entry<'_, R>, named: &Path) -> Result<PathBuf, UnpackError> {
    match entry.link_name().map_err(UnpackError::Stream)? {
        Some(target) => Ok(target.into_owned()),
        None => refuse(named, "is a link without a target"),
    }
}

/// Whether a relative link leads out of the folder. An absolute link is allowed: it is for a program that
/// uses the folder as its root.
fn leaves_folder(inside: &Path, target: &Path) -> bool {
    let mut depth = inside.components().count() - 1;
    for part in target.components() {
        match part {
            Component::RootDir => return false,
            Component::ParentDir if depth == 0 => return true,
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => depth += 1,
            _ => {}
        }
    }
    false
}

fn refuse<T>(named: &Path, why: &str) -> Result<T, UnpackError> {
    Err(UnpackError::Refused(format!("its entry {} {why}", named.display())))
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
