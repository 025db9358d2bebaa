//! Folders of snapshots: a new one has its time in its name, and the oldest ones are removed.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use kubeon_api::Version;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::etcd_snapshot::state_file;

/// How many snapshots of upgrades are kept for each cluster.
pub const KEPT: usize = 10;

/// The extension of the files of snapshots.
const EXTENSION: &str = "db";
/// The characters of a time in the name of a file, such as `20260131T120000Z`.
const TIME_FORMAT: &str = "%Y%m%dT%H%M%SZ";

/// The folder with the snapshots that upgrades of the cluster took.
#[must_use]
pub fn of_upgrades(engine: &Engine<'_>, cluster: &str) -> PathBuf {
    engine.store.base().join("snapshots").join(cluster)
}

/// The file for a new snapshot of a cluster of the version. The folder is created, 0700.
///
/// # Errors
/// When the folder cannot be created.
pub fn new_file(folder: &Path, version: Version, now: Timestamp) -> Result<PathBuf, EngineError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed("create", folder))?;
    Ok(folder.join(new_name(version, now)))
}

/// The name of a new snapshot of a cluster of the version.
#[must_use]
pub fn new_name(version: Version, now: Timestamp) -> String {
    format!("{}-{version}.{EXTENSION}", now.strftime(TIME_FORMAT))
}

/// The snapshots in a folder that [`new_file`] named, the oldest first. A folder that does not exist has none.
///
/// # Errors
/// When the folder cannot be read.
pub fn snapshots(folder: &Path) -> Result<Vec<PathBuf>, EngineError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries.collect::<io::Result<Vec<_>>>().map_err(failed("read", folder))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(failed("read", folder)(error)),
    };
    let mut files: Vec<PathBuf> =
        entries.iter().map(fs::DirEntry::path).filter(|path| is_snapshot(path)).collect();
    files.sort_unstable();
    Ok(files)
}

/// Removes the oldest snapshots of a folder, with their states, until `keep` are left. Other files stay. Returns how many were
/// removed.
///
/// # Errors
/// When the folder cannot be read, or a file cannot be removed.
pub fn prune(folder: &Path, keep: usize) -> Result<usize, EngineError> {
    let files = snapshots(folder)?;
    let old = &files[..files.len().saturating_sub(keep)];
    for file in old {
        // The keys go first: without its snapshot, a state is of no use.
        for path in [state_file(file), file.clone()] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("remove", &path)(error));
                }
                _ => {}
            }
        }
    }
    Ok(old.len())
}

/// Whether [`new_file`] named the file.
fn is_snapshot(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(is_name)
}

/// Whether [`new_name`] made the name: a time, a version and the extension.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let parts = name.strip_suffix(".db").and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(time, version)| {
        jiff::civil::DateTime::strptime(TIME_FORMAT, time).is_ok() && version.parse::<Version>().is_ok()
    })
}

fn failed<'a>(what: &'a str, path: &'a Path) -> impl Fn(io::Error) -> EngineError + 'a {
    move |error| {
        EngineError::failed(format!("cannot {what} {}", path.display())).row("cause", error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_snapshots_are_removed_and_other_files_stay() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("snapshots/demo");
        assert_eq!(snapshots(&folder).unwrap(), Vec::<PathBuf>::new());
        let version: Version = "v1.36.3".parse().unwrap();
        let at = |day: u32| format!("2026-01-{day:02}T12:00:00Z").parse::<Timestamp>().unwrap();
        let files: Vec<PathBuf> =
            [3, 1, 2].iter().map(|day| new_file(&folder, version, at(*day)).unwrap()).collect();
        for file in &files {
            fs::write(file, "data").unwrap();
            fs::write(state_file(file), "keys").unwrap();
        }
        fs::write(folder.join("mine.db"), "data").unwrap();
        fs::write(folder.join("20260101T120000Z-mine.db"), "data").unwrap();
        assert_eq!(prune(&folder, 2).unwrap(), 1);
        assert_eq!(snapshots(&folder).unwrap(), [files[2].clone(), files[0].clone()]);
        assert!(!files[1].exists() && !state_file(&files[1]).exists());
        assert_eq!(prune(&folder, 2).unwrap(), 0);
        assert!(folder.join("mine.db").exists() && folder.join("20260101T120000Z-mine.db").exists());
    }
}
