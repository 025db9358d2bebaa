//! The certificates in place, and how long they are valid.

use std::fs;
use std::path::Path;

use kubeon_wire::{CertificateFact, KubeletFacts, StepFailure};
use x509_parser::pem::Pem;

use crate::failure::Doing;
use crate::paths;
use crate::root::Root;

/// Below the folder of certificates there are few folders; deeper ones are not looked into.
const DEPTH: usize = 4;

/// Every `*.crt` below the folder of certificates, by path. What is no certificate is left out.
///
/// # Errors
/// When a folder cannot be read.
pub(super) fn look(root: &Root) -> Result<Vec<CertificateFact>, StepFailure> {
    let mut found = Vec::new();
    walk(&root.at(paths::PKI), paths::PKI, DEPTH, &mut found)?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// The certificates by which the kubelet makes itself known.
#[must_use]
pub(super) fn kubelet(root: &Root) -> KubeletFacts {
    let at = |path: &str| one(&root.at(path), path.to_owned());
    KubeletFacts { bootstrap: at(paths::KUBELET_BOOTSTRAP), own: at(paths::KUBELET_OWN) }
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
            found.extend(one(&entry.path(), path));
        }
    }
    Ok(())
}

/// The first certificate in a file, that may hold its key too; `None` where there is none.
fn one(place: &Path, path: String) -> Option<CertificateFact> {
    let text = fs::read(place).ok()?;
    let pem = Pem::iter_from_buffer(&text).map_while(Result::ok).find(|pem| pem.label == "CERTIFICATE")?;
    let certificate = pem.parse_x509().ok()?;
    let validity = certificate.validity();
    let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    Some(CertificateFact { path, not_before, not_after })
}
