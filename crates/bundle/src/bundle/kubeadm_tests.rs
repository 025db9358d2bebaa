//! Compares the catalogue with the kubeadm of each bundle on this machine.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use super::Bundle;
use crate::{Arch, BundleStore, Catalogue};

/// What kubeon takes from elsewhere than kubeadm.
const OWN: [&str; 2] = ["ghcr.io/flannel-io/flannel:", "docker.io/kubeon/local-haproxy:"];

/// Unpacks the program of a part into the folder.
fn unpack(bundle: &Bundle, part: &str, folder: &Path) -> std::path::PathBuf {
    let blob = bundle.blob(&bundle.part(part).unwrap().digest);
    let mut archive = tar::Archive::new(zstd::stream::read::Decoder::new(File::open(blob).unwrap()).unwrap());
    let program = folder.join(part);
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.path().unwrap().ends_with(part) && entry.header().entry_type().is_file() {
            entry.unpack(&program).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            return program;
        }
    }
    panic!("the part {part} contains no such program");
}

#[test]
fn the_catalogue_names_the_images_of_each_versions_own_kubeadm() {
    let store = BundleStore::from_env().unwrap();
    let catalogue = Catalogue::embedded().unwrap();
    let mut compared = 0;
    for version in catalogue.versions() {
        let Ok(bundle) = store.find(version, Arch::native()) else { continue };
        let folder = tempfile::tempdir().unwrap();
        let kubeadm = unpack(&bundle, "kubeadm", folder.path());
        let asked = format!("--kubernetes-version={version}");
        let output = Command::new(kubeadm).args(["config", "images", "list", &asked]).output().unwrap();
        assert!(output.status.success(), "{version}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let kubeadms: BTreeSet<&str> = text.lines().collect();
        let images = &catalogue.entry(version).unwrap().images;
        let ours = images.iter().map(|image| image.reference.as_str());
        let ours: BTreeSet<&str> =
            ours.filter(|image| !OWN.iter().any(|own| image.starts_with(own))).collect();
        assert_eq!(ours, kubeadms, "{version}");
        compared += 1;
    }
    assert!(compared > 0, "no bundle is on this machine: kubeon bundle build stable");
}
