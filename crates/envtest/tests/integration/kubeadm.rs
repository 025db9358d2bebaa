//! Compares the images of every bundle that is built here with the images that its own kubeadm lists.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on")]

use std::collections::BTreeSet;
use std::process::Command;

use kubeon_bundle::{Arch, Bundle, BundleStore};

/// The images that kubeadm does not install.
const NOT_FROM_KUBEADM: [&str; 2] = ["flannel", "haproxy"];

fn wanted(bundle: &Bundle) -> BTreeSet<String> {
    let version = bundle.manifest().kubernetes;
    let kubeadm = kubeon_envtest::program_of(version, "kubeadm").unwrap();
    // With an exact version kubeadm sends no request.
    let arguments = ["config", "images", "list", "--kubernetes-version", &version.to_string()];
    let output = Command::new(kubeadm).args(arguments).output().unwrap();
    assert!(output.status.success(), "{version}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn every_bundle_holds_the_images_that_its_kubeadm_asks_for() {
    let store = BundleStore::from_env().unwrap();
    let mut checked = Vec::new();
    for (_, bundle) in store.list().unwrap() {
        let bundle = bundle.unwrap();
        let manifest = bundle.manifest();
        // The components of a folder were not built here.
        if manifest.arch != Arch::native() || manifest.created_from != "go-modules" {
            continue;
        }
        let images = manifest.images.iter().filter(|image| !NOT_FROM_KUBEADM.contains(&image.name.as_str()));
        let images: BTreeSet<String> = images.map(|image| image.reference.clone()).collect();
        assert_eq!(images, wanted(&bundle), "{}", manifest.kubernetes);
        checked.push(manifest.kubernetes.to_string());
    }
    assert!(checked.contains(&"v1.36.3".to_owned()), "only {checked:?} are built");
}
