//! The journal of completed steps: one file for each step, written after its effect is complete.

use std::fs;
use std::path::PathBuf;

use kubeon_wire::StepFailure;
use serde::{Deserialize, Serialize};

use crate::durable::{read_text, remove_file, write_file};
use crate::failure::{Doing, failed};
use crate::paths;
use crate::root::Root;

/// A completed step and its results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The step's identity.
    pub id: String,
    /// Digest of the planned step.
    pub digest: String,
    /// Its results, to check for drift later.
    pub marks: Vec<Mark>,
}

/// A result of a step that can be checked later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Mark {
    /// A file with this content.
    File {
        /// Its path.
        path: String,
        /// SHA-256 of its content.
        sha256: String,
        /// Its permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// Its path.
        path: String,
        /// Its target.
        target: String,
    },
    /// An unpacked part.
    Part {
        /// SHA-256 of the compressed blob.
        digest: String,
    },
    /// A kernel parameter.
    Parameter {
        /// Its name with dots.
        name: String,
        /// Its value.
        value: String,
    },
    /// No swap is in use.
    NoSwap,
    /// kubeon's block in the hosts file.
    HostsBlock {
        /// SHA-256 of the block's lines.
        sha256: String,
    },
    /// A running unit.
    Unit {
        /// Its name with suffix.
        name: String,
        /// SHA-256 of the unit file.
        sha256: String,
        /// Paths whose change requires a restart.
        watches: Vec<String>,
    },
    /// An image in containerd.
    Image {
        /// Its name.
        name: String,
    },
    /// An object in the API server.
    Object {
        /// Its URL path.
        path: String,
    },
}

/// Writes the entry of a step.
///
/// # Errors
/// If the entry cannot be written.
pub fn remember(root: &Root, entry: &Entry) -> Result<(), StepFailure> {
    let text = serde_json::to_vec(entry)
        .map_err(|error| failed(format!("cannot encode a journal entry: {error}")))?;
    write_file(&place(root, &entry.id)?, &text, 0o600)
}

/// The entry of a step; `None` if it never completed or its entry cannot be parsed. The step is then executed
/// again.
///
/// # Errors
/// If the journal cannot be read.
pub fn entry(root: &Root, id: &str) -> Result<Option<Entry>, StepFailure> {
    let text = read_text(&place(root, id)?)?;
    let entry = text.and_then(|text| serde_json::from_str::<Entry>(&text).ok());
    Ok(entry.filter(|entry| entry.id == id))
}

/// All entries, sorted by name. An entry that cannot be parsed is returned as its step's identity.
///
/// # Errors
/// If the journal cannot be read.
pub fn all(root: &Root) -> Result<Vec<Result<Entry, String>>, StepFailure> {
    let folder = root.at(paths::JOURNAL);
    let files = match fs::read_dir(&folder) {
        Ok(files) => files,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).doing("read the folder", &folder),
    };
    let mut entries = Vec::new();
    for file in files {
        let name = file.doing("read the folder", &folder)?.file_name().to_string_lossy().into_owned();
        let Some(stem) = name.strip_suffix(".json").filter(|stem| !stem.starts_with('.')) else { continue };
        let text = read_text(&folder.join(&name))?.unwrap_or_default();
        let entry = serde_json::from_str::<Entry>(&text);
        entries.push((name.clone(), entry.map_err(|_| stem.replace("__", "/"))));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

/// Removes the entries that `concerns` selects. An entry that cannot be parsed stays: its step is executed again anyway.
///
/// # Errors
/// If the journal cannot be read, or an entry cannot be removed.
pub fn forget(root: &Root, concerns: impl Fn(&Entry) -> bool) -> Result<(), StepFailure> {
    for entry in all(root)?.into_iter().flatten().filter(concerns) {
        remove_file(&place(root, &entry.id)?)?;
    }
    Ok(())
}

fn place(root: &Root, id: &str) -> Result<PathBuf, StepFailure> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_./:@+".contains(c);
    if id.is_empty() || id.len() > 200 || id.starts_with('.') || !id.chars().all(good) {
        return Err(failed(format!(
            "{id:?} is not a valid step ID: use 1 to 200 characters of a-z, A-Z, 0-9 and -_./:@+"
        )));
    }
    Ok(root.at(paths::JOURNAL).join(format!("{}.json", id.replace('/', "__"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(id: &str) -> Entry {
        Entry { id: id.into(), digest: "d".into(), marks: vec![Mark::Image { name: "pause".into() }] }
    }

    #[test]
    fn writes_and_reads_entries() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert!(all(&root).unwrap().is_empty());
        remember(&root, &done("h1/etcd/service")).unwrap();
        assert_eq!(entry(&root, "h1/etcd/service").unwrap(), Some(done("h1/etcd/service")));
        assert_eq!(entry(&root, "h1__etcd/service").unwrap(), None, "another step of the same file name");
        assert_eq!(all(&root).unwrap(), vec![Ok(done("h1/etcd/service"))]);
    }

    #[test]
    fn a_broken_entry_is_named_and_its_step_is_executed_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        remember(&root, &done("h1/x")).unwrap();
        fs::write(root.at(paths::JOURNAL).join("h1__x.json"), "{").unwrap();
        assert_eq!(all(&root).unwrap(), vec![Err("h1/x".to_owned())]);
        assert_eq!(entry(&root, "h1/x").unwrap(), None);
    }

    #[test]
    fn refuses_names_that_could_leave_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        for bad in ["", "../x", "a b", "x\n", &"x".repeat(201)] {
            assert!(remember(&root, &done(bad)).is_err(), "{bad}");
        }
    }
}
