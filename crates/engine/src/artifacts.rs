//! The parts of a bundle: names and sizes for plans.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::Digest;
use kubeon_bundle::{Bundle, Part, PartKind};
use kubeon_plan::{Artifacts, ImageInfo, Intent, PartInfo, Plan};
use kubeon_wire::Op;

/// The same content merged with that of bundles of another version for the same architectures. An architecture for which there is
/// none is left out. Without bundles the content stays.
pub(crate) fn merged(
    all: Vec<Artifacts>,
    others: &[Bundle],
    merge: impl Fn(&Artifacts, &Artifacts) -> Artifacts,
) -> Vec<Artifacts> {
    if others.is_empty() {
        return all;
    }
    let others: Vec<Artifacts> = others.iter().map(artifacts).collect();
    let of_same_arch = |own: &Artifacts| others.iter().find(|other| other.arch == own.arch);
    all.iter().filter_map(|own| Some(merge(own, of_same_arch(own)?))).collect()
}

/// The parts and images of one bundle.
pub(crate) fn artifacts(bundle: &Bundle) -> Artifacts {
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

/// The digests of the programs that the cluster uses once the plan is done. Those for a further architecture are recorded as soon
/// as a host gets them.
pub(crate) fn programs_in_use(intent: &Intent, plan: &Plan) -> BTreeMap<String, Digest> {
    let put: BTreeSet<&Digest> = plan
        .steps
        .iter()
        .filter_map(|step| if let Op::Part { digest, .. } = &step.op { Some(digest) } else { None })
        .collect();
    let is_used = |artifacts: &&Artifacts| {
        artifacts.parts.iter().any(|(name, part)| {
            put.contains(&part.digest) || intent.bundle_in_use.contains_key(&artifacts.recorded_name(name))
        })
    };
    let used = std::iter::once(&intent.artifacts).chain(intent.other_artifacts.iter().filter(is_used));
    used.flat_map(|artifacts| {
        artifacts.parts.iter().map(|(name, part)| (artifacts.recorded_name(name), part.digest.clone()))
    })
    .collect()
}
