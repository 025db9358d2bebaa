//! The catalogue says what each version's own kubeadm asks for: that kubeadm is asked, in every bundle that is built here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on")]

use std::collections::BTreeSet;
use std::process::Command;

use kubeon_bundle::{Arch, Bundle, BundleStore};

/// What kubeadm installs nothing of.
const NOT_KUBEADMS: &str = "flannel";

fn wanted(bundle: &Bundle) -> BTreeSet<String> {
    let version = bundle.manifest().kubernetes;
    let kubeadm = kubeon_envtest::program_of(version, "kubeadm").unwrap();
    // With a version that is written out it asks nobody.
    let asked = ["config", "images", "list", "--kubernetes-version", &version.to_string()];
    let output = Command::new(kubeadm).args(asked).output().unwrap();
    assert!(output.status.success(), "{version}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn every_bundle_holds_the_images_that_its_kubeadm_asks_for() {
    let store = BundleStore::from_env().unwrap();
    let mut seen = Vec::new();
    for (_, bundle) in store.list().unwrap() {
        let bundle = bundle.unwrap();
        let manifest = bundle.manifest();
        // The components of a folder were not built here.
        if manifest.arch != Arch::native() || manifest.created_from != "go-modules" {
            continue;
        }
        let images = manifest.images.iter().filter(|image| image.name != NOT_KUBEADMS);
        let held: BTreeSet<String> = images.map(|image| image.reference.clone()).collect();
        assert_eq!(held, wanted(&bundle), "{}", manifest.kubernetes);
        seen.push(manifest.kubernetes.to_string());
    }
    assert!(seen.contains(&"v1.36.3".to_owned()), "only {seen:?} are built");
}
