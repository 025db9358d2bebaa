//! Verifies that nothing in a bundle changed: hashes every blob again and compares the layout's own files with the
//! files that the manifest implies. Every changed bit is found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZero;
use std::path::Path;
use std::{fs, io, thread};

use kubeon_api::Digest;
use parking_lot::Mutex;

use super::blobs::{checked, decode};
use crate::layout::{self, Manifest};
use crate::{BundleManifest, BundleRemedy, digest};

/// A damaged file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Its name in messages: `part kubelet`, `image etcd (config)`, `index.json`.
    pub what: String,
    /// The damage.
    pub found: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.found)
    }
}

/// A bundle that has changed since it was built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "bundle {bundle} is damaged, {count} of {total} blobs\n{list}",
    count = damages.len(),
    list = damages.iter().map(|damage| format!("  {damage}")).collect::<Vec<_>>().join("\n")
)]
pub struct VerifyError {
    /// The bundle's folder.
    pub bundle: String,
    /// Its version.
    pub version: kubeon_api::Version,
    /// Every damaged file.
    pub damages: Vec<Damage>,
    /// The number of blobs that were checked.
    pub total: usize,
}

impl VerifyError {
    /// What a user can do about it.
    #[must_use]
    pub fn remedy(&self) -> BundleRemedy {
        BundleRemedy::BuildAgain(self.version)
    }
}

/// Checks every blob and the layout's own files.
pub(super) fn verify(root: &Path, manifest: &BundleManifest) -> Result<(), VerifyError> {
    let mut damages = Vec::new();
    let blobs = named_blobs(root, manifest, &mut damages);
    damages.extend(damaged(root, &blobs));
    for (file, expected) in fixed_files(manifest) {
        let found = match (fs::read(root.join(file)), expected) {
            (Ok(bytes), Ok(expected)) if bytes == expected => continue,
            (Ok(_), Ok(_)) => "it differs from the file that the manifest implies".to_owned(),
            (Err(error), _) | (_, Err(error)) => format!("it cannot be read: {error}"),
        };
        damages.push(Damage { what: file.to_owned(), found });
    }
    outcome(root, manifest, damages, blobs.len())
}

/// Checks only the parts with these digests.
pub(super) fn verify_parts(
    root: &Path,
    manifest: &BundleManifest,
    wanted: &BTreeSet<Digest>,
) -> Result<(), VerifyError> {
    let parts = manifest.parts.iter().filter(|part| wanted.contains(&part.digest));
    let blobs = parts.map(|part| (part.digest.clone(), vec![format!("part {}", part.name)])).collect();
    outcome(root, manifest, damaged(root, &blobs), blobs.len())
}

fn outcome(
    root: &Path,
    manifest: &BundleManifest,
    damages: Vec<Damage>,
    total: usize,
) -> Result<(), VerifyError> {
    if damages.is_empty() {
        return Ok(());
    }
    let (bundle, version) = (root.display().to_string(), manifest.kubernetes);
    Err(VerifyError { bundle, version, damages, total })
}

/// The blobs whose digest differs from their name. One thread per core hashes them.
fn damaged(root: &Path, blobs: &BTreeMap<Digest, Vec<String>>) -> Vec<Damage> {
    let queue = Mutex::new(blobs.iter());
    let damages = Mutex::new(Vec::new());
    let next = || queue.lock().next();
    let work = || {
        while let Some((digest, what)) = next() {
            let found = match digest::of_file(&layout::blob(root, digest)) {
                Ok((found, _)) if found == *digest => continue,
                Ok((found, _)) => format!("its SHA-256 is {found} instead of {digest}"),
                Err(error) => format!("its blob {digest} cannot be read: {error}"),
            };
            let damage = Damage { what: what.join(", "), found };
            damages.lock().push(damage);
        }
    };
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| (0..cores.min(blobs.len())).for_each(|_| drop(scope.spawn(work))));
    let mut damages = damages.into_inner();
    damages.sort_by(|a, b| a.what.cmp(&b.what));
    damages
}

/// Every blob of the layout with the names of its users.
fn named_blobs(
    root: &Path,
    manifest: &BundleManifest,
    damages: &mut Vec<Damage>,
) -> BTreeMap<Digest, Vec<String>> {
    let mut blobs: BTreeMap<Digest, Vec<String>> = BTreeMap::new();
    let mut add = |digest: &Digest, what: String| blobs.entry(digest.clone()).or_default().push(what);
    for part in &manifest.parts {
        add(&part.digest, format!("part {}", part.name));
    }
    for image in &manifest.images {
        add(&image.digest, format!("image {} (manifest)", image.name));
        // `damaged` reports a manifest that is missing or changed; its blobs cannot be checked then.
        let Ok((path, bytes)) = checked(root, &image.digest) else { continue };
        let Ok(own) = decode::<Manifest>(&path, &bytes) else { continue };
        add(&own.config.digest, format!("image {} (config)", image.name));
        for layer in &own.layers {
            if manifest.parts.iter().all(|part| part.digest != layer.digest) {
                add(&layer.digest, format!("image {} (layer of links)", image.name));
            }
        }
    }
    match layout::describe(manifest) {
        Ok(described) => {
            add(&described.manifest, "the bundle's manifest".to_owned());
            add(&described.config, "the bundle's description".to_owned());
        }
        Err(error) => damages.push(Damage { what: "the bundle's manifest".into(), found: error.to_string() }),
    }
    blobs
}

fn fixed_files(manifest: &BundleManifest) -> [(&'static str, io::Result<Vec<u8>>); 2] {
    let index = layout::describe(manifest).map(|described| described.index);
    [(layout::LAYOUT_FILE, Ok(layout::LAYOUT.as_bytes().to_vec())), (layout::INDEX_FILE, index)]
}
