//! The parts of a bundle: names and sizes for plans.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::Digest;
use kubeon_bundle::{Bundle, Part, PartKind};
use kubeon_plan::{Artifacts, ImageInfo, Intent, PartInfo, Plan};
use kubeon_wire::Op;

/// The parts and images of each bundle, for plans: of the first, and of the others.
pub(crate) fn all_artifacts(bundles: &[Bundle]) -> (Artifacts, Vec<Artifacts>) {
    let mut all = bundles.iter().map(artifacts);
    (all.next().unwrap_or_default(), all.collect())
}

/// The parts and images of each bundle, with the control plane's programs of the bundle of another version for the same
/// architecture. An architecture for which there is none is left out.
pub(crate) fn trial_artifacts(bundles: &[Bundle], tried: &[Bundle]) -> (Artifacts, Vec<Artifacts>) {
    let tried: Vec<Artifacts> = tried.iter().map(artifacts).collect();
    let of_same_arch = |own: &Artifacts| tried.iter().find(|other| other.arch == own.arch);
    let merged = bundles.iter().map(artifacts);
    let mut all = merged.filter_map(|own| Some(own.with_control_plane_of(of_same_arch(&own)?)));
    (all.next().unwrap_or_default(), all.collect())
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
