//! Reads the files of a layout.

use std::fs;
use std::path::{Path, PathBuf};

use kubeon_api::Digest;

use super::error::{BundleError, shape};
use crate::{digest, layout};

pub(super) fn read(path: &Path) -> Result<Vec<u8>, BundleError> {
    fs::read(path).map_err(|source| BundleError::Read { path: path.to_owned(), source })
}

pub(super) fn decode<T: for<'de> serde::Deserialize<'de>>(
    path: &Path,
    bytes: &[u8],
) -> Result<T, BundleError> {
    serde_json::from_slice(bytes).map_err(|error| shape(path, error))
}

/// Reads a small blob and checks its digest.
pub(super) fn checked(root: &Path, digest: &Digest) -> Result<(PathBuf, Vec<u8>), BundleError> {
    let path = layout::blob(root, digest);
    let bytes = read(&path)?;
    let found = digest::of_bytes(&bytes).map_err(|error| shape(&path, error))?;
    if found != *digest {
        return Err(shape(&path, format!("its content has the digest {found}")));
    }
    Ok((path, bytes))
}
