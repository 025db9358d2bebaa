//! Proof that nothing in a bundle changed: every blob is hashed again, and the index is compared with what the
//! manifest implies, so that a flipped bit shows wherever it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZero;
use std::{fs, io, thread};

use kubeon_api::Digest;
use parking_lot::Mutex;

use super::Bundle;
use crate::digest;
use crate::layout::{self, Manifest};

/// What is wrong with one thing in a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// What it is, for a person: `part kubelet`, `image etcd (config)`, `index.json`.
    pub what: String,
    /// What was found instead.
    pub found: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.found)
    }
}

/// A bundle that is not what it was when it was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "bundle {bundle} is damaged, {count} of {total} blobs\n{list}\nmake it again with: kubeon bundle build {version}",
    count = damages.len(),
    list = damages.iter().map(|damage| format!("  {damage}")).collect::<Vec<_>>().join("\n")
)]
pub struct VerifyError {
    /// The bundle's folder.
    pub bundle: String,
    /// Its version.
    pub version: kubeon_api::Version,
    /// Everything that is wrong.
    pub damages: Vec<Damage>,
    /// How many blobs were looked at.
    pub total: usize,
}

pub(super) fn verify(bundle: &Bundle) -> Result<(), VerifyError> {
    let mut damages = Vec::new();
    let blobs = named_blobs(bundle, &mut damages);
    damages.extend(damaged(bundle, &blobs));
    for (file, wanted) in fixed_files(bundle) {
        let found = match (fs::read(bundle.root().join(file)), wanted) {
            (Ok(bytes), Ok(wanted)) if bytes == wanted => continue,
            (Ok(_), Ok(_)) => "it is not what the manifest implies".to_owned(),
            (Err(error), _) | (_, Err(error)) => format!("it cannot be read: {error}"),
        };
        damages.push(Damage { what: file.to_owned(), found });
    }
    verdict(bundle, damages, blobs.len())
}

/// Only the blobs that somebody is about to use.
pub(super) fn verify_parts(bundle: &Bundle, wanted: &BTreeSet<Digest>) -> Result<(), VerifyError> {
    let parts = bundle.manifest().parts.iter().filter(|part| wanted.contains(&part.digest));
    let blobs = parts.map(|part| (part.digest.clone(), vec![format!("part {}", part.name)])).collect();
    verdict(bundle, damaged(bundle, &blobs), blobs.len())
}

fn verdict(bundle: &Bundle, damages: Vec<Damage>, total: usize) -> Result<(), VerifyError> {
    if damages.is_empty() {
        return Ok(());
    }
    let version = bundle.manifest().kubernetes;
    Err(VerifyError { bundle: bundle.root().display().to_string(), version, damages, total })
}

/// The blobs that are not what they are called; as many are hashed at once as there are cores.
fn damaged(bundle: &Bundle, blobs: &BTreeMap<Digest, Vec<String>>) -> Vec<Damage> {
    let queue = Mutex::new(blobs.iter());
    let damages = Mutex::new(Vec::new());
    let next = || queue.lock().next();
    let work = || {
        while let Some((digest, what)) = next() {
            let found = match digest::of_file(&bundle.blob(digest)) {
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

/// Every blob of the layout with the names of what uses it.
fn named_blobs(bundle: &Bundle, damages: &mut Vec<Damage>) -> BTreeMap<Digest, Vec<String>> {
    let mut blobs: BTreeMap<Digest, Vec<String>> = BTreeMap::new();
    let mut add = |digest: &Digest, what: String| blobs.entry(digest.clone()).or_default().push(what);
    let manifest = bundle.manifest();
    for part in &manifest.parts {
        add(&part.digest, format!("part {}", part.name));
    }
    for image in &manifest.images {
        add(&image.digest, format!("image {} (manifest)", image.name));
        // A manifest that is missing or changed is reported above, and says nothing that counts.
        let Ok((path, bytes)) = super::checked(bundle.root(), &image.digest) else { continue };
        let Ok(own) = super::decode::<Manifest>(&path, &bytes) else { continue };
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

type Wanted = io::Result<Vec<u8>>;

fn fixed_files(bundle: &Bundle) -> [(&'static str, Wanted); 2] {
    let index = layout::describe(bundle.manifest()).map(|described| described.index);
    [(layout::LAYOUT_FILE, Ok(layout::LAYOUT.as_bytes().to_vec())), (layout::INDEX_FILE, index)]
}
