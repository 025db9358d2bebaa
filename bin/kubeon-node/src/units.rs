//! The units that kubeon wrote, of systemd and of static pods: their files, the links that enable them, and the digest of the
//! content with which each was last started.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kubeon_wire::{POD_SUFFIX, StepFailure};
use serde::{Deserialize, Serialize};

use crate::certificate::leaf_identity;
use crate::durable::{lstat, point_link, read_text, remove_file, sha256, sync_folders_of, write_file};
use crate::failure::{Doing, failed};
use crate::paths;
use crate::root::Root;

/// The units that run an API server: a service, or a static pod.
pub const API_SERVERS: [&str; 2] = ["kube-apiserver.service", "kube-apiserver.pod"];

/// Watched files that are larger are compared by size and time.
const READ_LIMIT: u64 = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    name: String,
    started: Option<String>,
}

/// Checks the name of a unit.
///
/// # Errors
/// If it is not a valid name of a unit.
pub fn check_name(name: &str) -> Result<(), StepFailure> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.@:".contains(c);
    let kinds = [".service", ".socket", ".timer", ".path", ".target", ".mount", ".slice", POD_SUFFIX];
    let valid = !name.starts_with(['-', '.']) && name.len() <= 200 && name.chars().all(good);
    if valid && kinds.iter().any(|kind| name.ends_with(kind)) {
        return Ok(());
    }
    Err(failed(format!("{name:?} is not the name of a unit")))
}

/// The path of the unit file.
#[must_use]
pub fn file(root: &Root, name: &str) -> PathBuf {
    let folder = if name.ends_with(POD_SUFFIX) { paths::POD_UNITS } else { paths::UNIT_FILES };
    root.at(folder).join(name)
}

/// The links that enable a unit according to its `[Install]` section.
#[must_use]
pub fn wants(root: &Root, name: &str, text: &str) -> Vec<PathBuf> {
    let mut links = Vec::new();
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        let suffix = match key.trim() {
            "WantedBy" => "wants",
            "RequiredBy" => "requires",
            _ => continue,
        };
        for target in value.split_whitespace().filter(|target| check_name(target).is_ok()) {
            links.push(root.at(paths::UNIT_FILES).join(format!("{target}.{suffix}")).join(name));
        }
    }
    links
}

/// Enables a unit for the next boot. Returns whether a link changed.
///
/// # Errors
/// If a link cannot be created.
pub fn enable(root: &Root, name: &str, text: &str) -> Result<bool, StepFailure> {
    let target = format!("{}/{name}", paths::UNIT_FILES);
    let mut changed = Vec::new();
    for link in wants(root, name, text) {
        if point_link(&link, &target)? {
            changed.push(link);
        }
    }
    sync_folders_of(&changed)?;
    Ok(!changed.is_empty())
}

/// How a watched leaf certificate is compared.
#[derive(Clone, Copy)]
enum LeafComparison {
    /// By what a renewal keeps: programs read a renewed certificate again without a restart.
    Identity,
    /// By its bytes, as records of earlier versions do.
    Bytes,
}

/// A digest of the content that a running unit depends on: its text and the watched files and links. A leaf
/// certificate counts with its key and names, not with its dates.
///
/// # Errors
/// If a watched path cannot be read.
pub fn content(root: &Root, text: &str, watches: &[String]) -> Result<String, StepFailure> {
    content_by(LeafComparison::Identity, root, text, watches)
}

/// Whether kubeon last started the unit with its current content. A record of an earlier version is understood
/// too.
///
/// # Errors
/// If the record or a watched path cannot be read.
pub fn is_current(root: &Root, name: &str, text: &str, watches: &[String]) -> Result<bool, StepFailure> {
    let Some(started) = started(root, name)? else { return Ok(false) };
    Ok(started == content(root, text, watches)?
        || started == content_by(LeafComparison::Bytes, root, text, watches)?)
}

/// Replaces the record of an earlier version, so that it stays current when a leaf certificate is renewed.
///
/// # Errors
/// If a file cannot be read, or the record cannot be written.
pub fn convert_record(root: &Root, name: &str, watches: &[String]) -> Result<(), StepFailure> {
    check_name(name)?;
    let Some(text) = read_text(&file(root, name))? else { return Ok(()) };
    if is_current(root, name, &text, watches)? {
        remember(root, name, Some(&content(root, &text, watches)?))?;
    }
    Ok(())
}

fn content_by(
    comparison: LeafComparison,
    root: &Root,
    text: &str,
    watches: &[String],
) -> Result<String, StepFailure> {
    let mut lines = vec![sha256(text.as_bytes())];
    for watch in watches {
        lines.push(format!("{watch} {}", watched(comparison, &root.given(watch)?)?));
    }
    Ok(sha256(lines.join("\n").as_bytes()))
}

fn watched(comparison: LeafComparison, place: &Path) -> Result<String, StepFailure> {
    let Some(found) = lstat(place)? else { return Ok("absent".to_owned()) };
    if found.is_symlink() {
        let target = fs::read_link(place).doing("read", place)?;
        return Ok(format!("link {}", target.display()));
    }
    if found.is_file() && found.len() <= READ_LIMIT {
        let bytes = fs::read(place).doing("read", place)?;
        let leaf = match comparison {
            LeafComparison::Identity => leaf_identity(&bytes),
            LeafComparison::Bytes => None,
        };
        return Ok(leaf.map_or_else(|| format!("file {}", sha256(&bytes)), |leaf| format!("leaf {leaf}")));
    }
    Ok(format!("{} {}.{}", found.len(), found.mtime(), found.mtime_nsec()))
}

/// The digest of the content with which kubeon last started the unit; `None` if it never started it.
///
/// # Errors
/// If the record cannot be read.
pub fn started(root: &Root, name: &str) -> Result<Option<String>, StepFailure> {
    let text = read_text(&place(root, name))?;
    Ok(text.and_then(|text| serde_json::from_str::<Record>(&text).ok()).and_then(|record| record.started))
}

/// Writes the record of a unit, with the digest of the content with which it was started. Call it before the
/// unit file is written, so that a reset finds every unit.
///
/// # Errors
/// If the record cannot be written.
pub fn remember(root: &Root, name: &str, started: Option<&str>) -> Result<(), StepFailure> {
    let place = place(root, name);
    let record = Record { name: name.to_owned(), started: started.map(str::to_owned) };
    let text = serde_json::to_string(&record).map_err(|error| failed(error.to_string()))?;
    if read_text(&place)?.as_deref() == Some(&*text) {
        Ok(())
    } else {
        write_file(&place, text.as_bytes(), 0o600)
    }
}

/// Removes the file of a unit and the links that enable it. Returns whether there was one of them. systemd must load its units
/// again afterwards.
///
/// # Errors
/// If one of them cannot be read or removed.
pub fn remove(root: &Root, name: &str) -> Result<bool, StepFailure> {
    let file = file(root, name);
    let mut changed = false;
    // The file names the links, so it goes last.
    for link in wants(root, name, &read_text(&file)?.unwrap_or_default()) {
        changed |= remove_file(&link)?;
    }
    Ok(remove_file(&file)? || changed)
}

/// Removes the record of a unit.
///
/// # Errors
/// If the record cannot be removed.
pub fn forget(root: &Root, name: &str) -> Result<(), StepFailure> {
    remove_file(&place(root, name)).map(drop)
}

/// The names of the units that have a record.
///
/// # Errors
/// If the records cannot be read.
pub fn remembered(root: &Root) -> Result<Vec<String>, StepFailure> {
    let folder = root.at(paths::UNITS);
    let records = match fs::read_dir(&folder) {
        Ok(records) => records,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).doing("read the folder", &folder),
    };
    let mut names = Vec::new();
    for record in records {
        let file = record.doing("read the folder", &folder)?.file_name();
        let name = file.to_string_lossy().strip_suffix(".json").map(str::to_owned);
        names.extend(name.filter(|name| check_name(name).is_ok()));
    }
    names.sort();
    Ok(names)
}

fn place(root: &Root, name: &str) -> PathBuf {
    root.at(paths::UNITS).join(format!("{name}.json"))
}
