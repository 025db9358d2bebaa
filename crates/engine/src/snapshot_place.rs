//! Where a snapshot of etcd is kept: a file on this machine, or an object in an object store.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use jiff::Timestamp;
use kubeon_api::Version;
use kubeon_s3::{AddressError, S3Address};

use crate::error::EngineError;
use crate::etcd_snapshot::state_file;
use crate::snapshot_folder;

/// Where a snapshot is kept, or the folder of several. The state and the keys of the cluster are beside it: `.state` follows
/// in the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotPlace {
    /// A file or a folder on this machine.
    File(PathBuf),
    /// An object, or a prefix of objects.
    Object(S3Address),
}

impl SnapshotPlace {
    /// Whether it is a folder of snapshots.
    #[must_use]
    pub fn is_folder(&self) -> bool {
        match self {
            Self::File(path) => path.is_dir(),
            Self::Object(address) => address.is_prefix(),
        }
    }

    /// The place of a new snapshot: below a folder, its name has the time and the version.
    ///
    /// # Errors
    /// When the folder cannot be created.
    pub fn for_new(&self, version: Version, now: Timestamp) -> Result<Self, EngineError> {
        Ok(match self {
            Self::File(folder) if self.is_folder() => {
                Self::File(snapshot_folder::new_file(folder, version, now)?)
            }
            Self::Object(prefix) if prefix.is_prefix() => {
                Self::Object(prefix.join(&snapshot_folder::new_name(version, now)))
            }
            other => other.clone(),
        })
    }

    /// The place of the state and the keys beside the snapshot.
    #[must_use]
    pub fn state(&self) -> Self {
        match self {
            Self::File(path) => Self::File(state_file(path)),
            Self::Object(address) => {
                let name = state_file(Path::new(address.key()));
                Self::Object(address.with_key(name.to_string_lossy().into_owned()))
            }
        }
    }
}

impl FromStr for SnapshotPlace {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if S3Address::is_one(text) {
            text.parse().map(Self::Object)
        } else {
            Ok(Self::File(PathBuf::from(text)))
        }
    }
}

impl fmt::Display for SnapshotPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Object(address) => write!(f, "{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_snapshot_below_a_prefix_is_named_by_its_time() {
        let (version, now) = ("v1.36.3".parse().unwrap(), "2026-01-31T12:00:00Z".parse().unwrap());
        let place = |text: &str| text.parse::<SnapshotPlace>().unwrap();
        let new = |text: &str| place(text).for_new(version, now).unwrap().to_string();
        assert_eq!(new("s3://backups/shop/"), "s3://backups/shop/20260131T120000Z-v1.36.3.db");
        assert_eq!(new("s3://backups/shop.db"), "s3://backups/shop.db");
        assert_eq!(new("shop.db"), "shop.db");
        assert_eq!(place("s3://backups/shop.db").state().to_string(), "s3://backups/shop.db.state");
        assert_eq!(place("/b/shop.db").state().to_string(), "/b/shop.db.state");
        let folder = tempfile::tempdir().unwrap();
        let inside = new(&folder.path().display().to_string());
        assert!(inside.ends_with("/20260131T120000Z-v1.36.3.db"), "{inside}");
    }
}
