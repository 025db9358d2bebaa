//! Another build of the bundle is never used silently, and all versions have the same units.

use kubeon_plan::precheck::{BUNDLE_CHECK, may_be_ignored};
use kubeon_plan::sim::artifacts;
use kubeon_plan::{Artifacts, Intent, Remedy, Snapshot, desired_content, plan, validate};
use kubeon_wire::{Content, Op};

use crate::support::{bare_hosts, created, named};

/// A created cluster, and an intent with the bundle of another build.
fn other_build() -> (Intent, Snapshot) {
    let intent = Intent { artifacts: artifacts("another build"), generation: 1, ..named(1, 2) };
    (intent, created(1, 2, &[Some(true)]))
}

fn used(artifacts: &Artifacts) -> std::collections::BTreeMap<String, kubeon_api::Digest> {
    artifacts.parts.iter().map(|(name, part)| (name.clone(), part.digest.clone())).collect()
}

#[test]
fn another_build_of_the_version_is_refused_until_it_is_accepted() {
    let (mut intent, snapshot) = other_build();
    let refused = plan(&intent, &snapshot).unwrap_err();
    let refusal = &refused.refusals()[0];
    assert!(refusal.reason.starts_with("is another build than the one in use ("), "{refusal:?}");
    assert!(refusal.reason.contains("kubelet") && refusal.reason.contains("etcd"), "{refusal:?}");
    assert_eq!(refusal.remedy, Some(Remedy::Ignore(BUNDLE_CHECK.to_owned())));
    assert!(may_be_ignored(BUNDLE_CHECK).is_ok());

    intent.ignore.insert(BUNDLE_CHECK.to_owned());
    let plan = plan(&intent, &snapshot).unwrap();
    assert!(!plan.steps.is_empty());
    assert!(plan.notes.iter().any(|note| note.text.contains("another build")), "{:?}", plan.notes);
}

#[test]
fn the_recorded_build_decides_where_there_is_a_record() {
    let (mut intent, snapshot) = other_build();
    intent.bundle_in_use = used(&intent.artifacts);
    assert!(plan(&intent, &snapshot).is_ok(), "an interrupted change to this build continues");
    intent.bundle_in_use = used(&named(1, 2).artifacts);
    assert_eq!(plan(&intent, &snapshot).unwrap_err().refusals().len(), 1);
}

/// The text of every unit and every file without a secret of a cluster of this version.
fn content(version: &str) -> Vec<String> {
    let intent = named(3, 2);
    let mut spec = (*intent.spec).clone();
    spec.version = version.parse().unwrap();
    let known = [spec.version];
    let intent = Intent { spec: validate(spec, &known).unwrap().0, artifacts: artifacts(version), ..intent };
    let mut texts = Vec::new();
    for (id, _, op) in desired_content(&intent, &bare_hosts(5)).unwrap() {
        match op {
            Op::Service { unit, .. } => texts.push(format!("{id}\n{unit}")),
            Op::Files { files } => {
                for file in files {
                    if let Content::Text(text) = file.content {
                        texts.push(format!("{id} {}\n{text}", file.path));
                    }
                }
            }
            _ => {}
        }
    }
    texts
}

/// The catalogue's minor versions take the same units, arguments and configuration: no argument that one of them refuses, and none
/// that another one needs.
#[test]
fn every_minor_version_has_the_same_units_and_files() {
    let known = content("v1.36.5");
    assert!(known.iter().any(|text| text.contains("kube-apiserver")), "{known:?}");
    for version in ["v1.34.12", "v1.35.8", "v1.37.2"] {
        assert_eq!(content(version), known, "{version}");
    }
}
