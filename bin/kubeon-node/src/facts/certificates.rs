//! The certificates on this host and their validity.

use std::fs;
use std::path::Path;

use kubeon_wire::{CertificateFact, KubeletFacts, StepFailure};

use crate::certificate;
use crate::failure::Doing;
use crate::paths;
use crate::root::Root;

/// The deepest level of folders that is searched for certificates.
const DEPTH: usize = 4;

/// Every `*.crt` below the folder of certificates, sorted by path. Files that are not certificates are
/// skipped.
///
/// # Errors
/// If a folder cannot be read.
pub(crate) fn all(root: &Root) -> Result<Vec<CertificateFact>, StepFailure> {
    let mut found = Vec::new();
    walk(&root.at(paths::PKI), paths::PKI, DEPTH, &mut found)?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// The client certificates of the kubelet.
#[must_use]
pub(crate) fn kubelet(root: &Root) -> KubeletFacts {
    let at = |path: &str| first_certificate(&root.at(path), path.to_owned());
    KubeletFacts { bootstrap: at(paths::KUBELET_BOOTSTRAP), own: at(paths::KUBELET_OWN) }
}

/// The common name of the first certificate in a text.
#[must_use]
pub(crate) fn common_name(text: &str) -> Option<String> {
    certificate::with_first(text.as_bytes(), |found| {
        let mut names = found.subject().iter_common_name();
        names.next().and_then(|name| name.as_str().ok()).map(str::to_owned)
    })?
}

fn walk(
    folder: &Path,
    name: &str,
    depth: usize,
    found: &mut Vec<CertificateFact>,
) -> Result<(), StepFailure> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).doing("read the folder", folder),
    };
    for entry in entries {
        let entry = entry.doing("read the folder", folder)?;
        let path = format!("{name}/{}", entry.file_name().to_string_lossy());
        if depth > 0 && entry.path().is_dir() {
            walk(&entry.path(), &path, depth - 1, found)?;
        } else if path.ends_with(".crt") {
            found.extend(first_certificate(&entry.path(), path));
        }
    }
    Ok(())
}

/// The first certificate in a file, which may also contain the key; `None` if there is none.
fn first_certificate(place: &Path, path: String) -> Option<CertificateFact> {
    let text = fs::read(place).ok()?;
    certificate::with_first(&text, |found| {
        let validity = found.validity();
        let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        CertificateFact { path, not_before, not_after }
    })
}
