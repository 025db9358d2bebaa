//! The parts of a bundle: names and sizes for plans, files for `apply`.

use std::path::PathBuf;

use kubeon_api::Digest;
use kubeon_bundle::{Bundle, Part, PartKind};
use kubeon_plan::{Artifacts, ImageInfo, PartInfo};
use kubeon_ports::Blobs;

/// The parts and images of a bundle, for plans.
pub fn artifacts(bundle: &Bundle) -> Artifacts {
    let manifest = bundle.manifest();
    let info = |part: &Part| PartInfo {
        digest: part.digest.clone(),
        size: part.size,
        unpacked_size: part.unpacked_size,
        version: part.version.clone(),
    };
    let programs = manifest.parts.iter().filter(|part| part.kind != PartKind::Image);
    let archive = |reference: &str| {
        manifest
            .parts
            .iter()
            .find(|part| part.kind == PartKind::Image && part.image.as_deref() == Some(reference))
    };
    let images = manifest.images.iter().filter_map(|image| {
        let part = info(archive(&image.reference)?);
        Some((image.name.clone(), ImageInfo { name: image.reference.clone(), part }))
    });
    Artifacts {
        arch: Some(manifest.arch),
        parts: programs.map(|part| (part.name.clone(), info(part))).collect(),
        images: images.collect(),
    }
}

/// The files of a bundle's parts.
pub struct BundleBlobs<'a>(pub &'a Bundle);

impl Blobs for BundleBlobs<'_> {
    fn blob(&self, digest: &Digest) -> Option<PathBuf> {
        Some(self.0.blob(digest)).filter(|path| path.is_file())
    }
}
