//! Hosts of several architectures in one cluster: each gets the bundle of its own.

use kubeon_api::{Arch, Digest};
use kubeon_plan::sim::{artifacts, run_to_completion};
use kubeon_plan::{Artifacts, Intent, Snapshot, plan};
use kubeon_wire::Op;

use crate::support::{address, bare_hosts, edit, golden, named};

/// One master on x86_64, two workers, of which the second is on aarch64.
fn mixed() -> (Intent, Snapshot) {
    let other = Artifacts { arch: Some(Arch::Arm64), ..artifacts("v1.36.3 arm64") };
    let intent = Intent { other_artifacts: vec![other], ..named(1, 2) };
    let mut snapshot = bare_hosts(3);
    edit(&mut snapshot, 2, |facts| facts.architecture = "aarch64".into());
    (intent, snapshot)
}

#[test]
fn each_host_gets_the_bundle_of_its_architecture() {
    let (intent, mut snapshot) = mixed();
    let made = plan(&intent, &snapshot).unwrap();
    let kubelet_of = |index: usize| -> Vec<&Digest> {
        let steps = made.steps.iter().filter(|step| step.host == address(index));
        steps
            .filter_map(|step| match &step.op {
                Op::Part { name, digest, .. } if name == "kubelet" => Some(digest),
                _ => None,
            })
            .collect()
    };
    assert_eq!(kubelet_of(1), [&intent.artifacts.parts["kubelet"].digest]);
    assert_eq!(kubelet_of(2), [&intent.other_artifacts[0].parts["kubelet"].digest]);
    golden("mixed-architectures", &run_to_completion(&intent, &mut snapshot, 3));
    assert!(plan(&intent, &snapshot).unwrap().steps.is_empty());
}

#[test]
fn a_host_without_a_bundle_for_its_architecture_is_refused() {
    let (intent, snapshot) = mixed();
    let alone = Intent { other_artifacts: Vec::new(), ..intent };
    let refused = plan(&alone, &snapshot).unwrap_err();
    assert!(
        refused.refusals()[0].reason.contains("is aarch64; the bundle of v1.36.3 is for x86_64"),
        "{refused:?}"
    );
}

#[test]
fn another_build_for_one_architecture_is_refused_too() {
    let (mut intent, mut snapshot) = mixed();
    run_to_completion(&intent, &mut snapshot, 3);
    let recorded = |artifacts: &Artifacts| {
        let name = |(name, part): (&String, &kubeon_plan::PartInfo)| {
            (artifacts.recorded_name(name), part.digest.clone())
        };
        artifacts.parts.iter().map(name).collect::<Vec<_>>()
    };
    let both = recorded(&intent.artifacts).into_iter().chain(recorded(&intent.other_artifacts[0]));
    intent.bundle_in_use = both.collect();
    intent.generation = 1;
    assert!(plan(&intent, &snapshot).unwrap().steps.is_empty());
    intent.other_artifacts = vec![Artifacts { arch: Some(Arch::Arm64), ..artifacts("another build") }];
    let refused = plan(&intent, &snapshot).unwrap_err();
    assert!(refused.refusals()[0].reason.contains("is another build than the one in use"), "{refused:?}");
}
