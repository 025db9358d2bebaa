//! The unpacked parts of bundles: one folder for each part, named by the digest of its blob.
//!
//! A folder is valid while every file in it has the size, mode and time that it had when it was unpacked. If a host
//! loses power before the kernel has written a file, the file is shorter afterwards. Therefore the files of a part
//! are not synced one by one, which would take longer than unpacking them, and neither is the list of them: a part that
//! does not agree with its list is copied again.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kubeon_api::Digest;
use kubeon_wire::StepFailure;

use crate::durable::{read_text, sha256, stage_file};
use crate::failure::{Doing, failed};
use crate::paths;
use crate::root::Root;

/// The prefix of folders that are being installed or removed.
const UNFINISHED: &str = ".tmp-";

/// The folder of a part, which may not exist.
#[must_use]
pub fn folder(root: &Root, digest: &Digest) -> PathBuf {
    root.at(paths::PARTS).join(digest.as_str())
}

/// The temporary folder for unpacking a part. It differs for two steps with the same part.
#[must_use]
pub fn unfinished(root: &Root, digest: &Digest, step: &str) -> PathBuf {
    let step_digest = sha256(step.as_bytes());
    root.at(paths::PARTS).join(format!("{UNFINISHED}{digest}-{}", &step_digest[..8]))
}

/// The folder of the bytes that a session keeps for other hosts.
#[must_use]
pub fn spool(root: &Root) -> PathBuf {
    root.at(paths::PARTS).join(format!("{UNFINISHED}spool"))
}

/// Removes the temporary folders of interrupted sessions.
///
/// # Errors
/// If a folder cannot be removed.
pub fn sweep(root: &Root) -> Result<(), StepFailure> {
    for name in names(root)?.iter().filter(|name| name.starts_with(UNFINISHED)) {
        remove(&root.at(paths::PARTS).join(name))?;
    }
    Ok(())
}

/// The complete parts.
///
/// # Errors
/// If the folders cannot be read.
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

/// Whether the part exists and every file in it is unchanged.
///
/// # Errors
/// If the folder cannot be read.
pub fn is_whole(root: &Root, digest: &Digest) -> Result<bool, StepFailure> {
    let folder = folder(root, digest);
    let Some(recorded) = read_text(&list_place(root, digest))? else { return Ok(false) };
    Ok(folder.is_dir() && list(&folder)? == recorded)
}

/// Moves a complete folder to the part's path and replaces a damaged folder there.
///
/// # Errors
/// If it cannot be moved.
pub fn put(root: &Root, digest: &Digest, complete: &Path) -> Result<(), StepFailure> {
    let place = folder(root, digest);
    let parts = root.at(paths::PARTS);
    let list = list(complete)?;
    let aside = parts.join(format!("{UNFINISHED}old-{digest}"));
    if place.exists() {
        fs::rename(&place, &aside).doing("move aside", &place)?;
    }
    let listed = list_place(root, digest);
    stage_file(&listed, list.as_bytes(), 0o644)?.commit_without_sync(&listed).doing("replace", &listed)?;
    fs::rename(complete, &place).doing("rename the unpacked part to", &place)?;
    if aside.exists() { remove(&aside) } else { Ok(()) }
}

/// Removes a folder and its content.
///
/// # Errors
/// If it cannot be removed.
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
            let found = fs::symlink_metadata(&path).doing("read the metadata of", &path)?;
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
