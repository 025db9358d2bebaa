//! Which files of parts were found undamaged: a part is hashed once on this machine, not before every change.
//!
//! A file that is written again has another time of change, which no program can choose. Damage that leaves no trace there, such as
//! that of a disk, is found by the host, which hashes what it receives.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use kubeon_api::Digest;
use kubeon_bundle::{Bundle, VerifyError};
use serde::{Deserialize, Serialize};

/// The file in the cache folder.
const FILE: &str = "verified-parts.json";
/// The most files that are remembered: those of dozens of bundles.
const MOST: usize = 2000;
/// Seconds after its change in which a file may change again and show the same time.
const SETTLED_SECONDS: i64 = 2;

/// The files that were found undamaged, as they were then.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct VerifiedParts(BTreeMap<PathBuf, VerifiedFile>);

/// What a file is recognised by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct VerifiedFile {
    digest: Digest,
    size: u64,
    device: u64,
    inode: u64,
    /// When the content was changed: seconds since 1970, and nanoseconds.
    modified: (i64, i64),
    /// When the content or anything else of it was changed.
    changed: (i64, i64),
}

impl VerifiedParts {
    /// The files that earlier commands verified; none without a folder or a readable list.
    pub(crate) fn read(cache: Option<&Path>) -> Self {
        let text = cache.and_then(|cache| fs::read(cache.join(FILE)).ok());
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Hashes those of the wanted parts of the bundle that were not verified before, or changed since.
    ///
    /// # Errors
    /// Everything that is missing or damaged.
    pub(crate) fn verify(&mut self, bundle: &Bundle, wanted: &BTreeSet<Digest>) -> Result<(), VerifyError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let latest = i64::try_from(now).unwrap_or(i64::MAX) - SETTLED_SECONDS;
        let (mut unknown, mut found) = (BTreeSet::new(), Vec::new());
        for part in bundle.manifest().parts.iter().filter(|part| wanted.contains(&part.digest)) {
            let path = bundle.blob(&part.digest);
            // Looked at before it is hashed: what changes it meanwhile changes the times too.
            let file = VerifiedFile::of(&path, &part.digest);
            if file.is_some() && self.0.get(&path) == file.as_ref() {
                continue;
            }
            unknown.insert(part.digest.clone());
            found.extend(file.filter(|file| file.changed.0 < latest).map(|file| (path, file)));
        }
        if unknown.is_empty() {
            return Ok(());
        }
        bundle.verify_parts(&unknown)?;
        self.0.extend(found);
        Ok(())
    }

    /// Remembers the files. Without a folder that can be written to, they are hashed again next time.
    pub(crate) fn write(mut self, cache: Option<&Path>) {
        if self.0.len() > MOST {
            self.0.retain(|path, _| path.exists());
        }
        let Some(file) = cache.map(|cache| cache.join(FILE)) else { return };
        let text = serde_json::to_vec(&self).unwrap_or_default();
        if self.0.len() > MOST || fs::read(&file).is_ok_and(|known| known == text) {
            return;
        }
        drop(kubeon_atomic_file::write_atomically(&file, &text, 0o600));
    }
}

impl VerifiedFile {
    fn of(path: &Path, digest: &Digest) -> Option<Self> {
        let found = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some(Self {
            digest: digest.clone(),
            size: found.len(),
            device: found.dev(),
            inode: found.ino(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest() -> Digest {
        "ab".repeat(32).parse().unwrap()
    }

    #[test]
    fn a_file_that_is_written_again_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part");
        fs::write(&path, "one").unwrap();
        let before = VerifiedFile::of(&path, &digest());
        assert!(before.is_some());
        assert_eq!(before, VerifiedFile::of(&path, &digest()));
        // The same size; a time that a program chose.
        let file = fs::File::options().write(true).open(&path).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::io::Write::write_all(&mut &file, b"two").unwrap();
        let chosen = UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        file.set_times(fs::FileTimes::new().set_modified(chosen)).unwrap();
        assert_ne!(before, VerifiedFile::of(&path, &digest()));
        assert_eq!(VerifiedFile::of(folder.path(), &digest()), None, "no file");
    }

    #[test]
    fn what_was_verified_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part");
        fs::write(&path, "one").unwrap();
        let mut parts = VerifiedParts::read(Some(folder.path()));
        assert!(parts.0.is_empty(), "there is no list yet");
        let file = VerifiedFile::of(&path, &digest()).unwrap();
        parts.0.insert(path.clone(), file.clone());
        parts.write(Some(folder.path()));
        assert_eq!(VerifiedParts::read(Some(folder.path())).0.get(&path), Some(&file));
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(VerifiedParts::read(Some(folder.path())).0.is_empty(), "a damaged list is none");
        assert!(VerifiedParts::read(None).0.is_empty());
    }
}
