//! The unpacked parts of bundles: one folder for each, named by the digest of its blob.
//!
//! A folder is trusted while every file in it has the size, mode and time that it had when it was unpacked.
//! A host that loses power before the kernel wrote a file out shows a shorter file afterwards, so files of
//! a part need not be synced one by one, which would cost more than unpacking them.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kubeon_api::Digest;
use kubeon_wire::StepFailure;

use crate::durable::{read_text, sha256, sync_folder, write_file};
use crate::failure::{Doing, failed};
use crate::paths;
use crate::root::Root;

/// Marks what is on its way in or out; never a part.
const UNFINISHED: &str = ".tmp-";

/// The folder of a part, whether it is there or not.
#[must_use]
pub fn folder(root: &Root, digest: &Digest) -> PathBuf {
    root.at(paths::PARTS).join(digest.as_str())
}

/// A folder for a part on its way in. The step's identity keeps two steps for one part apart.
#[must_use]
pub fn unfinished(root: &Root, digest: &Digest, step: &str) -> PathBuf {
    let who = sha256(step.as_bytes());
    root.at(paths::PARTS).join(format!("{UNFINISHED}{digest}-{}", &who[..8]))
}

/// Removes what a broken-off program left on its way in or out.
///
/// # Errors
/// When it cannot be removed.
pub fn sweep(root: &Root) -> Result<(), StepFailure> {
    for name in names(root)?.iter().filter(|name| name.starts_with(UNFINISHED)) {
        remove(&root.at(paths::PARTS).join(name))?;
    }
    Ok(())
}

/// The parts that are whole.
///
/// # Errors
/// When the folders cannot be read.
pub fn whole(root: &Root) -> Result<Vec<Digest>, StepFailure> {
    let mut parts = Vec::new();
    for digest in names(root)?.iter().filter_map(|name| name.parse::<Digest>().ok()) {
        if is_whole(root, &digest)? {
            parts.push(digest);
        }
    }
    parts.sort();
    Ok(parts)
}

/// Whether the part is there with every file as it was unpacked.
///
/// # Errors
/// When it cannot be looked at.
pub fn is_whole(root: &Root, digest: &Digest) -> Result<bool, StepFailure> {
    let folder = folder(root, digest);
    let Some(recorded) = read_text(&list_place(root, digest))? else { return Ok(false) };
    Ok(folder.is_dir() && list(&folder)? == recorded)
}

/// Puts a complete folder in the part's place; a damaged one that is there makes room.
///
/// # Errors
/// When it cannot be put there.
pub fn put(root: &Root, digest: &Digest, complete: &Path) -> Result<(), StepFailure> {
    let place = folder(root, digest);
    let parts = root.at(paths::PARTS);
    let list = list(complete)?;
    let aside = parts.join(format!("{UNFINISHED}old-{digest}"));
    if place.exists() {
        fs::rename(&place, &aside).doing("move aside", &place)?;
    }
    write_file(&list_place(root, digest), list.as_bytes(), 0o644)?;
    fs::rename(complete, &place).doing("put in place", &place)?;
    sync_folder(&parts)?;
    if aside.exists() { remove(&aside) } else { Ok(()) }
}

/// Removes a folder and what is in it.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(folder: &Path) -> Result<(), StepFailure> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).doing("remove", folder),
        _ => Ok(()),
    }
}

fn list_place(root: &Root, digest: &Digest) -> PathBuf {
    root.at(paths::PARTS).join(format!(".list-{digest}"))
}

fn names(root: &Root) -> Result<Vec<String>, StepFailure> {
    let parts = root.at(paths::PARTS);
    match fs::read_dir(&parts) {
        Ok(entries) => {
            let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
            entries.map(|entry| entry.map(name).doing("read the folder", &parts)).collect()
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).doing("read the folder", &parts),
    }
}

/// A digest over the path, size, mode and time of every file.
fn list(folder: &Path) -> Result<String, StepFailure> {
    let mut lines = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).doing("read the folder", &next)? {
            let entry = entry.doing("read the folder", &next)?;
            let path = entry.path();
            let found = fs::symlink_metadata(&path).doing("look at", &path)?;
            if found.is_dir() {
                folders.push(path);
                continue;
            }
            let mut line = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
            let (size, mode) = (found.size(), found.mode());
            write!(line, "\0{size}\0{mode:o}\0{}.{}", found.mtime(), found.mtime_nsec())
                .map_err(|_| failed("cannot list a part"))?;
            lines.push(line);
        }
    }
    lines.sort();
    Ok(sha256(lines.join("\n").as_bytes()))
}
